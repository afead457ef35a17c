"""Coordinates from a network, beside those of the metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from skattn._geometry.transforms import Transform
from skattn._sklearn import Interval
from skattn._smoother import Component
from skattn.variants._model import (
    Beginning,
    Model,
    ParameterBlock,
    Parts,
    RowNumbers,
    StandardFeatures,
    Variant,
)

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Standard deviation of the prior of the network's weights, and frequencies for each feature.
_NETWORK, _FREQUENCIES = 3.0, 8
# Rows whose Jacobians are computed together.
_BLOCK = 64


class Encoder(Variant):
    """A network whose outputs join the coordinates that distances are measured in.

    Features enter as sines and cosines of 8 learned frequencies each, and as they are. The network
    is the same for queries and training rows. Rows held out (`validation_fraction`, of which None
    is then 0.1) are no keys in training, which stops when they are predicted no better. For 2000
    rows and more, with `dropout` of about 0.5.

    Parameters
    ----------
    hidden_layer_sizes : int or array-like of int, default=(64, 64)
        Units of each layer; the last number is that of the coordinates too.
    dropout : float, default=0.0
        Probability with which a query misses a training row in a step of training.

    Examples
    --------
    >>> from skattn import ParametricAttentionRegressor
    >>> from skattn.solvers import Adam
    >>> from skattn.variants import Encoder
    >>> model = ParametricAttentionRegressor(
    ...     variant=Encoder((32, 32), dropout=0.5), solver=Adam(learning_rate=0.003, max_iter=50)
    ... )
    """

    _parameter_constraints: ClassVar = {
        "hidden_layer_sizes": [Interval(Integral, 1, None, closed="left"), "array-like"],
        "dropout": [Interval(Real, 0, 1, closed="left")],
    }
    solvers = ("adam",)
    learning_rate = 0.003
    hides_validation = True

    def __init__(self, hidden_layer_sizes=(64, 64), dropout=0.0):  # type: ignore[no-untyped-def]
        self.hidden_layer_sizes = hidden_layer_sizes
        self.dropout = dropout

    def check(self) -> None:
        """Refuse parameters that are out of range."""
        super().check()
        if not all(isinstance(size, Integral) and size is not True and size >= 1
                   for size in self._sizes()) or not self._sizes():  # fmt: skip
            raise ValueError(
                "hidden_layer_sizes of Encoder must be positive whole numbers, one for each layer "
                f"and one at least; got {self.hidden_layer_sizes!r}."
            )

    def _sizes(self) -> list[Any]:
        sizes = self.hidden_layer_sizes
        return [sizes] if isinstance(sizes, Integral) else list(sizes)

    def models(self, beginning: Beginning) -> list[Model]:
        """The only candidate: next to nothing changed, since the last matrix is small."""
        rng, n_plain = np.random.default_rng(beginning.seed), beginning.metric.n_plain
        starts = [0.3 * rng.standard_normal((n_plain, _FREQUENCIES))]
        sizes = [n_plain * (2 * _FREQUENCIES + 1), *map(int, self._sizes())]
        for shape in pairwise(sizes):
            starts += [rng.standard_normal(shape) * np.sqrt(2.0 / shape[0]), np.zeros(shape[1])]
        outer = rng.standard_normal((sizes[-1], sizes[-1]))
        starts.append(0.3 * outer / np.sqrt(sizes[-1]))
        network = [ParameterBlock(start, _NETWORK) for start in starts]
        return [_Model(beginning.metric, [beginning.metric.block(), *network])]


class _Model(Model):
    def forward(self, parts: Parts, features: Any) -> RowNumbers:
        import torch

        factors, frequencies, *layers, outer = parts
        x = features[:, : self.metric.n_plain]
        angles = (2.0 * np.pi * frequencies * x[:, :, None]).flatten(start_dim=1)
        hidden = torch.cat([torch.sin(angles), torch.cos(angles), x], dim=1)
        for weights, offset in zip(layers[::2], layers[1::2], strict=True):
            hidden = torch.relu(hidden @ weights + offset)
        plain = self.metric.coordinates(factors, features)
        return RowNumbers([torch.cat([plain, hidden @ outer], dim=1)])

    def smoother(
        self, parts: Parts, components: Sequence[Component], standard: StandardFeatures
    ) -> Component:
        (component,) = components
        transform = EncodedMap(component.transform, standard, Network.of(parts[1:]))
        coordinates = transform.coordinates(component.training_set.X)
        return replace(component, transform=transform, coordinates=coordinates)

    def added_squares(self, parts: Parts, x: Array) -> Array:
        squares: Array = (Network.of(parts[1:]).jacobian(x) ** 2).sum(axis=2)
        return squares


@dataclass(frozen=True)
class Network:
    """Coordinates from periodic embeddings of each feature.

    ``[sin, cos](2 pi f_jk x_j)`` of all features j and frequencies k, and x itself, pass through
    layers ``max(0, a W + b)``, and a matrix makes coordinates of the last one.

    Attributes
    ----------
    frequencies : ndarray of shape (n_plain, n_frequencies)
        f.
    layers : tuple of pairs of ndarray
        W and b of each layer.
    outer : ndarray of shape (n_last, n_coordinates)
        The matrix.
    """

    frequencies: Array
    layers: tuple[tuple[Array, Array], ...]
    outer: Array

    @classmethod
    def of(cls, parts: Parts) -> Network:
        """The network of blocks of parameters."""
        frequencies, *layers, outer = parts
        return cls(frequencies, tuple(zip(layers[::2], layers[1::2], strict=True)), outer)

    def coordinates(self, x: Array) -> Array:
        """Coordinates of standardised features (n_rows, n_plain)."""
        angles = (2.0 * np.pi * self.frequencies * x[:, :, None]).reshape(len(x), -1)
        hidden = np.hstack([np.sin(angles), np.cos(angles), x])
        for weights, offset in self.layers:
            hidden = np.maximum(hidden @ weights + offset, 0.0)
        return hidden @ self.outer

    def jacobian(self, x: Array) -> Array:
        """Derivatives of the coordinates, (n_rows, n_plain, n_coordinates)."""
        (n, d), rates = x.shape, 2.0 * np.pi * self.frequencies
        angles = rates * x[:, :, None]
        waves, features = np.zeros((2, n, d, d, rates.shape[1])), np.arange(d)
        waves[0][:, features, features] = rates * np.cos(angles)
        waves[1][:, features, features] = -rates * np.sin(angles)
        plain = np.broadcast_to(np.eye(d), (n, d, d))
        slopes = np.concatenate([*waves.reshape(2, n, d, -1), plain], axis=2)
        angles = angles.reshape(n, -1)
        hidden = np.hstack([np.sin(angles), np.cos(angles), x])
        for weights, offset in self.layers:
            before = hidden @ weights + offset
            hidden = np.maximum(before, 0.0)
            slopes = (slopes @ weights) * (before > 0.0)[:, None, :]
        return slopes @ self.outer


@dataclass(frozen=True)
class EncodedMap:
    """Coordinates of a metric, and those of a network beside them.

    Attributes
    ----------
    metric : Transform
        Features to the metric's coordinates.
    standard : StandardFeatures
        Features to what the network sees.
    network : Network
        Makes the other coordinates.
    """

    metric: Transform
    standard: StandardFeatures
    network: Network

    def coordinates(self, rows: Array) -> Array:
        """Coordinates of rows (n_rows, n_features), of shape (n_rows, n_coordinates)."""
        encoded = self.network.coordinates(self.standard.coordinates(rows))
        return np.hstack([self.metric.coordinates(rows), encoded])

    def gradient(self, slopes: Array, rows: Array) -> tuple[Indices, Array]:
        """Features, and slopes (n_rows, n_features, n_outputs) in them, of slopes in coordinates."""
        n_encoded = self.network.outer.shape[1]
        features, plain = self.metric.gradient(slopes[:, :-n_encoded], rows)
        encoded, x = slopes[:, -n_encoded:], self.standard.coordinates(rows)
        by_scaled = np.empty((len(x), x.shape[1], slopes.shape[2]))
        for start in range(0, len(x), _BLOCK):
            some = slice(start, start + _BLOCK)
            jacobian = self.network.jacobian(x[some])
            by_scaled[some] = np.einsum("qjc,qcp->qjp", jacobian, encoded[some])
        return features, plain + self.standard.scaler.gradient(by_scaled, rows)[1]
