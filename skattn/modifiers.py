"""What may depend on a row in learned attention: gates, scales and encodings, as plain functions.

All take standardised features x, (n_rows, n_features), and are what training on tensors found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from skattn._geometry import Frame

__all__ = [
    "ConstantGates",
    "Encoder",
    "LinearGates",
    "Modification",
    "NetworkScale",
    "RegionScale",
    "RowGates",
    "RowScales",
    "Standard",
]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Standard:
    """Standardised features, around their medians.

    Attributes
    ----------
    frame : Frame
    middle : ndarray of shape (n_scaled,)
        Medians of the training rows in the frame.
    """

    frame: Frame
    middle: Array

    def of(self, rows: Array) -> Array:
        """Standardised features of rows (n_rows, n_features), (n_rows, n_scaled)."""
        return self.frame.coordinates(rows) - self.middle


class GateFunction(Protocol):
    """Shares of heads, for standardised features."""

    def shares(self, x: Array) -> Array:
        """(n_rows, n_heads); they sum to 1."""
        ...


@dataclass(frozen=True)
class ConstantGates:
    """The same shares everywhere, (n_heads,)."""

    constant: Array

    def shares(self, x: Array) -> Array:
        """The same row for each."""
        return np.tile(self.constant, (len(x), 1))


@dataclass(frozen=True)
class LinearGates:
    """Shares softmax(x G + b).

    Attributes
    ----------
    matrix : ndarray of shape (n_features, n_heads)
    offset : ndarray of shape (n_heads,)
    """

    matrix: Array
    offset: Array

    def shares(self, x: Array) -> Array:
        """Far away, one head has them all."""
        return _softmax(x @ self.matrix + self.offset)


class ScaleFunction(Protocol):
    """The logarithm of a factor of all scales, for standardised features."""

    def log_scales(self, x: Array) -> Array:
        """(n_rows,)."""
        ...


@dataclass(frozen=True)
class NetworkScale:
    """tanh(x W + b) v: bounded, however far the row.

    Attributes
    ----------
    weights : ndarray of shape (n_features, n_hidden)
    offset, outer : ndarray of shape (n_hidden,)
    """

    weights: Array
    offset: Array
    outer: Array

    def log_scales(self, x: Array) -> Array:
        """Of each row."""
        return np.tanh(x @ self.weights + self.offset) @ self.outer


@dataclass(frozen=True)
class RegionScale:
    """Means of the log-factors of regions, by how much a row belongs to each.

    Attributes
    ----------
    centers : ndarray of shape (n_regions, n_features)
    width : float
        Distance over which regions pass into each other.
    log_factors : ndarray of shape (n_regions,)
    """

    centers: Array
    width: float
    log_factors: Array

    def memberships(self, x: Array) -> Array:
        """How much rows belong to regions, (n_rows, n_regions); sums are 1."""
        products = x @ self.centers.T - 0.5 * (self.centers**2).sum(axis=1)
        return _softmax(products / self.width**2)

    def log_scales(self, x: Array) -> Array:
        """Of each row."""
        return self.memberships(x) @ self.log_factors


@dataclass(frozen=True)
class Encoder:
    """Coordinates from a network of periodic embeddings of each feature.

    ``[sin, cos](2 pi f_jk x_j)`` of all features j and frequencies k, and x itself, pass through
    layers ``max(0, a W + b)``, and a matrix makes coordinates of the last one.

    Attributes
    ----------
    frequencies : ndarray of shape (n_features, n_frequencies)
    layers : tuple of pairs of ndarray
        W and b of each.
    outer : ndarray of shape (n_last, n_coordinates)
    """

    frequencies: Array
    layers: tuple[tuple[Array, Array], ...]
    outer: Array

    def coordinates(self, x: Array) -> Array:
        """Of rows."""
        hidden = self._embedded(x)
        for weights, offset in self.layers:
            hidden = np.maximum(hidden @ weights + offset, 0.0)
        return hidden @ self.outer

    def jacobian(self, x: Array) -> Array:
        """Derivatives of the coordinates, (n_rows, n_features, n_coordinates)."""
        hidden, slopes = self._embedded(x), self._embedded_slopes(x)
        for weights, offset in self.layers:
            before = hidden @ weights + offset
            hidden = np.maximum(before, 0.0)
            slopes = (slopes @ weights) * (before > 0.0)[:, None, :]
        return slopes @ self.outer

    def _embedded(self, x: Array) -> Array:
        angles = (2.0 * np.pi * self.frequencies * x[:, :, None]).reshape(len(x), -1)
        return np.hstack([np.sin(angles), np.cos(angles), x])

    def _embedded_slopes(self, x: Array) -> Array:
        """Derivatives of the embeddings, (n_rows, n_features, n_embeddings)."""
        n, d = x.shape
        rates = 2.0 * np.pi * self.frequencies
        angles = rates * x[:, :, None]
        waves = np.zeros((2, n, d, d, rates.shape[1]))
        own = np.arange(d)
        waves[0][:, own, own] = rates * np.cos(angles)
        waves[1][:, own, own] = -rates * np.sin(angles)
        plain = np.broadcast_to(np.eye(d), (n, d, d))
        return np.concatenate([*waves.reshape(2, n, d, -1), plain], axis=2)


@dataclass(frozen=True)
class Modification:
    """What training made of a metric.

    Attributes
    ----------
    matrices : tuple of ndarray of shape (n_features, n_coordinates)
        The metric of each head.
    gates : GateFunction or None
        None for a single head.
    scale : ScaleFunction or None
    log_factors : ndarray of shape (n_keys,) or None
        Of the weights of keys.
    encoder : Encoder or None
        Whose coordinates join those of the metric.
    """

    matrices: tuple[Array, ...]
    gates: GateFunction | None = None
    scale: ScaleFunction | None = None
    log_factors: Array | None = None
    encoder: Encoder | None = None


@dataclass(frozen=True)
class RowGates:
    """Gates of rows in the units of their features."""

    standard: Standard
    function: GateFunction

    def shares(self, rows: Array) -> Array:
        """Shares for rows (n_rows, n_features), of shape (n_rows, n_heads)."""
        return self.function.shares(self.standard.of(rows))


@dataclass(frozen=True)
class RowScales:
    """Scales of rows in the units of their features."""

    standard: Standard
    function: ScaleFunction

    def factors(self, rows: Array) -> Array:
        """What all factors are multiplied with at rows (n_rows, n_features), (n_rows,)."""
        return np.exp(self.function.log_scales(self.standard.of(rows)))


def _softmax(logits: Array) -> Array:
    logits = logits - logits.max(axis=1, keepdims=True)
    shares = np.exp(logits)
    return shares / shares.sum(axis=1, keepdims=True)
