"""The textbook's recipe: gradient descent on the sum of squared errors, in w itself."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from skattn._learning.ensemble import Learned
from skattn._learning.leave_one_out import LeaveOneOut
from skattn._learning.metrics import DiagonalMetric
from skattn._learning.stages import Session
from skattn._optimize.monitor import Bounds, Monitor, Task
from skattn.variants import LearnableMetric

__all__ = ["descend"]

Array = NDArray[np.float64]


def descend(session: Session) -> Learned:
    """Learn one factor w of all features, or one of each, as they are; targets are as they are."""
    plan, problem = session.plan, session.problem
    n_features, is_scalar = problem.features.shape[1], plan.metric.name == "scalar"
    errors = LeaveOneOut(problem, np.arange(len(problem.weights)), session.device, torch.float64)
    loss: Any = _SquaredErrors(errors, plan.alpha)
    start = np.full(1 if is_scalar else n_features, plan.start)

    def notify(w: Array) -> bool:
        return session.notify(lambda: session.design.component(loss.matrix(w), 0.0))

    unbounded = Bounds(np.full_like(start, -np.inf), np.full_like(start, np.inf))
    task = Task(loss, start, unbounded, Monitor(notify=notify))
    with np.errstate(over="ignore", invalid="ignore"):  # of what diverges
        trained = plan.metric_solver.minimize(task)
    if not np.isfinite([*trained.losses, *trained.parameters]).all():
        raise ValueError(
            f"solver={plan.metric_solver!r} diverged in step {len(trained.losses) - 1}. Use a "
            "smaller learning_rate, or solver='auto'."
        )
    learnable = LearnableMetric(loss.matrix(trained.parameters), n_features, is_scalar)
    score = errors.r_squared(loss.left_out(trained.parameters))
    return Learned.metric(trained, learnable, 0.0, score)


class _SquaredErrors:
    """Sum of squared leave-one-out errors, and `alpha` times the norm of w."""

    def __init__(self, errors: LeaveOneOut, alpha: float) -> None:
        self.errors, self.alpha = errors, alpha
        self.weights, self.n_queries = errors.problem.weights[:, None], len(errors.queries)
        self.metric = DiagonalMetric(errors.problem.features.shape[1])

    def log_factors(self, w: Array) -> Array:
        """Logarithms of the size of w, for each feature: distances do not depend on its sign."""
        with np.errstate(divide="ignore"):
            return np.log(np.abs(np.broadcast_to(w, self.metric.n_features)))

    def matrix(self, w: Array) -> Array:
        """Diagonal matrix of w."""
        return self.metric.matrix(self.log_factors(w))

    def left_out(self, w: Array) -> Array:
        """Leave-one-out errors, (n_queries, n_outputs)."""
        return self.errors.errors(self.metric, self.log_factors(w), 1.0)

    def value(self, w: Array) -> float:
        """The loss alone; inf where it cannot be evaluated."""
        value = (self.weights * self.left_out(w) ** 2).sum() + self.alpha * np.linalg.norm(w)
        return float(value) if np.isfinite(value) else np.inf

    def __call__(self, w: Array) -> tuple[float, Array, Array]:
        """The loss, its gradient, and nothing in place of a Hessian."""
        left, jacobian = self.errors.linearize(self.metric, self.log_factors(w), 1.0)
        by_log = -2.0 * np.einsum("qp,qpj->j", self.weights * left, jacobian[:, :, :-1])
        by_log = by_log if len(w) > 1 else by_log.sum(keepdims=True)
        nonzero, norm = np.where(w == 0.0, 1.0, w), float(np.linalg.norm(w))
        gradient = by_log / nonzero + self.alpha * w / (norm or 1.0)
        return self.value(w), gradient, np.zeros((0, 0))
