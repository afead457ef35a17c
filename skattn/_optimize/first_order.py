"""First-order methods: L-BFGS, Adam, and plain gradient descent."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import OptimizeResult, minimize

from skattn._optimize.monitor import Task, Trained, is_finite

__all__ = ["adam", "gradient_descent", "lbfgs"]

Array = NDArray[np.float64]

# By so much a loss that cannot be evaluated counts as higher than the last one.
_BAD = 10.0
# Gradients of batches are shortened to this.
_LARGEST_GRADIENT = 1.0


def lbfgs(task: Task, tolerance: float, max_iter: int) -> Trained:
    """Minimise by L-BFGS steps within bounds, SciPy's.

    They have converged when one lowers the loss by less than the tolerance, relative to the loss
    where that is above 1.
    """
    loss, start, bounds, monitor, _ = task
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


def adam(
    task: Task,
    tolerance: float,
    learning_rate: float,
    batch_size: int,
    max_iter: int,
    patience: int,
) -> Trained:
    """Minimise by steps of Adam (Kingma and Ba, 2015) within bounds, a batch of queries at a time.

    Training has converged after `patience` epochs that lower the loss by less than the tolerance.
    """
    loss, start, bounds, monitor, seed = task
    rng, at = np.random.default_rng(seed), bounds.clip(start)
    first, second, n_steps = np.zeros_like(at), np.zeros_like(at), 0
    losses, best = [loss.value(at)], at
    stopped = monitor.stops(at)
    while not stopped and len(losses) <= max_iter:
        order = rng.permutation(loss.n_queries)
        for begin in range(0, loss.n_queries, batch_size):
            _, gradient, _ = found = loss.at(np.sort(order[begin : begin + batch_size]))(at)
            if not is_finite(found):
                continue
            gradient /= max(1.0, float(np.linalg.norm(gradient)) / _LARGEST_GRADIENT)
            n_steps += 1
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient**2
            step = first / (1.0 - 0.9**n_steps) / np.sqrt(second / (1.0 - 0.999**n_steps) + 1e-16)
            at = bounds.clip(at - learning_rate * step)
        losses.append(loss.value(at))
        best = at if losses[-1] <= min(losses) else best
        earlier, recent = losses[:-patience], losses[-patience:]
        settled = bool(earlier) and min(recent) > min(earlier) - tolerance
        stopped = monitor.stops(at) or settled
    return monitor.trained(best, losses, converged=stopped)


def gradient_descent(task: Task, learning_rate: float, max_iter: int) -> Trained:
    """Take plain gradient steps, and keep the last one, whatever the loss there.

    Neither the loss nor the parameters are finite where they diverge.
    """
    loss, at, _, monitor, _ = task
    losses = [loss.value(at)]
    stopped = monitor.stops(at)
    while not stopped and len(losses) <= max_iter and np.isfinite(losses[-1]):
        at = at - learning_rate * loss(at)[1]
        losses.append(loss.value(at))
        stopped = monitor.stops(at)
    return monitor.trained(at, losses, converged=True)
