"""Losses: leave-one-out errors of a metric, with penalty and derivatives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skattn._learning.leave_one_out import LeaveOneOut
from skattn._learning.metrics import Metric
from skattn._optimize.monitor import Bounds

__all__ = ["EXACT", "MetricLoss", "PenalizedLoss", "Prior"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Added to mean squared errors, in units of the variance: where a fit is exact, the loss is finite.
EXACT = 1e-6


@dataclass(frozen=True)
class Prior:
    """Expected parameters (n_parameters,), the cost of squared deviations, and bounds."""

    center: Array
    precision: Array
    bounds: Bounds


class PenalizedLoss:
    """Logarithm of the mean squared leave-one-out error, and the penalty of a prior.

    The logarithm makes the loss, and what the penalty weighs, independent of the noise. The last
    parameter is the logarithm of the ridge, where there is one. A subclass says how errors depend
    on the others.
    """

    def __init__(self, errors: LeaveOneOut, prior: Prior) -> None:
        self.errors, self.prior, self.n_queries = errors, prior, len(errors.queries)

    def split(self, parameters: Array) -> tuple[Array, float]:
        """Split parameters into the model's and the ridge, which is 1 at degree 0."""
        if self.errors.regressors is None:
            return parameters, 1.0
        return parameters[:-1], float(np.exp(parameters[-1]))

    def left_out(self, parameters: Array) -> Array:
        """Leave-one-out errors, (n_queries, n_outputs); not finite where lines are singular."""
        raise NotImplementedError

    def value(self, parameters: Array) -> float:
        """The loss alone; inf where it cannot be evaluated."""
        squares = (self.left_out(parameters) ** 2).mean(axis=1)
        value = self.penalized(float(self.errors.share @ squares), parameters)
        return value if np.isfinite(value) else np.inf

    def penalized(self, mean_square: float, parameters: Array) -> float:
        """The loss at a mean squared error."""
        deviation = parameters - self.prior.center
        return float(np.log(mean_square + EXACT) + self.prior.precision @ deviation**2)

    def penalty_slope(self, parameters: Array) -> Array:
        """Gradient of the penalty."""
        return 2.0 * self.prior.precision * (parameters - self.prior.center)

    def r_squared(self, parameters: Array) -> float:
        """One less the mean squared leave-one-out error over the variance of all values."""
        return self.errors.r_squared(self.left_out(parameters))


class MetricLoss(PenalizedLoss):
    """The loss of a metric, with derivatives in closed form."""

    def __init__(self, errors: LeaveOneOut, prior: Prior, metric: Metric) -> None:
        super().__init__(errors, prior)
        self.metric = metric

    def at(self, positions: Indices) -> MetricLoss:
        """The loss of some of the queries."""
        return self.of(self.errors.at(positions))

    def of(self, errors: LeaveOneOut) -> MetricLoss:
        """The loss of other queries."""
        return MetricLoss(errors, self.prior, self.metric)

    def left_out(self, parameters: Array) -> Array:
        """Leave-one-out errors, (n_queries, n_outputs)."""
        return self.errors.errors(self.metric, *self.split(parameters))

    def __call__(self, parameters: Array) -> tuple[float, Array, Array]:
        """The loss, its gradient, and its Hessian without second derivatives of predictions."""
        errors, jacobian = self.errors.linearize(self.metric, *self.split(parameters))
        if self.errors.regressors is None:
            jacobian = jacobian[:, :, :-1]
        share = self.errors.share / errors.shape[1]
        mean_square = float(share @ (errors**2).sum(axis=1))
        weighted = (jacobian * np.sqrt(share)[:, None, None]).reshape(-1, jacobian.shape[2])
        gradient = -2.0 * np.einsum("q,qp,qpj->j", share, errors, jacobian) / (mean_square + EXACT)
        hessian = 2.0 * weighted.T @ weighted / (mean_square + EXACT)
        gradient += self.penalty_slope(parameters)
        hessian += 2.0 * np.diag(self.prior.precision)
        return self.penalized(mean_square, parameters), gradient, hessian
