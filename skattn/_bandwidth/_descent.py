"""Descents: one start, one local minimum of a criterion."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from skattn._bandwidth._bend import WIDEST, bend, free, newton_steps, stretch, unbend
from skattn._bandwidth._objective import Objective

__all__ = ["INFINITE", "Candidate", "best", "descend", "gauss_newton", "restored", "shifted"]

Array = NDArray[np.float64]

# Stands for an infinite criterion in searches that do arithmetic with it.
INFINITE = 1e100
# Longest step of a descent in any coordinate.
_LONGEST = 2.0


@dataclass(frozen=True)
class Candidate:
    """A value of the criterion, and the log-bandwidths in spreads that reach it."""

    value: float
    log_bandwidth: Array

    @classmethod
    def at(cls, objective: Objective, log_bandwidth: Array) -> Candidate:
        """Evaluate the criterion."""
        return cls(objective.value(log_bandwidth), log_bandwidth)

    def moved(self, shift: float) -> Candidate:
        """The same at log-bandwidths of other rows."""
        return Candidate(self.value, shifted(self.log_bandwidth, shift))

    def distance(self, other: Candidate) -> float:
        """The largest difference of log-bandwidths, wherever features matter."""
        logs = (np.minimum(c.log_bandwidth, np.log(10.0)) for c in (self, other))
        return float(np.abs(np.subtract(*logs)).max())

    def expand(self, n_features: int) -> Candidate:
        """The same for each feature, from one common log-bandwidth."""
        return Candidate(self.value, np.full(n_features, self.log_bandwidth[0]))


def shifted(log_bandwidths: Array, shift: float) -> Array:
    """Log-bandwidths for other rows; what is smoothed out stays so."""
    return np.where(log_bandwidths < WIDEST, log_bandwidths + shift, WIDEST)


def best(candidates: Sequence[Candidate]) -> Candidate:
    """The candidate of least value, the first of several."""
    return min(candidates, key=lambda candidate: candidate.value)


def restored(value: float) -> float:
    """The criterion that a search saw as `value`."""
    return float(value) if value < INFINITE else np.inf


def descend(
    objective: Objective, start: Array, tolerance: float, known: Candidate | None = None
) -> Candidate:
    """A local minimum of the criterion near a start, up to a relative tolerance."""
    start = np.clip(start, -WIDEST, WIDEST)
    if objective.criterion == "loo":
        return gauss_newton(objective.linearize, start, tolerance, known=known)

    def function(theta: Array) -> tuple[float, Array]:
        value, gradient, _ = objective.linearize(theta)
        return min(value, INFINITE), gradient

    found = minimize(
        function,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(-WIDEST, WIDEST)] * len(start),
        options={"maxiter": 60, "ftol": tolerance},
    )
    return Candidate(restored(found.fun), found.x)


def gauss_newton(
    linearize: Callable[[Array], tuple[float, Array, Array]],
    start: Array,
    tolerance: float,
    max_iter: int = 60,
    known: Candidate | None = None,
) -> Candidate:
    """Minimise squared errors by damped Gauss-Newton steps (Levenberg and Marquardt).

    What the Gauss-Newton matrix leaves out of the Hessian, which slows the last steps where errors
    stay large, is learned from the gradients by symmetric rank-one updates (in the spirit of
    Dennis, Gay and Welsch, 1981).

    Parameters
    ----------
    linearize : callable
        Returns the value, its gradient and half its Hessian without second derivatives.
    start : ndarray of shape (n_features,)
        Steps stay within plus or minus `WIDEST`.
    tolerance : float
        Stop when a step lowers the value by less than this fraction of it.
    max_iter : int, default=60
    known : Candidate, default=None
        A minimum found already: give up where it is near, or likely to stay the lower one.

    Returns
    -------
    Candidate
        The best point seen.
    """
    bent, damping, longest = bend(start), 1e-2, _LONGEST
    value, gradient, matrix = _bent(linearize, bent)
    rest, is_near = np.zeros_like(matrix), False
    for _ in range(max_iter):
        is_free = free(bent, gradient)
        hessian = matrix + rest if is_near else matrix
        if is_near and not _is_positive(hessian[np.ix_(is_free, is_free)]):
            hessian = matrix
        scale = np.maximum(np.diag(matrix), max(1e-3 * np.diag(matrix).max(), 1e-12))
        step = newton_steps(bent, gradient, hessian + damping * np.diag(scale))
        step = np.clip(step, -longest, longest)
        predicted = -float(gradient @ step + step @ hessian @ step)
        if predicted < 0.0 and damping < 1e8:  # what is left of the step leads up
            damping *= 6.0
            continue
        if predicted <= 0.01 * tolerance * value:
            break
        if known is not None and (
            value - 3.0 * predicted > known.value
            or np.abs(bent - bend(known.log_bandwidth)).max() < 0.1
        ):
            break
        trial = _bent(linearize, bent + step)
        decrease = value - trial[0]
        missed = 0.5 * (trial[1] - gradient) - (trial[2] + rest) @ step
        if abs(missed @ step) > 1e-3 * np.linalg.norm(missed) * np.linalg.norm(step):
            rest = rest + np.outer(missed, missed) / (missed @ step)
        is_near = abs(decrease) < 1e-2 * value
        if decrease > 0.0:
            bent, (value, gradient, matrix) = bent + step, trial
            gain = decrease / max(predicted, 1e-300)
            damping *= 0.2 if gain > 0.75 else 1.0 if gain > 0.25 else 3.0
            damping = max(damping, 1e-10)  # features may be copies of each other
            longest = min(3.0 * longest, _LONGEST)
        else:
            damping *= 6.0
            longest = 0.3 * float(np.abs(step).max())
        if predicted <= tolerance * value or 0.0 < decrease <= tolerance * value or damping > 1e8:
            break
    return Candidate(value, unbend(bent))


def _is_positive(matrix: Array) -> bool:
    return bool((np.linalg.eigvalsh(matrix) > 0.0).all())


def _bent(
    linearize: Callable[[Array], tuple[float, Array, Array]], bent: Array
) -> tuple[float, Array, Array]:
    """A value, its gradient and matrix in the bent variable."""
    log_bandwidth = unbend(bent)
    value, gradient, matrix = linearize(log_bandwidth)
    factor = stretch(log_bandwidth)
    return value, factor * gradient, factor[:, None] * matrix * factor
