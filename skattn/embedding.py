"""Learned maps from features to coordinates.

Of the metric: standardise, add ranks, multiply by a matrix. Of local lines: add a square.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skattn.geometry import Directions, Frame
from skattn.modifiers import Encoder, Standard

__all__ = ["BentDirections", "Embedding", "EncodedEmbedding", "Ranks"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Rows at a time whose Jacobians are formed.
_BLOCK = 64


@dataclass(frozen=True)
class Ranks:
    """The share of training rows below a value, feature by feature; standardised.

    Attributes
    ----------
    knots : tuple of ndarray
        The distinct values of each feature, ascending.
    levels : tuple of ndarray
        Their ranks. Between knots they are interpolated, beyond the last ones they stay.
    """

    knots: tuple[Array, ...]
    levels: tuple[Array, ...]

    @classmethod
    def of(cls, columns: Array, weights: Array) -> Ranks:
        """The ranks of training rows (n_rows, n_features), no feature constant."""
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
class Embedding:
    """The map from features to learned coordinates.

    Attributes
    ----------
    frame : Frame
        Centres and scales the features that are not constant.
    ranks : Ranks or None
        Ranks of the scaled features, which take their places behind them.
    matrix : ndarray of shape (n_scaled, n_coordinates)
        What scaled features, and ranks, are multiplied with.
    """

    frame: Frame
    ranks: Ranks | None
    matrix: Array

    def scaled(self, rows: Array) -> Array:
        """Scaled features and ranks of rows (n_rows, n_features)."""
        scaled = self.frame.coordinates(rows)
        return scaled if self.ranks is None else np.hstack([scaled, self.ranks.coordinates(scaled)])

    def coordinates(self, rows: Array) -> Array:
        """Coordinates of rows (n_rows, n_features), of shape (n_rows, n_coordinates)."""
        return self.scaled(rows) @ self.matrix

    def gradient(self, slopes: Array, rows: Array) -> tuple[Indices, Array]:
        """Features, and slopes (n_rows, n_features, n_outputs) in them, of those in coordinates."""
        n_scaled = len(self.frame.features)
        by_scaled = np.einsum("jc,qcp->qjp", self.matrix[:n_scaled], slopes)
        if self.ranks is not None:
            by_rank = np.einsum("jc,qcp->qjp", self.matrix[n_scaled:], slopes)
            by_scaled += self.ranks.slopes(self.frame.coordinates(rows))[:, :, None] * by_rank
        return self.frame.gradient(by_scaled, rows)


@dataclass(frozen=True)
class EncodedEmbedding:
    """Learned coordinates, and those of a network beside them."""

    embedding: Embedding
    standard: Standard
    encoder: Encoder

    def coordinates(self, rows: Array) -> Array:
        """Coordinates of rows (n_rows, n_features), of shape (n_rows, n_coordinates)."""
        encoded = self.encoder.coordinates(self.standard.of(rows))
        return np.hstack([self.embedding.coordinates(rows), encoded])

    def gradient(self, slopes: Array, rows: Array) -> tuple[Indices, Array]:
        """Features, and slopes (n_rows, n_features, n_outputs) in them, of those in coordinates."""
        n_plain = self.embedding.matrix.shape[1]
        features, plain = self.embedding.gradient(slopes[:, :n_plain], rows)
        encoded, x = slopes[:, n_plain:], self.standard.of(rows)
        by_scaled = np.empty((len(x), x.shape[1], slopes.shape[2]))
        for start in range(0, len(x), _BLOCK):
            some = slice(start, start + _BLOCK)
            jacobian = self.encoder.jacobian(x[some])
            by_scaled[some] = np.einsum("qjc,qcp->qjp", jacobian, encoded[some])
        return features, plain + self.standard.frame.gradient(by_scaled, rows)[1]


@dataclass(frozen=True)
class BentDirections:
    """The directions of local lines and, behind them, the square of one combination of them.

    Along `axis` the fits are then parabolas, not lines, in a single coordinate more. Beyond the
    training rows the square stays what it is at the last of them, so that nothing but lines is
    extrapolated.

    Attributes
    ----------
    directions : Directions
    axis : ndarray of shape (n_directions,)
        Of length one.
    origin : float
        Mean of the training rows along it.
    low, high : float
        Their range, around the origin.
    center, scale : float
        Mean and standard deviation of their squares; coordinates are of order one.
    """

    directions: Directions
    axis: Array
    origin: float
    low: float
    high: float
    center: float
    scale: float

    @classmethod
    def of(
        cls, directions: Directions, axis: Array, rows: Array, weights: Array
    ) -> BentDirections | None:
        """Bend the directions of training rows along an axis; None where nothing can bend."""
        along = directions.coordinates(rows) @ axis
        share = weights / weights.sum()
        origin = share @ along
        along = along - origin
        center = share @ along**2
        scale = np.sqrt(share @ (along**2 - center) ** 2)
        if scale <= 1e-6 * center:
            return None
        numbers = (origin, along.min(), along.max(), center, scale)
        return cls(directions, axis, *map(float, numbers))

    def coordinates(self, rows: Array) -> Array:
        """Coordinates of rows (n_rows, n_features), of shape (n_rows, n_directions + 1)."""
        coordinates = self.directions.coordinates(rows)
        along = np.clip(coordinates @ self.axis - self.origin, self.low, self.high)
        return np.column_stack([coordinates, (along**2 - self.center) / self.scale])

    def gradient(self, slopes: Array, rows: Array) -> tuple[Indices, Array]:
        """Features, and slopes (n_rows, n_features, n_outputs) in them, of those in coordinates."""
        along = self.directions.coordinates(rows) @ self.axis - self.origin
        within = (along >= self.low) & (along <= self.high)
        rise = np.where(within, 2.0 * along / self.scale, 0.0)
        straight = slopes[:, :-1] + (self.axis * rise[:, None])[:, :, None] * slopes[:, -1:]
        return self.directions.gradient(straight, rows)
