"""Selecting a bandwidth for a table of training rows."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from skattn._attention import Resources, single_threaded_blas
from skattn._bandwidth._criteria import mean_squares
from skattn._bandwidth._descent import Candidate
from skattn._bandwidth._objective import Objective
from skattn._bandwidth._scout import can_scout
from skattn._bandwidth._search import search_common, search_each
from skattn._geometry.scaling import rounded_center, spread
from skattn._geometry.training_set import TrainingSet as Table
from skattn._geometry.training_set import are_multiplicities, evenly_spaced
from skattn._geometry.training_set import number_of_rows as effective_rows
from skattn._geometry.transforms import MOST_DIRECTIONS, principal_axes
from skattn.kernels import Kernel

__all__ = ["Criterion", "criterion_curve", "select_bandwidth", "share_of_copies"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Rows on which to descend from many starts, and on which to choose among the best of them; the
# common bandwidth is sought on the last number of rows.
_SCOUTS, _PILOTS = 100, (250, 1000)
# Errors of squared distances, in bandwidths: criteria are precise to about as much.
_TOLERANCE = 1e-11


@dataclass(frozen=True)
class Criterion:
    """What bandwidths are judged by.

    Attributes
    ----------
    name : {"loo", "gcv", "aicc"}
    kernel : Kernel
    max_queries : int
        Number of rows at most at which the criterion is evaluated, against all others.
    resources : Resources
    degree : {0, 1}, default=0
        Of the fits that are judged.
    """

    name: str
    kernel: Kernel
    max_queries: int
    resources: Resources
    degree: int = 0


def select_bandwidth(
    table: Table, criterion: Criterion, *, anisotropic: bool
) -> tuple[Array, float]:
    """The bandwidths of least criterion, and its value there.

    Parameters
    ----------
    table : Table
        The training rows. At least one key is left for each row when its own are left out,
        unless all features are constant.
    criterion : Criterion
    anisotropic : bool
        Whether every feature has a bandwidth of its own, or all a common multiple of their
        spreads.

    Returns
    -------
    bandwidth : ndarray of shape (n_features,)
        In the units of the features; inf for those that are smoothed out.
    value : float
        Of the criterion. For one output in the units of its square ("loo", "gcv"); for several,
        each is divided by its variance before, and averaged.
    """
    table = table.deduplicated
    scale = spread(table.X, table.weights)
    informative = np.isfinite(scale)
    bandwidth = np.full(scale.size, np.inf)
    units = _Units.of(table, criterion.name)
    if not informative.any() or units.values.shape[1] == 0:  # nothing to tell apart, or to tell
        return bandwidth, units.restore(_value_of_the_mean(table, criterion, units))
    some = partial(_objective, table, criterion, scale, units)
    objective = some(len(table.X))
    with single_threaded_blas():  # once: limiting it takes as long as a small evaluation
        if anisotropic and informative.sum() > 1:
            pilots = [some(size) for size in _PILOTS if 2 * size <= len(table.X)]
            loo = replace(criterion, name="loo")
            scouts = _objective(table, loo, scale, units, _number_of_scouts(objective))
            seeks = criterion.degree == 0 or criterion.name != "loo" or not can_scout(scouts)
            common = _common(some(_PILOTS[0]), objective) if seeks else None
            found = search_each(objective, scouts, pilots, common)
        else:
            found = search_common(objective, some(_PILOTS[-1]))
    bandwidth[informative] = scale[informative] * np.exp(found.log_bandwidth)
    return bandwidth, units.restore(found.value)


def _common(pilot: Objective, objective: Objective) -> Candidate:
    """A good common bandwidth, as few rows see it."""
    few = pilot.at_most(_SCOUTS if pilot.degree == 0 else _SCOUTS // 2)
    found = search_common(pilot, few, exact=False)
    return found.moved(pilot.shrinkage(objective))


def _number_of_scouts(objective: Objective) -> int:
    """Rows on which to descend from many starts: fewer where there is enough to choose by later."""
    n, d = objective.coordinates.shape
    wanted = _SCOUTS if n <= _PILOTS[0] or d > 3 else 64
    if objective.degree > 0:  # whose minima depend more on single rows
        return int(n if n <= 3 * _SCOUTS and d <= 5 else min(2 * _SCOUTS, n))
    return int(min(wanted, max(30, np.sqrt(2e6 / d))))


def criterion_curve(table: Table, criterion: Criterion, bandwidths: Array) -> Array:
    """The criterion at each of some bandwidths.

    Parameters
    ----------
    table : Table
    criterion : Criterion
    bandwidths : ndarray of shape (n_bandwidths, n_features)
        In the units of the features, inf allowed.

    Returns
    -------
    ndarray of shape (n_bandwidths,)
        In the units of `select_bandwidth`.
    """
    task = Task.of(table, criterion)
    if task.objective is None:
        return np.full(len(bandwidths), task.constant)
    scale = spread(task.table.X, task.table.weights)
    informative = np.isfinite(scale)
    logs = np.log(bandwidths[:, informative] / scale[informative])
    return np.array([task.units.restore(task.objective.value(log)) for log in logs])


def share_of_copies(table: Table) -> float:
    """The share of the weight in rows that occur more than once, features and targets alike."""
    merged = table.deduplicated
    if are_multiplicities(table.weights):
        copied = merged.weights > 1.0
    else:
        copied = np.diff(np.append(np.flatnonzero(table.first_of_equals()), table.n_keys)) > 1
    return float(merged.weights[copied].sum() / merged.weights.sum())


@dataclass(frozen=True)
class _Units:
    """Targets in units of their spread, and how to restore a criterion's."""

    values: Array
    exponent: int
    variance: float
    is_logarithm: bool

    @classmethod
    def of(cls, table: Table, name: str) -> _Units:
        exponent = np.frexp(np.abs(table.y).max(axis=0))[1]
        scaled = np.ldexp(table.y, -exponent)
        centered = scaled - rounded_center(scaled)
        centered -= table.weights @ centered / table.weights.sum()
        variance = mean_squares(centered, table.weights)
        values = centered[:, variance > 0.0] / np.sqrt(variance[variance > 0.0])
        single = len(variance) == 1 and variance[0] > 0.0
        unit = float(variance[0]) if single else 1.0
        return cls(values, int(exponent[0]) if single else 0, unit, name == "aicc")

    def restore(self, value: float) -> float:
        """The criterion of a single output in the units of the targets."""
        if self.is_logarithm:
            return value + np.log(self.variance) + 2 * self.exponent * np.log(2.0)
        with np.errstate(over="ignore"):
            return float(np.ldexp(value * self.variance, 2 * self.exponent))


@dataclass(frozen=True)
class Task:
    """What there is to judge: all rows, merged, by a criterion.

    Attributes
    ----------
    table : Table
    criterion : Criterion
    units : _Units
    objective : Objective or None
        None where no feature or target varies.
    """

    table: Table
    criterion: Criterion
    units: _Units
    objective: Objective | None

    @classmethod
    def of(cls, table: Table, criterion: Criterion) -> Task:
        """Merge the rows, and bring them into units of their spread."""
        table = table.deduplicated
        units = _Units.of(table, criterion.name)
        scale = spread(table.X, table.weights)
        if not np.isfinite(scale).any() or units.values.shape[1] == 0:
            return cls(table, criterion, units, None)
        return cls(
            table, criterion, units, _objective(table, criterion, scale, units, len(table.X))
        )

    @property
    def constant(self) -> float:
        """The criterion where nothing varies: that of the mean."""
        return self.units.restore(_value_of_the_mean(self.table, self.criterion, self.units))


def _objective(
    table: Table, criterion: Criterion, scale: Array, units: _Units, most_rows: int
) -> Objective:
    """The criterion on all rows, or a systematic sample of them."""
    chosen = evenly_spaced(len(table.X), most_rows)
    values, table = units.values[chosen], table.take(chosen)
    informative = np.isfinite(scale)
    X = table.X[:, informative]
    with np.errstate(over="ignore"):
        coordinates = 2.0 * ((0.5 * X - 0.5 * rounded_center(X)) / scale[informative])
    coordinates = np.clip(coordinates, -1e60, 1e60)  # so that squares of slopes do not overflow
    n = effective_rows(table.weights)
    weights = table.weights * (n / table.weights.sum())
    many = criterion.degree > 0 and coordinates.shape[1] > MOST_DIRECTIONS
    return Objective(
        coordinates,
        values,
        weights,
        table.leave_one_out() if criterion.name == "loo" else table.nothing(),
        criterion.name,
        criterion.kernel,
        n,
        evenly_spaced(len(coordinates), criterion.max_queries),
        replace(criterion.resources, tolerance=_TOLERANCE),
        criterion.degree,
        principal_axes(coordinates, weights) if many else None,
    )


def _value_of_the_mean(table: Table, criterion: Criterion, units: _Units) -> float:
    """The criterion of the weighted mean as the only possible fit; NaN where none can be left."""
    if units.values.shape[1] == 0:  # constant targets are fitted exactly
        return -np.inf if criterion.name == "aicc" else 0.0
    own = table.leave_one_out()
    if own.covers(table.n_keys).any():
        return np.nan
    constant = np.zeros((len(table.X), 1))
    return _objective(
        Table(constant, table.y, table.weights, table.groups, table.order, table.n_keys),
        criterion,
        np.ones(1),
        units,
        len(constant),
    ).value(np.zeros(1))
