"""First-order methods: L-BFGS, Adam, and plain gradient descent."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize

from skattn._optimize.monitor import Bounds, Loss, Monitor, Trained, is_finite

__all__ = ["Batches", "adam", "gradient_descent", "lbfgs"]

Array = NDArray[np.float64]

# By so much a loss that cannot be evaluated counts as higher than the last one.
_BAD = 10.0
# Gradients of batches are shortened to this.
_LARGEST_GRADIENT = 1.0


def lbfgs(
    loss: Loss, start: Array, bounds: Bounds, tolerance: float, max_iter: int, monitor: Monitor
) -> Trained:
    """Minimise a loss by L-BFGS steps within bounds, SciPy's; parameters as for `gauss_newton`.

    The tolerance is relative to the loss where that is above 1.
    """
    start = bounds.clip(start)
    losses = [loss.value(start)]
    if monitor.stops(start):
        return monitor.trained(start, losses, converged=True)

    def function(parameters: Array) -> tuple[float, Array]:
        value, gradient, _ = found = loss(parameters)
        if is_finite(found):
            return value, gradient
        return losses[-1] + _BAD, np.zeros_like(parameters)

    def after_step(intermediate_result: OptimizeResult) -> None:
        losses.append(float(intermediate_result.fun))
        if monitor.stops(intermediate_result.x):
            raise StopIteration

    found = minimize(
        function,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=list(zip(*bounds, strict=True)),
        callback=after_step,
        options={"maxiter": max_iter, "ftol": tolerance},
    )
    return monitor.trained(found.x, losses, converged=found.status != 1)


@dataclass(frozen=True)
class Batches:
    """How Adam visits queries.

    Attributes
    ----------
    size : int
        Queries at a time.
    learning_rate : float
        Length of a step in each parameter.
    patience : int
        Epochs that lower the loss by less than the tolerance, before training has converged.
    seed : int
        Seed of the order of the queries.
    """

    size: int
    learning_rate: float
    patience: int
    seed: int


def adam(
    loss: Loss,
    start: Array,
    bounds: Bounds,
    tolerance: float,
    max_iter: int,
    monitor: Monitor,
    batches: Batches,
) -> Trained:
    """Minimise a loss by steps of Adam (Kingma and Ba, 2015) within bounds, a batch at a time.

    Parameters
    ----------
    loss, start, bounds, tolerance, max_iter, monitor
        As for `gauss_newton`, with epochs in the place of steps.
    batches : Batches
        How queries are visited.
    """
    rng, at = np.random.default_rng(batches.seed), bounds.clip(start)
    first, second, n_steps = np.zeros_like(at), np.zeros_like(at), 0
    losses, best = [loss.value(at)], at
    stopped = monitor.stops(at)
    while not stopped and len(losses) <= max_iter:
        order = rng.permutation(loss.n_queries)
        for begin in range(0, loss.n_queries, batches.size):
            _, gradient, _ = found = loss.at(np.sort(order[begin : begin + batches.size]))(at)
            if not is_finite(found):
                continue
            gradient /= max(1.0, float(np.linalg.norm(gradient)) / _LARGEST_GRADIENT)
            n_steps += 1
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient**2
            step = first / (1.0 - 0.9**n_steps) / np.sqrt(second / (1.0 - 0.999**n_steps) + 1e-16)
            at = bounds.clip(at - batches.learning_rate * step)
        losses.append(loss.value(at))
        best = at if losses[-1] <= min(losses) else best
        earlier, recent = losses[: -batches.patience], losses[-batches.patience :]
        settled = bool(earlier) and min(recent) > min(earlier) - tolerance
        stopped = monitor.stops(at) or settled
    return monitor.trained(best, losses, converged=stopped)


def gradient_descent(
    loss: Loss, start: Array, learning_rate: float, max_iter: int, monitor: Monitor
) -> Trained:
    """Take a given number of plain gradient steps; parameters as for `gauss_newton`.

    The last parameters are kept, whatever the loss there; they are not finite where steps diverge.
    """
    at, losses = start, [loss.value(start)]
    stopped = monitor.stops(at)
    while not stopped and len(losses) <= max_iter and np.isfinite(losses[-1]):
        at = at - learning_rate * loss(at)[1]
        losses.append(loss.value(at))
        stopped = monitor.stops(at)
    return monitor.trained(at, losses, converged=True)
