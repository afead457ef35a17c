"""Transforms: from features to the coordinates in which kernels see Euclidean distances.

Each has ``coordinates(rows)`` and ``gradient(slopes, rows)``, which takes derivatives in
coordinates back to features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from skattn._geometry.scaling import rounded_center
from skattn._geometry.training_set import scaled_weights

__all__ = [
    "MOST_DIRECTIONS",
    "FeatureMap",
    "LocalBasis",
    "QuadraticBasis",
    "Ranks",
    "Scaler",
    "Transform",
    "axis_bandwidths",
    "principal_axes",
]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Local lines in more directions would take moments of all their pairs.
MOST_DIRECTIONS = 30
# Coordinates beyond this many bandwidths are pulled back along their ray, so that squared
# distances stay finite. Only along the ray: what decides among keys that tie there is lost.
_FARTHEST = 1e100


class Transform(Protocol):
    """A map from features to coordinates."""

    def coordinates(self, rows: Array) -> Array:
        """Coordinates of rows (n_rows, n_features), of shape (n_rows, n_coordinates)."""
        ...

    def gradient(self, slopes: Array, rows: Array) -> tuple[Indices, Array]:
        """Features, and slopes (n_rows, n_features, n_outputs) in them, from coordinates."""
        ...


@dataclass(frozen=True)
class Scaler:
    """Subtract `center`, divide by `bandwidth`.

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
    def around(cls, rows: Array, bandwidth: Array) -> Scaler:
        """Scaler of training rows; a bandwidth below 1e-90 of their spread acts as that."""
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
            Finite features.

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
        """Features, and slopes (n_rows, n_features, n_outputs) in them, from coordinates."""
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
class LocalBasis:
    """Regressors of local lines: every feature that is not constant, in units of order one.

    Features that are smoothed out are included; each is divided by its bandwidth or its spread,
    whichever is smaller. Of more than 30 features, the leading principal components take their
    place.

    Attributes
    ----------
    scaler : Scaler
        Divides the features.
    axes : ndarray of shape (n_coordinates, n_directions) or None
        Principal components that scaled features are multiplied with.
    """

    scaler: Scaler
    axes: Array | None

    @classmethod
    def around(cls, rows: Array, weights: Array, bandwidth: Array, spread: Array) -> LocalBasis:
        """Basis of training rows; spreads of constant features are infinite."""
        if np.isfinite(spread).sum() <= MOST_DIRECTIONS:
            scale = np.where(np.isfinite(spread), np.minimum(bandwidth, spread), np.inf)
            return cls(Scaler.around(rows, scale), None)
        scaler = Scaler.around(rows, spread)
        axes = principal_axes(scaler.coordinates(rows), weights)
        relative = bandwidth[scaler.features] / spread[scaler.features]
        return cls(scaler, axes / axis_bandwidths(axes, relative))

    def coordinates(self, rows: Array) -> Array:
        """Regressors of rows (n_rows, n_features), of shape (n_rows, n_directions)."""
        coordinates = self.scaler.coordinates(rows)
        return coordinates if self.axes is None else coordinates @ self.axes

    def gradient(self, slopes: Array, rows: Array) -> tuple[Indices, Array]:
        """Features, and slopes (n_rows, n_features, n_outputs) in them, from regressors."""
        if self.axes is not None:
            slopes = np.einsum("jd,qdp->qjp", self.axes, slopes)
        return self.scaler.gradient(slopes, rows)


def principal_axes(coordinates: Array, weights: Array) -> Array:
    """Leading axes of the weighted covariance, (n_coordinates, MOST_DIRECTIONS)."""
    share = scaled_weights(weights)
    share /= share.sum()
    centered = coordinates - share @ coordinates
    covariance = (centered * share[:, None]).T @ centered
    return np.linalg.eigh(covariance)[1][:, : -MOST_DIRECTIONS - 1 : -1]


def axis_bandwidths(axes: Array, bandwidth: Array) -> Array:
    """Bandwidths along axes (n_coordinates, n_axes), from those of the coordinates; at most 1."""
    return 1.0 / np.maximum(np.sqrt(np.einsum("jd,j->d", axes**2, bandwidth**-2.0)), 1.0)


@dataclass(frozen=True)
class QuadraticBasis:
    """Regressors of a local basis and, behind them, the square of one combination of them.

    Along `axis` the fits are then parabolas, not lines, in a single coordinate more. Beyond the
    training rows the square stays what it is at the last of them, so that nothing but lines is
    extrapolated.

    Attributes
    ----------
    basis : LocalBasis
        Regressors of straight lines.
    axis : ndarray of shape (n_directions,)
        Direction of length one.
    origin : float
        Mean of the training rows along the axis.
    low, high : float
        Range of the training rows along the axis, around the origin.
    center, scale : float
        Mean and standard deviation of their squares; coordinates are of order one.
    """

    basis: LocalBasis
    axis: Array
    origin: float
    low: float
    high: float
    center: float
    scale: float

    @classmethod
    def of(
        cls, basis: LocalBasis, axis: Array, rows: Array, weights: Array
    ) -> QuadraticBasis | None:
        """Add the square along an axis to the basis of training rows; None where it is constant."""
        along = basis.coordinates(rows) @ axis
        share = weights / weights.sum()
        origin = share @ along
        along = along - origin
        center = share @ along**2
        scale = np.sqrt(share @ (along**2 - center) ** 2)
        if scale <= 1e-6 * center:
            return None
        numbers = (origin, along.min(), along.max(), center, scale)
        return cls(basis, axis, *map(float, numbers))

    def coordinates(self, rows: Array) -> Array:
        """Regressors of rows (n_rows, n_features), of shape (n_rows, n_directions + 1)."""
        coordinates = self.basis.coordinates(rows)
        along = np.clip(coordinates @ self.axis - self.origin, self.low, self.high)
        return np.column_stack([coordinates, (along**2 - self.center) / self.scale])

    def gradient(self, slopes: Array, rows: Array) -> tuple[Indices, Array]:
        """Features, and slopes (n_rows, n_features, n_outputs) in them, from regressors."""
        along = self.basis.coordinates(rows) @ self.axis - self.origin
        within = (along >= self.low) & (along <= self.high)
        rise = np.where(within, 2.0 * along / self.scale, 0.0)
        straight = slopes[:, :-1] + (self.axis * rise[:, None])[:, :, None] * slopes[:, -1:]
        return self.basis.gradient(straight, rows)


@dataclass(frozen=True)
class Ranks:
    """The share of training rows below a value, feature by feature; standardised.

    Attributes
    ----------
    knots : tuple of ndarray
        Distinct values of each feature, ascending.
    levels : tuple of ndarray
        Ranks at the knots. Between knots they are interpolated, beyond the last ones they stay.
    """

    knots: tuple[Array, ...]
    levels: tuple[Array, ...]

    @classmethod
    def of(cls, columns: Array, weights: Array) -> Ranks:
        """Ranks of training rows (n_rows, n_features), no feature constant."""
        knots, levels = [], []
        for column in columns.T:
            values, position = np.unique(column, return_inverse=True)
            share = np.bincount(position, weights) / weights.sum()
            middle = share.cumsum() - 0.5 * share - 0.5
            knots.append(values)
            levels.append(middle / np.sqrt(share @ middle**2))
        return cls(tuple(knots), tuple(levels))

    def coordinates(self, columns: Array) -> Array:
        """Ranks of rows, in the shape of the rows."""
        ranks = [
            np.interp(column, knots, levels)
            for column, knots, levels in zip(columns.T, self.knots, self.levels, strict=True)
        ]
        return np.stack(ranks, axis=1)

    def slopes(self, columns: Array) -> Array:
        """Derivatives of the ranks of rows, in the shape of the rows."""
        slopes = np.zeros(columns.shape)
        for j, (knots, levels) in enumerate(zip(self.knots, self.levels, strict=True)):
            after = np.searchsorted(knots, columns[:, j], side="right")
            within = (after > 0) & (after < len(knots))
            rise = np.diff(levels) / np.diff(knots)
            slopes[within, j] = rise[after[within] - 1]
        return slopes


@dataclass(frozen=True)
class FeatureMap:
    """Standardise the features, add their ranks, multiply by a matrix: a learned metric.

    Attributes
    ----------
    scaler : Scaler
        Centres and scales the features that are not constant.
    ranks : Ranks or None
        Ranks of the scaled features, which take their places behind them.
    matrix : ndarray of shape (n_scaled, n_coordinates)
        Multiplied with scaled features, and ranks.
    """

    scaler: Scaler
    ranks: Ranks | None
    matrix: Array

    def scaled(self, rows: Array) -> Array:
        """Scaled features and ranks of rows (n_rows, n_features)."""
        scaled = self.scaler.coordinates(rows)
        return scaled if self.ranks is None else np.hstack([scaled, self.ranks.coordinates(scaled)])

    def coordinates(self, rows: Array) -> Array:
        """Coordinates of rows (n_rows, n_features), of shape (n_rows, n_coordinates)."""
        return self.scaled(rows) @ self.matrix

    def gradient(self, slopes: Array, rows: Array) -> tuple[Indices, Array]:
        """Features, and slopes (n_rows, n_features, n_outputs) in them, from coordinates."""
        n_scaled = len(self.scaler.features)
        by_scaled = np.einsum("jc,qcp->qjp", self.matrix[:n_scaled], slopes)
        if self.ranks is not None:
            by_rank = np.einsum("jc,qcp->qjp", self.matrix[n_scaled:], slopes)
            by_scaled += self.ranks.slopes(self.scaler.coordinates(rows))[:, :, None] * by_rank
        return self.scaler.gradient(by_scaled, rows)
