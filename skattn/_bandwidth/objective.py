"""A criterion as a function of log-bandwidths, at many of them at once."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import numpy as np
from numpy.typing import NDArray

from skattn._attention import Attention, Products, Resources
from skattn._bandwidth.batched_fits import BatchedFits, Sample
from skattn._bandwidth.criteria import Criterion
from skattn._bandwidth.saturating_log import desaturate, stretch
from skattn._geometry.scaling import mean_squares
from skattn._geometry.training_set import evenly_spaced
from skattn._geometry.transforms import Scaler, axis_bandwidths
from skattn._smoother import (
    BandwidthSlopes,
    LocalLinear,
    LocalMean,
    LocalRegression,
    bandwidth_slopes,
    predict,
)
from skattn.kernels import Kernel

__all__ = ["Objective", "SelectionSettings"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class SelectionSettings:
    """How bandwidths are judged.

    Attributes
    ----------
    criterion : Criterion
        An entry of `CRITERIA`.
    kernel : Kernel
        Kernel of the fits.
    max_queries : int
        Number of rows at most at which the criterion is evaluated, against all others.
    resources : Resources
        Threads, memory, precision and engine.
    degree : {0, 1}, default=0
        Degree of the fits.
    """

    criterion: Criterion
    kernel: Kernel
    max_queries: int
    resources: Resources
    degree: int = 0


@dataclass(frozen=True)
class Objective:
    """A criterion on given rows, at log-bandwidths in units of each feature's spread.

    Attributes
    ----------
    sample : Sample
        Rows that are judged, and the keys that predict them.
    settings : SelectionSettings
        Criterion, kernel, degree and resources.
    n : float
        Number of rows, counting multiplicities.
    axes : ndarray of shape (n_features, n_directions) or None
        Principal axes that local lines are fitted in, where there are too many features.
    batched : BatchedFits or None
        Fits under many bandwidths at once, where they will do and there is memory.
    """

    sample: Sample
    settings: SelectionSettings
    n: float
    axes: Array | None = None
    batched: BatchedFits | None = None

    @property
    def criterion(self) -> Criterion:
        """Criterion that the rows are judged by."""
        return self.settings.criterion

    @property
    def n_keys(self) -> int:
        """Number of keys."""
        return len(self.sample.coordinates)

    @property
    def n_features(self) -> int:
        """Number of log-bandwidths."""
        return self.sample.coordinates.shape[1]

    def shrinkage(self, other: Objective) -> float:
        """Difference of log-bandwidths of another number of keys: they go as n**(-1 / (d + 4))."""
        return float(np.log(self.n_keys / other.n_keys) / (self.n_features + 4))

    def at_most(self, n_queries: int) -> Objective:
        """Criterion on some of the rows that are judged, predicted by all keys."""
        some = evenly_spaced(len(self.sample.queries), n_queries)
        return replace(self, sample=self.sample.take(some), batched=None)

    def approximate(self) -> Objective:
        """Criterion to about six digits, in less time."""
        kernel, degree = self.settings.kernel, self.settings.degree
        is_able = self.axes is None and BatchedFits.can_hold(self.sample, kernel, degree)
        resources = replace(self.settings.resources, dtype=np.dtype(np.float32))
        return replace(
            self,
            settings=replace(self.settings, resources=resources),
            batched=BatchedFits(self.sample, kernel, degree) if is_able else None,
        )

    def values(self, points: Array) -> Array:
        """The criterion at points (n_points, n_features); inf smooths a feature out."""
        if self.batched is None:
            return np.array([self.value_of(self.regression(point)) for point in points])
        return self.judge(*self.batched.predict(points))

    def value(self, point: Array) -> float:
        """The criterion at one point."""
        return float(self.values(point[None])[0])

    def value_of(self, regression: LocalRegression) -> float:
        """The criterion of a regression of the judged rows."""
        prediction, leverage, _ = predict(regression, self.settings.resources)
        return float(self.judge(prediction, leverage))

    def judge(self, predictions: Array, leverages: Array) -> Array:
        """The criterion of predictions (..., n_queries, n_outputs) and leverages."""
        weights = self.sample.weights[self.sample.queries]
        squares = mean_squares(self.sample.values[self.sample.queries] - predictions, weights)
        trace = self.n / weights.sum() * leverages.sum(axis=-1)
        return self.criterion.value(squares, trace, self.n)

    def regression(self, point: Array) -> LocalRegression:
        """The regression of the judged rows at one point."""
        sample, bandwidth = self.sample, np.exp(point)
        scaled = sample.coordinates / bandwidth
        is_out = np.isposinf(point)
        if is_out.any() and not is_out.all():  # as in a Scaler, these have no coordinate
            scaled = scaled[:, ~is_out]
        regressors = self._regressors(bandwidth)
        rows = sample.queries
        log_weights = np.log(sample.weights)
        attention = Attention(
            scaled[rows], scaled, self.settings.kernel, log_weights, sample.excluded
        )
        products = Products(sample.values, regressors)
        if regressors is None:
            return LocalRegression(attention, products, LocalMean(), None, _NO_FEATURES)
        return LocalRegression(attention, products, LocalLinear(), regressors[rows], _NO_FEATURES)

    def _regressors(self, bandwidth: Array) -> Array | None:
        """Regressors of local lines; see `skattn._geometry.transforms.LocalBasis`."""
        if self.settings.degree == 0:
            return None
        if self.axes is None:
            return self.sample.coordinates / np.minimum(bandwidth, 1.0)
        return self.sample.coordinates @ (self.axes / axis_bandwidths(self.axes, bandwidth))

    def linearize(self, points: Array) -> tuple[Array, Array, Array]:
        """The criterion, its gradient, and an approximate Hessian.

        Parameters
        ----------
        points : ndarray of shape (n_points, n_features)
            Finite log-bandwidths.

        Returns
        -------
        values : ndarray of shape (n_points,)
        gradients : ndarray of shape (n_points, n_features)
        matrices : ndarray of shape (n_points, n_features, n_features)
            Hessians of the mean squares without second derivatives of the predictions, weighted by
            the derivatives of the criterion in the mean squares.
        """
        found = self._slopes(points)
        weights = self.sample.weights[self.sample.queries]
        share = weights / weights.sum()
        errors = self.sample.values[self.sample.queries] - found.prediction
        squares = mean_squares(errors, weights)
        unit = self.n / weights.sum()
        trace = unit * found.leverage.sum(axis=1)
        by_squares, by_trace = self.criterion.slopes(squares, trace, self.n)
        jacobian = found.prediction_slope.reshape(len(points), -1, points.shape[1])
        jacobian = jacobian.transpose(0, 2, 1)
        each = (share[:, None] * by_squares[:, None, :]).reshape(len(points), 1, -1)
        weighted = jacobian * (2.0 * each)
        gradients = -(weighted @ errors.reshape(len(points), -1, 1))[:, :, 0]
        gradients += unit * by_trace[:, None] * found.leverage_slope.sum(axis=1)
        values = self.criterion.value(squares, trace, self.n)
        return values, gradients, weighted @ jacobian.transpose(0, 2, 1)

    def _slopes(self, points: Array) -> BandwidthSlopes:
        """Predictions, leverages and their slopes; the first axis are the points."""
        if self.batched is not None:
            return self.batched.slopes(points)
        resources = self.settings.resources
        parts = [bandwidth_slopes(self.regression(point), resources) for point in points]
        names = [field.name for field in fields(BandwidthSlopes)]
        return BandwidthSlopes(*(np.stack([getattr(x, name) for x in parts]) for name in names))

    def linearize_saturated(self, saturated: Array) -> tuple[Array, Array, Array]:
        """`linearize` as a function of the saturating variable."""
        points = desaturate(saturated)
        values, gradients, matrices = self.linearize(points)
        factors = stretch(points)
        return values, factors * gradients, factors[:, :, None] * matrices * factors[:, None]


# Regressions are judged, not differentiated: no slope is taken back to features.
_NO_FEATURES = Scaler(np.empty(0, dtype=np.intp), np.empty(0), np.empty(0))
