"""Damped Gauss-Newton steps (Levenberg and Marquardt)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skattn._optimize.monitor import Bounds, Task, Trained, is_finite

__all__ = ["gauss_newton"]

Array = NDArray[np.float64]

# Changes of the loss so small are those of the last steps.
_NEAR = 0.05
# Longest step in any parameter.
_LONGEST = 1.5


def gauss_newton(task: Task, tolerance: float, max_iter: int) -> Trained:
    """Minimise by damped Gauss-Newton steps within bounds, until one lowers the loss by less.

    What the Gauss-Newton matrix leaves out of the Hessian is learned from the gradients, and used
    from where steps change the loss little (Dennis, Gay and Welsch, 1981).
    """
    loss, start, bounds, monitor, _ = task
    at, damping, longest = bounds.clip(start), 1e-2, _LONGEST
    value, gradient, hessian = first = loss(at)
    rest, is_near = np.zeros_like(hessian), False
    losses = [value]
    stopped = monitor.stops(at)
    if not is_finite(first):
        return monitor.trained(at, losses, converged=False)
    while not stopped and len(losses) <= max_iter:
        full = _with_rest(hessian, rest) if is_near else hessian
        step = _step(at, gradient, full, damping, longest, bounds)
        predicted = float(-(gradient @ step + 0.5 * step @ full @ step))
        if predicted <= tolerance:
            stopped = True
            break
        trial = loss(at + step)
        decrease, longest = value - trial[0], _LONGEST
        is_near = abs(decrease) < _NEAR
        if decrease > 0.0 and is_finite(trial):
            rest = _learned_rest(rest, trial[1] - gradient, trial[2] @ step, step)
            at, (value, gradient, hessian) = at + step, trial
            losses.append(value)
            gain = decrease / max(predicted, 1e-300)
            damping = max(damping * (0.2 if gain > 0.75 else 1.0 if gain > 0.25 else 3.0), 1e-8)
            longest = _LONGEST if gain > 0.25 else max(0.5 * float(np.abs(step).max()), 1e-3)
            stopped = monitor.stops(at) or decrease <= tolerance
        else:
            damping *= 5.0
            longest = 0.3 * float(np.abs(step).max())
        stopped = stopped or damping > 1e8
    return monitor.trained(at, losses, converged=stopped)


def _with_rest(hessian: Array, rest: Array) -> Array:
    """The sum of both, where that is positive definite."""
    full = hessian + rest
    return full if np.linalg.eigvalsh(full)[0] > 0.0 else hessian


def _learned_rest(rest: Array, change: Array, explained: Array, step: Array) -> Array:
    """Part of the Hessian that a Gauss-Newton matrix misses, after a step.

    The rest is sized first: far from a minimum it belongs to other places. Then it is changed as
    little as explains what the matrix leaves unexplained of the change of the gradient.
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
    at: Array, gradient: Array, hessian: Array, damping: float, longest: float, bounds: Bounds
) -> Array:
    """A damped Newton step of the parameters that are not held by their bounds."""
    free = ((at > bounds.lower) | (gradient < 0.0)) & ((at < bounds.upper) | (gradient > 0.0))
    size = np.diag(hessian)
    scale = np.maximum(size, 1e-4 * size.max() if size.max() > 0.0 else 1.0)
    inner = (hessian + damping * np.diag(scale))[np.ix_(free, free)]
    step = np.zeros_like(at)
    step[free] = np.clip(np.linalg.solve(inner, -gradient[free]), -longest, longest)
    return bounds.clip(at + step) - at
