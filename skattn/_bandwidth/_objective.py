"""The criterion as a function of log-bandwidths, with its slopes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from skattn._attention import Attention, Products, Resources
from skattn._bandwidth._criteria import EXACT, aicc, gcv, mean_squares
from skattn._geometry.training_set import Exclusion as Own, evenly_spaced
from skattn._geometry.transforms import axis_bandwidths
from skattn.kernels import Kernel
from skattn._smoother import LocalLinear, LocalMean, LocalRegression, predict, bandwidth_slopes

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Objective:
    """A criterion on given rows, at bandwidths in units of each feature's spread.

    Attributes
    ----------
    coordinates : ndarray of shape (n_rows, n_features)
        Features, centred and in units of their spread.
    values : ndarray of shape (n_rows, n_outputs)
        Targets, centred and in units of their spread.
    weights : ndarray of shape (n_rows,)
        Positive sample weights; importances have mean 1.
    own : Own
        What is left out for each row ("loo"), or each row itself with all its weight.
    criterion : {"loo", "gcv", "aicc"}
    kernel : Kernel
    n : float
        Number of rows, counting multiplicities.
    rows : ndarray of shape (n_queries,)
        The rows the criterion is evaluated at, against all others.
    resources : Resources
    degree : {0, 1}
    axes : ndarray of shape (n_features, n_directions) or None
        Principal axes that local lines are fitted in, where there are too many features.
    has_common : bool
        Whether there is one log-bandwidth for all features.
    """

    coordinates: Array
    values: Array
    weights: Array
    own: Own
    criterion: str
    kernel: Kernel
    n: float
    rows: Indices
    resources: Resources
    degree: int = 0
    axes: Array | None = None
    has_common: bool = False

    def is_like(self, other: Objective) -> bool:
        """Whether both are about as many rows."""
        return len(self.coordinates) == len(other.coordinates)

    def shrinkage(self, other: Objective) -> float:
        """What takes log-bandwidths of this objective to those of one on other rows.

        Bandwidths shrink as n**(-1 / (d + 4)).
        """
        ratio = len(self.coordinates) / len(other.coordinates)
        return float(np.log(ratio) / (self.coordinates.shape[1] + 4))

    def in_common(self) -> Objective:
        """The same criterion as a function of one log-bandwidth for all features."""
        return replace(self, has_common=True)

    def at_most(self, n_queries: int) -> Objective:
        """The same criterion, evaluated at fewer of the rows."""
        return replace(self, rows=self.rows[evenly_spaced(len(self.rows), n_queries)])

    def single(self) -> Objective:
        """The same criterion, single precision allowed."""
        return replace(self, resources=replace(self.resources, dtype=np.dtype(np.float32)))

    def value(self, log_bandwidth: Array) -> float:
        """The criterion; inf smooths a feature out."""
        if np.isposinf(log_bandwidth).all() and self.degree == 0:
            return self._value_of_mean()
        return self.value_of(self.at(log_bandwidth))

    def value_of(self, request) -> float:
        """The criterion of what a request of the rows returns."""
        mean, leverage, _ = predict(request, self.resources)
        return float(self.judge(mean, leverage))

    def _value_of_mean(self) -> float:
        """The criterion where nothing is told apart, and every key has its sample weight."""
        own = self.own.take(self.rows)
        columns = self.weights[:, None] * np.column_stack([np.ones(len(self.values)), self.values])
        before = np.vstack([np.zeros(columns.shape[1]), np.cumsum(columns, axis=0)])
        after = np.vstack([np.cumsum(columns[::-1], axis=0)[::-1], np.zeros(columns.shape[1])])
        kept = own.retained[:, None] * (before[own.stop] - before[own.start])
        sums = before[own.start] + after[own.stop] + kept
        return float(self.judge(sums[:, 1:] / sums[:, :1], kept[:, 0] / sums[:, 0]))

    def at(self, log_bandwidth: Array) -> LocalRegression:
        """What the rows ask for at log-bandwidths, their own left out; inf smooths out."""
        scaled = self.coordinates / np.exp(log_bandwidth)
        is_out = np.isposinf(log_bandwidth)
        if is_out.any() and not is_out.all():  # as in a Frame, these have no coordinate
            scaled = scaled[:, ~is_out]
        log_weights = np.log(self.weights)
        line = self._line(log_bandwidth)
        attention = Attention(scaled, scaled, self.kernel, log_weights, self.own)
        fit = LocalMean() if line is None else LocalLinear()
        return LocalRegression(attention, Products(self.values, line), fit, line, None).take(self.rows)

    def _line(self, log_bandwidth: Array):
        """Coordinates of local lines; see `skattn._geometry.Directions`."""
        if self.degree == 0:
            return None
        if self.axes is None:
            line = self.coordinates / np.exp(np.minimum(log_bandwidth, 0.0))
        else:
            scales = axis_bandwidths(self.axes, np.exp(log_bandwidth))
            line = self.coordinates @ (self.axes / scales)
        return line

    def judge(self, means: Array, own_weights: Array) -> Array:
        """The criterion of means (..., n_queries, n_outputs) and own weights (..., n_queries)."""
        weights = self.weights[self.rows]
        squares = mean_squares(self.values[self.rows] - means, weights)
        if self.criterion == "loo":
            return squares.mean(axis=-1)
        trace = self.n * own_weights.sum(axis=-1) / weights.sum()
        return (gcv if self.criterion == "gcv" else aicc)(squares, trace, self.n)

    def linearize(self, log_bandwidth: Array) -> tuple[float, Array, Array]:
        """The criterion, its gradient and the Gauss-Newton matrix of the squared errors.

        Parameters
        ----------
        log_bandwidth : ndarray of shape (n_features,)

        Returns
        -------
        value : float
        gradient : ndarray of shape (n_features,)
        matrix : ndarray of shape (n_features, n_features)
            Half the Hessian of the mean squared error, without second derivatives of the means.
        """
        sloped = bandwidth_slopes(self.at(log_bandwidth), self.resources)
        errors = self.values[self.rows] - sloped.prediction
        weights = self.weights[self.rows]
        share = weights / weights.sum()
        slopes, own_slope = sloped.prediction_slope, sloped.leverage_slope
        if self.has_common:
            slopes = slopes.sum(axis=2, keepdims=True)
            own_slope = own_slope.sum(axis=1, keepdims=True)
        squares_slope = -2.0 * np.einsum("q,qp,qpj->pj", share, errors, slopes)
        weighted = slopes * np.sqrt(share / errors.shape[1])[:, None, None]
        flat = weighted.reshape(-1, slopes.shape[2])
        value = float(self.judge(sloped.prediction, sloped.leverage))
        if self.criterion == "loo":
            return value, squares_slope.mean(axis=0), flat.T @ flat
        squares = mean_squares(errors, weights)
        trace = self.n * sloped.leverage.sum() / weights.sum()
        trace_slope = self.n * own_slope.sum(axis=0) / weights.sum()
        gradient = _penalized_slope(self, squares, squares_slope, trace, trace_slope)
        return value, gradient, flat.T @ flat


def _penalized_slope(
    objective: Objective, squares: Array, squares_slope: Array, trace: float, trace_slope: Array
) -> Array:
    n = objective.n
    room = 1.0 - (trace if objective.criterion == "gcv" else trace + 2.0) / n
    if room <= 1e-12:  # the criterion is infinite
        return np.zeros_like(trace_slope)
    if objective.criterion == "gcv":
        fit = squares_slope.mean(axis=0) / room**2
        return fit + 2.0 * squares.mean() / room**3 * trace_slope / n
    fit = (squares_slope / np.maximum(squares, EXACT)[:, None]).mean(axis=0)
    return fit + (1.0 / room + (1.0 + trace / n) / room**2) * trace_slope / n
