"""Geometry: how rows become keys.

Rows are put in a canonical order, centred, and divided by the bandwidth. Everything below the
estimators works with the resulting *coordinates*, in which a kernel sees plain Euclidean
distances.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "MOST_DIRECTIONS",
    "Directions",
    "Frame",
    "Own",
    "Table",
    "Unit",
    "are_multiplicities",
    "axis_bandwidths",
    "evenly_spaced",
    "principal_axes",
    "rounded_center",
]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Local lines in more directions would take moments of all their pairs.
MOST_DIRECTIONS = 30
# Coordinates beyond this many bandwidths are pulled back along their ray, so that squared
# distances stay finite. Only along the ray: what decides among keys that tie there is lost.
_FARTHEST = 1e100
_LARGEST = np.finfo(np.float64).max


def rounded_center(columns: Array) -> Array:
    """A centre near each column's median that subtracts without rounding from data on a grid.

    The median, which one huge value cannot move away from the others, is rounded to a multiple of
    a power of two that is at most 1/64 of the half range. Subtracting it from integers, timestamps
    or dyadic fractions is exact, so that differences of centred rows are the differences of the
    rows. A constant column is its own centre.

    Parameters
    ----------
    columns : ndarray of shape (n_rows, n_columns)
        Finite data, one row at least.

    Returns
    -------
    ndarray of shape (n_columns,)
        The centres, within the range of each column.
    """
    low, high = columns.min(axis=0), columns.max(axis=0)
    half_range = 0.5 * high - 0.5 * low  # no overflow, where high - low may
    spread = np.where(half_range > 0.0, half_range, 1.0)
    ordered = np.partition(columns, len(columns) // 2, axis=0)
    quantum = np.ldexp(1.0, np.frexp(spread)[1] - 7)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        center = np.round(ordered[len(columns) // 2] / quantum) * quantum
    usable = (half_range > 0.0) & np.isfinite(center)
    return np.clip(np.where(usable, center, low), low, high)


def evenly_spaced(n: int, most: int) -> Indices:
    """Positions of at most so many of n rows, evenly spaced, both ends included."""
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(np.intp)


def are_multiplicities(weights: Array) -> bool:
    """Whether all weights are whole numbers, and so count repetitions of their rows.

    Numbers too large to have a fraction count nothing.
    """
    return bool(np.all(weights == np.floor(weights)) and weights.max() < 2.0**53)


@dataclass(frozen=True)
class Unit:
    """Values as ``(center + unit value) * 2**exponent``.

    Sums of unit values neither overflow nor lose digits to what the values have in common.

    Attributes
    ----------
    center, low, high : ndarray of shape (n_outputs,)
        Centre and range, in units of ``2**exponent``.
    exponent : ndarray of shape (n_outputs,)
    """

    center: Array
    low: Array
    high: Array
    exponent: NDArray[np.intc]

    @classmethod
    def of(cls, values: Array) -> tuple[Unit, Array]:
        """The unit of some values, and the values in it."""
        exponent = np.frexp(np.abs(values).max(axis=0))[1]
        scaled = np.ldexp(values, -exponent)
        center = rounded_center(scaled)
        return cls(center, scaled.min(axis=0), scaled.max(axis=0), exponent), scaled - center

    def restore(self, mean: Array, *, is_mean: bool = True) -> Array:
        """Unit values as values; weighted means stay within the range of what they are means of."""
        values = self.center + mean
        if is_mean:
            return np.ldexp(np.clip(values, self.low, self.high), self.exponent)
        with np.errstate(over="ignore"):
            restored = np.ldexp(values, self.exponent)
        return np.clip(restored, -_LARGEST, _LARGEST)

    def scale(self, differences: Array) -> Array:
        """Differences of unit values as differences of the values."""
        with np.errstate(over="ignore"):
            return np.clip(np.ldexp(differences, self.exponent), -_LARGEST, _LARGEST)


@dataclass(frozen=True)
class Frame:
    """The map from features to coordinates: subtract `center`, divide by `bandwidth`.

    Attributes
    ----------
    features : ndarray of shape (n_coordinates,)
        Positions of the features that have a coordinate: those of finite bandwidth, or the first
        one if there is none. The others are smoothed out.
    center : ndarray of shape (n_coordinates,)
        Subtracted in float64, before any product is formed.
    bandwidth : ndarray of shape (n_coordinates,)
        Positive.
    """

    features: Indices
    center: Array
    bandwidth: Array

    @classmethod
    def around(cls, rows: Array, bandwidth: Array) -> Frame:
        """The frame of training rows; a bandwidth below 1e-90 of their spread acts as that."""
        finite = np.flatnonzero(np.isfinite(bandwidth))
        features = finite if finite.size else np.array([0])
        rows, bandwidth = rows[:, features], bandwidth[features]
        center = rounded_center(rows)
        # of most rows: the others may be pulled back, as far queries are
        extent = np.quantile(np.abs(0.5 * rows - 0.5 * center), 0.9, axis=0, method="lower")
        least = extent / (0.5 * _FARTHEST) * 1e10
        return cls(features, center, np.maximum(bandwidth, least))

    def coordinates(self, rows: Array) -> Array:
        """Coordinates of rows, at most 1e100 in absolute value.

        Parameters
        ----------
        rows : ndarray of shape (n_rows, n_features)
            Finite.

        Returns
        -------
        ndarray of shape (n_rows, n_coordinates)
            C-contiguous float64. A row farther out than the limit keeps its direction.
        """
        rows = np.asarray(rows[:, self.features], dtype=np.float64)
        with np.errstate(over="ignore", invalid="ignore"):
            coordinates = np.ascontiguousarray((rows - self.center) / self.bandwidth)
        beyond = ~(np.abs(coordinates) <= _FARTHEST).all(axis=1)
        if beyond.any():
            halves = 0.5 * rows[beyond] - 0.5 * self.center
            coordinates[beyond] = _pull_back(halves, self.bandwidth)
        return coordinates

    def gradient(self, slopes: Array, rows: Array) -> tuple[Indices, Array]:
        """Features, and slopes (n_rows, n_features, n_outputs) in them, of those in coordinates."""
        return self.features, slopes / self.bandwidth[:, None]


def _pull_back(numerator: Array, bandwidth: Array) -> Array:
    """Rows of ``numerator / bandwidth``, each scaled to its direction times _FARTHEST."""
    mantissa, exponent = np.frexp(numerator)
    divisor, divisor_exponent = np.frexp(bandwidth)
    ratio = mantissa / divisor
    exponent = np.where(ratio == 0.0, np.iinfo(np.int32).min // 2, exponent - divisor_exponent)
    ratio = np.ldexp(ratio, np.maximum(exponent - exponent.max(axis=1, keepdims=True), -2000))
    return ratio / np.abs(ratio).max(axis=1, keepdims=True) * _FARTHEST


@dataclass(frozen=True)
class Directions:
    """The map from features to the coordinates in which local lines are fitted.

    Every feature that is not constant has one, those that are smoothed out included, divided by
    its bandwidth or its spread, whichever is smaller. Of more than 30 features, the leading
    principal components take their place.

    Attributes
    ----------
    frame : Frame
    axes : ndarray of shape (n_coordinates, n_directions) or None
        What coordinates are multiplied with.
    """

    frame: Frame
    axes: Array | None

    @classmethod
    def around(cls, rows: Array, weights: Array, bandwidth: Array, spread: Array) -> Directions:
        """The directions of training rows; spreads of constant features are infinite."""
        if np.isfinite(spread).sum() <= MOST_DIRECTIONS:
            scale = np.where(np.isfinite(spread), np.minimum(bandwidth, spread), np.inf)
            return cls(Frame.around(rows, scale), None)
        frame = Frame.around(rows, spread)
        axes = principal_axes(frame.coordinates(rows), weights)
        relative = (bandwidth / spread)[frame.features]
        return cls(frame, axes / axis_bandwidths(axes, relative))

    def coordinates(self, rows: Array) -> Array:
        """Coordinates of rows (n_rows, n_features), of shape (n_rows, n_directions)."""
        coordinates = self.frame.coordinates(rows)
        return coordinates if self.axes is None else coordinates @ self.axes

    def gradient(self, slopes: Array, rows: Array) -> tuple[Indices, Array]:
        """Features, and slopes (n_rows, n_features, n_outputs) in them, of slopes in directions."""
        if self.axes is not None:
            slopes = np.einsum("jd,qdp->qjp", self.axes, slopes)
        return self.frame.features, slopes / self.frame.bandwidth[:, None]


def principal_axes(coordinates: Array, weights: Array) -> Array:
    """The leading axes of the weighted covariance, (n_coordinates, MOST_DIRECTIONS)."""
    share = weights / weights.sum()
    centered = coordinates - share @ coordinates
    covariance = (centered * share[:, None]).T @ centered
    return np.linalg.eigh(covariance)[1][:, : -MOST_DIRECTIONS - 1 : -1]


def axis_bandwidths(axes: Array, bandwidth: Array) -> Array:
    """Bandwidths along axes (n_coordinates, n_axes), from those of the coordinates; at most 1."""
    return 1.0 / np.maximum(np.sqrt(np.einsum("jd,j->d", axes**2, bandwidth**-2.0)), 1.0)


@dataclass(frozen=True)
class Own:
    """Which keys are each query's own, and how much of their weight stays.

    Leave-one-out removes the own weight before any sum is formed. Keys are in canonical order,
    in which the own keys of a query stand side by side.

    Attributes
    ----------
    start, stop : ndarray of shape (n_queries,)
        The own keys are ``start <= i < stop``; none when both are equal.
    kept : ndarray of shape (n_queries,)
        The factor that stays of their sample weight, between 0 (left out) and 1 (all of it: used
        to read the own weight off, as leverage does).
    """

    start: Indices
    stop: Indices
    kept: Array

    def take(self, queries: slice | Indices) -> Own:
        """The own keys of some of the queries."""
        return Own(self.start[queries], self.stop[queries], self.kept[queries])

    def covers(self, n_keys: int) -> NDArray[np.bool_]:
        """Queries whose own keys are all keys, and of which nothing stays."""
        return (self.stop - self.start == n_keys) & (self.kept == 0.0)

    def entries(self, first: int, last: int) -> tuple[Indices, Indices]:
        """Positions (query, key - first) of the own keys among the keys first, ..., last - 1."""
        start = np.minimum(np.maximum(self.start, first), last)
        count = np.minimum(np.maximum(self.stop, first), last) - start
        if (count == 1).all():  # one each, as most often
            return np.arange(count.size), start - first
        queries = np.repeat(np.arange(count.size), count)
        offset = np.arange(queries.size) - np.repeat(np.cumsum(count) - count, count)
        return queries, np.repeat(start - first, count) + offset


@dataclass(frozen=True)
class Table:
    """The training rows in canonical order.

    Sorted by group, features and targets, so that results do not depend on the order of the rows;
    rows of zero weight come last and are no keys.

    Attributes
    ----------
    X : ndarray of shape (n_rows, n_features)
    y : ndarray of shape (n_rows, n_outputs)
    weights : ndarray of shape (n_rows,)
        The sample weights.
    groups : ndarray of shape (n_rows,) of int, or None
        Rows of a group are left out together.
    rows : ndarray of shape (n_rows,)
        The position of each in the caller's data.
    n_keys : int
        Rows of positive weight, the first ones.
    """

    X: Array
    y: Array
    weights: Array
    groups: Indices | None
    rows: Indices
    n_keys: int

    @classmethod
    def canonical(cls, X: Array, y: Array, weights: Array, groups: Indices | None = None) -> Table:
        """Sort the rows; groups in the order of their first rows, whatever their labels."""
        absent = weights == 0.0
        labels = np.zeros(len(X), dtype=np.intp) if groups is None else groups
        for width in (1, 4, X.shape[1]):  # ties beyond the first features are rare
            leading = X[:, :width]
            rows = np.lexsort((weights, labels, *y.T[::-1], *leading.T[::-1], absent))
            if width >= X.shape[1] or not _repeats(leading[rows]).any():
                break
        if groups is not None:
            _, first, inverse = np.unique(labels[rows], return_index=True, return_inverse=True)
            groups = np.argsort(np.argsort(first))[inverse]
            order = np.lexsort((groups, absent[rows]))
            rows, groups = rows[order], groups[order]
        return cls(X[rows], y[rows], weights[rows], groups, rows, int(np.sum(~absent)))

    def merged(self) -> Table:
        """Keys only, those of equal group, features and targets as one of their joint weight."""
        first = np.flatnonzero(self.first_of_equals())
        weights = np.add.reduceat(self.weights[: self.n_keys], first)
        if not are_multiplicities(self.weights):  # only ratios matter: sums are not to be whole
            weights *= 0.5 / weights.max()
        groups = None if self.groups is None else self.groups[first]
        return Table(self.X[first], self.y[first], weights, groups, self.rows[first], first.size)

    def places_when_merged(self) -> Indices:
        """The place of each key in the table of `merged` rows."""
        return np.asarray(np.cumsum(self.first_of_equals()) - 1)

    def first_of_equals(self) -> NDArray[np.bool_]:
        """Whether each key is the first one of its group, features and targets."""
        columns = [self.X, self.y] if self.groups is None else [self.groups, self.X, self.y]
        return ~_repeats(np.column_stack(columns)[: self.n_keys])

    def take(self, rows: Indices) -> Table:
        """Some of the keys, in their order."""
        groups = None if self.groups is None else self.groups[rows]
        return Table(
            self.X[rows], self.y[rows], self.weights[rows], groups, self.rows[rows], rows.size
        )

    def own(self) -> Own:
        """What leave-one-out leaves out for every row.

        With groups, every key of the row's group. Otherwise whole-number weights are
        multiplicities: one unit of the row's own weight goes. Other weights are importances:
        every key with the same features goes, so that scaling the weights changes nothing. Rows
        of zero weight are no keys and leave nothing but their group out.
        """
        if self.groups is not None:
            keys = self.groups[: self.n_keys]
            start = np.searchsorted(keys, self.groups, side="left")
            stop = np.searchsorted(keys, self.groups, side="right")
            return Own(start, stop, np.zeros(self.weights.size))
        if are_multiplicities(self.weights):
            return self.one_of_itself()
        fresh = np.flatnonzero(~_repeats(self.X[: self.n_keys]))
        stops = np.append(fresh[1:], self.n_keys)
        atom = np.searchsorted(fresh, np.arange(self.n_keys), side="right") - 1
        start, stop = np.zeros((2, self.weights.size), dtype=np.intp)
        start[: self.n_keys], stop[: self.n_keys] = fresh[atom], stops[atom]
        return Own(start, stop, np.zeros(self.weights.size))

    def leaves_one_unit(self) -> bool:
        """Whether leave-one-out leaves out one unit of each row."""
        return self.groups is None and are_multiplicities(self.weights)

    def counts(self) -> Array:
        """How many rows each key counts as among neighbours: importances have mean 1."""
        weights = self.weights[: self.n_keys]
        return weights.copy() if are_multiplicities(self.weights) else weights / weights.mean()

    def repeats(self) -> Array:
        """How many rows each key stands for: its weight if that is a multiplicity, or one."""
        weights = self.weights[: self.n_keys]
        return weights.copy() if are_multiplicities(self.weights) else np.ones_like(weights)

    def one_of_itself(self) -> Own:
        """Every row its own key, without one unit of a multiplicity, or altogether."""
        own, counts = self.itself(), np.ones(self.weights.size)
        if are_multiplicities(self.weights):
            counts = np.maximum(self.weights, 1.0)
        return Own(own.start, own.stop, 1.0 - 1.0 / counts)

    def itself(self) -> Own:
        """Every row its own key, nothing removed."""
        start = np.minimum(np.arange(self.weights.size), self.n_keys)
        stop = np.minimum(start + 1, self.n_keys)
        return Own(start, stop, np.ones(self.weights.size))


def _repeats(sorted_rows: Array) -> NDArray[np.bool_]:
    """Whether each row equals the one before it."""
    repeats = np.zeros(len(sorted_rows), dtype=bool)
    repeats[1:] = (sorted_rows[1:] == sorted_rows[:-1]).all(axis=1)
    return repeats
