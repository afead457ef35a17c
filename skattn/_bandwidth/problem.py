"""Training rows in units in which all problems are alike, and criteria on them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from skattn._bandwidth.batched_fits import Sample
from skattn._bandwidth.objective import Objective, SelectionSettings
from skattn._geometry.scaling import TargetScaling, mean_squares, rounded_center, spread
from skattn._geometry.training_set import TrainingSet, evenly_spaced, number_of_rows
from skattn._geometry.transforms import MOST_DIRECTIONS, principal_axes

__all__ = ["Problem"]

Array = NDArray[np.float64]

# Errors of squared distances, in bandwidths: criteria are precise to about as much.
_TOLERANCE = 1e-11
# Coordinates are clipped here, so that squares of slopes do not overflow.
_FARTHEST = 1e60


@dataclass(frozen=True)
class Problem:
    """Training rows, equal ones as one of their joint weight, and how bandwidths are judged.

    Attributes
    ----------
    training_set : TrainingSet
        The rows.
    settings : SelectionSettings
        Criterion, kernel, degree and resources.
    spread : ndarray of shape (n_features,)
        Units of log-bandwidths; inf for constant features.
    scaling : TargetScaling
        Units of the targets.
    variance : ndarray of shape (n_outputs,)
        Variances of the targets in these units.
    values : ndarray of shape (n_rows, n_varying_outputs)
        Targets that vary, centred and in units of their deviation.
    """

    training_set: TrainingSet
    settings: SelectionSettings
    spread: Array
    scaling: TargetScaling
    variance: Array
    values: Array

    @classmethod
    def of(cls, training_set: TrainingSet, settings: SelectionSettings) -> Problem:
        """Bring rows into units of their spread."""
        training_set = training_set.deduplicated
        scale = spread(training_set.X, training_set.weights)
        scaling, values = TargetScaling.of(training_set.y)
        share = training_set.weights / training_set.weights.max()
        values -= share @ values / share.sum()
        variance = mean_squares(values, training_set.weights)
        varies = variance > 0.0
        values = values[:, varies] / np.sqrt(variance[varies])
        return cls(training_set, settings, scale, scaling, variance, values)

    @property
    def informative(self) -> NDArray[np.bool_]:
        """Features that vary."""
        return np.isfinite(self.spread)

    @property
    def is_constant(self) -> bool:
        """Whether no feature, or no target, varies: every bandwidth predicts the same."""
        return not self.informative.any() or self.values.shape[1] == 0

    def log_bandwidths(self, bandwidths: Array) -> Array:
        """Points of the objective from bandwidths (..., n_features) in units of the features."""
        informative = self.informative
        return np.log(bandwidths[..., informative] / self.spread[informative])

    def bandwidth(self, point: Array) -> Array:
        """Bandwidths (n_features,) in units of the features from a point of the objective."""
        bandwidth = np.full(self.spread.size, np.inf)
        bandwidth[self.informative] = self.spread[self.informative] * np.exp(point)
        return bandwidth

    def restore(self, value: float) -> float:
        """The criterion of a single output in the units of the targets."""
        if len(self.variance) > 1 or self.variance[0] == 0.0:
            return float(value)
        exponent = int(self.scaling.exponent[0])
        if self.settings.criterion.is_logarithm:
            return float(value + np.log(self.variance[0]) + 2 * exponent * np.log(2.0))
        return float(self.scaling.restore_squares(value * self.variance)[0])

    def judging_by(self, settings: SelectionSettings) -> Problem:
        """Problem of these rows under other settings."""
        return replace(self, settings=settings)

    def objective(self, most_rows: int | None = None) -> Objective:
        """The criterion on all rows, or a systematic sample of them."""
        chosen = evenly_spaced(len(self.values), most_rows or len(self.values))
        training_set, informative = self.training_set.take(chosen), self.informative
        X = training_set.X[:, informative]
        with np.errstate(over="ignore"):
            coordinates = (0.5 * X - 0.5 * rounded_center(X)) / self.spread[informative]
            coordinates = np.clip(2.0 * coordinates, -_FARTHEST, _FARTHEST)
        return self._objective(training_set, coordinates, self.values[chosen])

    def _objective(self, training_set: TrainingSet, coordinates: Array, values: Array) -> Objective:
        n = number_of_rows(training_set.weights)
        weights = training_set.weights * (n / training_set.weights.sum())
        queries = evenly_spaced(len(values), self.settings.max_queries)
        excluded = self.settings.criterion.excluded(training_set).take(queries)
        sample = Sample(coordinates, values, weights, queries, excluded)
        resources = replace(self.settings.resources, tolerance=_TOLERANCE)
        settings, axes = replace(self.settings, resources=resources), None
        if settings.degree > 0 and coordinates.shape[1] > MOST_DIRECTIONS:
            axes = principal_axes(coordinates, weights)
        return Objective(sample, settings, n, axes)

    def value_of_the_mean(self) -> float:
        """The criterion, in the units of the targets, of the weighted mean as the only fit.

        NaN where a row has no other to be predicted by.
        """
        if self.values.shape[1] == 0:  # constant targets are fitted exactly
            return self.restore(self.settings.criterion.of_an_exact_fit)
        if self.training_set.leave_one_out().covers(self.training_set.n_keys).any():
            return np.nan
        nothing = np.zeros((len(self.values), 1))
        mean = self.judging_by(replace(self.settings, degree=0))
        objective = mean._objective(self.training_set, nothing, self.values)
        return self.restore(objective.value(np.zeros(1)))
