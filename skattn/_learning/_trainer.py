"""Training: penalised leave-one-out losses, and how they are minimised."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize

from skattn._learning._metric import Metric
from skattn._learning._objective import LeaveOneOut

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Added to mean squared errors, in units of the variance: where a fit is exact, the loss is finite.
EXACT = 1e-6
# Gradients of batches are shortened to this.
_LARGEST_GRADIENT = 1.0
# Changes of the loss so small are those of the last steps.
_NEAR = 0.05
# Longest step in any parameter.
_LONGEST = 1.5


@dataclass(frozen=True)
class Prior:
    """Where parameters are expected, and how far they may go.

    Attributes
    ----------
    center : ndarray of shape (n_parameters,)
    precision : ndarray of shape (n_parameters,)
        What squared deviations from the centre cost.
    lower, upper : ndarray of shape (n_parameters,)
        Bounds.
    """

    center: Array
    precision: Array
    lower: Array
    upper: Array


class PenalizedLoss:
    """log(mean squared leave-one-out error) and the prior's penalty, with derivatives.

    The logarithm makes the loss, and what the penalty weighs, independent of the noise. The last
    parameter is the logarithm of the ridge, where there is one.
    """

    def __init__(
        self, errors: LeaveOneOut, metric: Metric, prior: Prior, fixed_ridge: float | None = None
    ) -> None:
        self.errors, self.metric, self.prior, self.fixed_ridge = errors, metric, prior, fixed_ridge

    def split(self, parameters: Array) -> tuple[Array, float]:
        """Those of the metric, and the ridge."""
        if self.fixed_ridge is not None:
            return parameters, self.fixed_ridge
        return parameters[:-1], float(np.exp(parameters[-1]))

    def r_squared(self, parameters: Array) -> float:
        """One less the mean squared leave-one-out error over the variance of all values."""
        return self.errors.r_squared(self.errors.errors(self.metric, *self.split(parameters)))

    def __call__(self, parameters: Array) -> tuple[float, Array, Array]:
        """The loss, its gradient, and its Hessian without second derivatives of predictions."""
        errors, jacobian = self.errors.linearize(self.metric, *self.split(parameters))
        if self.fixed_ridge is not None:
            jacobian = jacobian[:, :, :-1]
        share = self.errors.share / errors.shape[1]
        mean_square = float(share @ (errors**2).sum(axis=1)) + EXACT
        weighted = (jacobian * np.sqrt(share)[:, None, None]).reshape(-1, jacobian.shape[2])
        gradient = -2.0 * np.einsum("q,qp,qpj->j", share, errors, jacobian) / mean_square
        hessian = 2.0 * weighted.T @ weighted / mean_square
        deviation = parameters - self.prior.center
        loss = np.log(mean_square) + self.prior.precision @ deviation**2
        gradient += 2.0 * self.prior.precision * deviation
        return loss, gradient, hessian + 2.0 * np.diag(self.prior.precision)


@dataclass(frozen=True)
class Trained:
    """Parameters, and how they were reached.

    Attributes
    ----------
    parameters : ndarray of shape (n_parameters,)
        Of the lowest loss; of the best validation score, where rows were held out for that.
    losses : list of float
        Before the first step, and after each.
    validation_scores : list of float
        Likewise; empty where no rows were held out.
    has_converged : bool
        Or was stopped on purpose.
    """

    parameters: Array
    losses: list[float]
    validation_scores: list[float]
    has_converged: bool


@dataclass
class Monitor:
    """Watches the parameters after each step, and says when to stop.

    Attributes
    ----------
    score : callable or None
        The score of parameters on rows held out; higher is better.
    patience : int
        Steps without a better score before training stops.
    notify : callable
        Is told the parameters after each step; returns whether to stop.
    """

    score: Callable[[Array], float] | None
    patience: int
    notify: Callable[[Array], bool]

    def __post_init__(self) -> None:
        self.scores: list[float] = []
        self.best: Array | None = None

    def stops(self, parameters: Array) -> bool:
        """Look at new parameters; whether to stop."""
        wants_stop = self.notify(parameters)
        if self.score is None:
            return wants_stop
        self.scores.append(self.score(parameters))
        best = int(np.argmax(self.scores))
        if best == len(self.scores) - 1:
            self.best = parameters.copy()
        return wants_stop or len(self.scores) - 1 - best >= self.patience

    def trained(self, parameters: Array, losses: list[float], *, converged: bool) -> Trained:
        """The best of what was seen."""
        best = parameters if self.best is None else self.best
        return Trained(best, losses, self.scores, converged)


Loss = Callable[[Array], tuple[float, Array, Array]]


def gauss_newton(
    loss: Loss, start: Array, prior: Prior, tolerance: float, max_iter: int, monitor: Monitor
) -> Trained:
    """Damped Gauss-Newton steps within bounds (Levenberg and Marquardt).

    What the Gauss-Newton matrix leaves out of the Hessian is learned from the gradients, and used
    from where steps change the loss little (Dennis, Gay and Welsch, 1981).

    Parameters
    ----------
    loss : callable
        Returns the loss, its gradient and an approximate Hessian, positive semidefinite.
    start : ndarray of shape (n_parameters,)
    prior : Prior
        Its bounds.
    tolerance : float
        Converged when a step lowers the loss by less.
    max_iter : int
        Steps at most.
    monitor : Monitor

    Returns
    -------
    Trained
    """
    at, damping, longest = np.clip(start, prior.lower, prior.upper), 1e-2, _LONGEST
    value, gradient, hessian = loss(at)
    rest, is_near = np.zeros_like(hessian), False
    losses = [value]
    stopped = monitor.stops(at)
    while not stopped and len(losses) <= max_iter:
        full = _with_rest(hessian, rest) if is_near else hessian
        step = _step(at, gradient, full, damping, longest, prior)
        predicted = float(-(gradient @ step + 0.5 * step @ full @ step))
        if predicted <= tolerance:
            stopped = True
            break
        trial = loss(at + step)
        decrease, longest = value - trial[0], _LONGEST
        is_near = abs(decrease) < _NEAR
        if decrease > 0.0:
            rest = _learned_rest(rest, trial[1] - gradient, trial[2] @ step, step)
            at, (value, gradient, hessian) = at + step, trial
            losses.append(value)
            gain = decrease / max(predicted, 1e-300)
            damping = max(damping * (0.2 if gain > 0.75 else 1.0 if gain > 0.25 else 3.0), 1e-8)
            longest = _LONGEST if gain > 0.25 else max(0.5 * float(np.abs(step).max()), 1e-3)
            stopped = monitor.stops(at)
        else:
            damping *= 5.0
            longest = 0.3 * float(np.abs(step).max())
        stopped = stopped or 0.0 < decrease <= tolerance or damping > 1e8
    return monitor.trained(at, losses, converged=stopped)


def _with_rest(hessian: Array, rest: Array) -> Array:
    """The sum of both, where that is positive definite."""
    full = hessian + rest
    return full if np.linalg.eigvalsh(full)[0] > 0.0 else hessian


def _learned_rest(rest: Array, change: Array, explained: Array, step: Array) -> Array:
    """What a Gauss-Newton matrix misses of the Hessian, after a step that changed the gradient.

    The rest is sized first: far from a minimum it belongs to other places. Then it is changed as
    little as explains what the matrix leaves unexplained of the change.
    """
    along = float(change @ step)
    if along <= 1e-12:
        return rest
    unexplained, length = change - explained, abs(float(step @ rest @ step))
    if length > 0.0:
        rest = rest * min(1.0, abs(float(step @ unexplained)) / length)
    missed = unexplained - rest @ step
    cross = np.outer(missed, change)
    return (
        rest
        + (cross + cross.T) / along
        - float(missed @ step) / along**2 * np.outer(change, change)
    )


def _step(
    at: Array, gradient: Array, hessian: Array, damping: float, longest: float, prior: Prior
) -> Array:
    """A damped Newton step of the parameters that are not held by their bounds."""
    free = ((at > prior.lower) | (gradient < 0.0)) & ((at < prior.upper) | (gradient > 0.0))
    size = np.diag(hessian)
    scale = np.maximum(size, 1e-4 * size.max() if size.max() > 0.0 else 1.0)
    inner = (hessian + damping * np.diag(scale))[np.ix_(free, free)]
    step = np.zeros_like(at)
    step[free] = np.clip(np.linalg.solve(inner, -gradient[free]), -longest, longest)
    return np.clip(at + step, prior.lower, prior.upper) - at


def lbfgs(
    loss: Loss, start: Array, prior: Prior, tolerance: float, max_iter: int, monitor: Monitor
) -> Trained:
    """L-BFGS steps within bounds, by SciPy; parameters as for `gauss_newton`."""
    start = np.clip(start, prior.lower, prior.upper)
    losses = [loss(start)[0]]
    if monitor.stops(start):
        return monitor.trained(start, losses, converged=True)

    def function(parameters: Array) -> tuple[float, Array]:
        value, gradient, _ = loss(parameters)
        return value, gradient

    def after_step(intermediate_result: OptimizeResult) -> None:
        losses.append(float(intermediate_result.fun))
        if monitor.stops(intermediate_result.x):
            raise StopIteration

    found = minimize(
        function,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(prior.lower, prior.upper, strict=True)),
        callback=after_step,
        options={"maxiter": max_iter, "ftol": tolerance},
    )
    return monitor.trained(found.x, losses, converged=found.status != 1)


@dataclass(frozen=True)
class Batches:
    """How queries are visited a batch at a time.

    Attributes
    ----------
    n_queries, size : int
    learning_rate : float
    patience : int
        Epochs that lower the loss by less than the tolerance, before training has converged.
    seed : int
    """

    n_queries: int
    size: int
    learning_rate: float
    patience: int
    seed: int


def adam(
    loss_at: Callable[[Indices], Loss],
    start: Array,
    prior: Prior,
    tolerance: float,
    max_iter: int,
    monitor: Monitor,
    batches: Batches,
    whole: Callable[[Array], float] | None = None,
) -> Trained:
    """Steps of Adam (Kingma and Ba, 2015) within bounds, at batches of queries.

    Parameters
    ----------
    loss_at : callable
        The loss of the queries at some positions.
    start, prior, tolerance, max_iter, monitor
        As for `gauss_newton`; of epochs.
    batches : Batches
    whole : callable, default=None
        The loss of all queries, where it takes less than `loss_at` of all, or is not drawn.
    """
    rng, everything = np.random.default_rng(batches.seed), np.arange(batches.n_queries)
    at = np.clip(start, prior.lower, prior.upper)
    first, second, n_steps = np.zeros_like(at), np.zeros_like(at), 0
    value = whole or (lambda parameters: loss_at(everything)(parameters)[0])
    losses, best = [value(at)], at
    stopped = monitor.stops(at)
    while not stopped and len(losses) <= max_iter:
        order = rng.permutation(batches.n_queries)
        for begin in range(0, batches.n_queries, batches.size):
            _, gradient, _ = loss_at(np.sort(order[begin : begin + batches.size]))(at)
            gradient /= max(1.0, float(np.linalg.norm(gradient)) / _LARGEST_GRADIENT)
            n_steps += 1
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient**2
            step = first / (1.0 - 0.9**n_steps) / np.sqrt(second / (1.0 - 0.999**n_steps) + 1e-16)
            at = np.clip(at - batches.learning_rate * step, prior.lower, prior.upper)
        losses.append(value(at))
        best = at if losses[-1] <= min(losses) else best
        earlier = losses[: -batches.patience]
        settled = bool(earlier) and min(losses[-batches.patience :]) > min(earlier) - tolerance
        stopped = monitor.stops(at) or settled
    return monitor.trained(best, losses, converged=stopped)
