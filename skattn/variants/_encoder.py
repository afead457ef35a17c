"""Coordinates from a network, beside those of the metric."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from skattn._geometry.transforms import Transform
from skattn._sklearn import Interval
from skattn._smoother import Component
from skattn.variants import _model
from skattn.variants._model import Array, Components, Model, Parts, RowNumbers, Tensor

# Standard deviation of the prior of the network's weights, and frequencies for each feature.
_NETWORK, _FREQUENCIES = 3.0, 8
# Rows whose Jacobians are computed together.
_BLOCK = 64


class Encoder(_model.Variant):
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
        sizes = self._sizes()
        if not sizes or not all(_is_count(size) for size in sizes):
            raise ValueError(
                "hidden_layer_sizes of Encoder must be positive whole numbers, one for each layer "
                f"and one at least; got {self.hidden_layer_sizes!r}."
            )

    def _sizes(self) -> list[Any]:
        sizes = self.hidden_layer_sizes
        return [sizes] if isinstance(sizes, Integral) else list(sizes)

    def models(self, beginning: _model.Beginning) -> list[Model]:
        """The only candidate: next to nothing changed, since the last matrix is small."""
        rng, n_plain = np.random.default_rng(beginning.seed), beginning.metric.n_plain
        starts = [0.3 * rng.standard_normal((n_plain, _FREQUENCIES))]
        sizes = [n_plain * (2 * _FREQUENCIES + 1), *map(int, self._sizes())]
        for shape in pairwise(sizes):
            starts += [rng.standard_normal(shape) * np.sqrt(2.0 / shape[0]), np.zeros(shape[1])]
        outer = rng.standard_normal((sizes[-1], sizes[-1]))
        starts.append(0.3 * outer / np.sqrt(sizes[-1]))
        network = [_model.ParameterBlock(start, _NETWORK) for start in starts]
        return [_Model(beginning.metric, [beginning.metric.block(), *network])]


def _is_count(size: Any) -> bool:
    return isinstance(size, int | np.integer) and size is not True and bool(size >= 1)


class _Model(Model):
    def forward(self, parts: Parts, features: Tensor) -> RowNumbers:
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
        self, parts: Parts, components: Components, standard: _model.StandardFeatures
    ) -> Component:
        (component,) = components
        transform = EncodedMap(component.transform, standard, Network(tuple(parts[1:])))
        coordinates = transform.coordinates(component.training_set.X)
        return replace(component, transform=transform, coordinates=coordinates)

    def added_squares(self, parts: Parts, x: Array) -> Array:
        return np.asarray((Network(tuple(parts[1:])).jacobian(x) ** 2).sum(axis=2))


@dataclass(frozen=True)
class Network:
    """Coordinates from periodic embeddings of each feature.

    ``[sin, cos](2 pi f_jk x_j)`` of all features j and frequencies k, and x itself, pass through
    layers ``max(0, a W + b)``, and a matrix makes coordinates of the last one. Its parts are f, W
    and b of each layer, and the matrix.
    """

    parts: tuple[Array, ...]

    def coordinates(self, x: Array) -> Array:
        """Coordinates of standardised features (n_rows, n_plain)."""
        *_, (hidden, _) = self._layers(x)
        return hidden @ self.parts[-1]

    def _layers(self, x: Array) -> Any:
        """Activations of each layer, and its weights, from the embedding on; None behind it."""
        angles = (2.0 * np.pi * self.parts[0] * x[:, :, None]).reshape(len(x), -1)
        hidden = np.hstack([np.sin(angles), np.cos(angles), x])
        for weights, offset in zip(self.parts[1:-1:2], self.parts[2:-1:2], strict=True):
            yield hidden, weights
            hidden = np.maximum(hidden @ weights + offset, 0.0)
        yield hidden, None

    def jacobian(self, x: Array) -> Array:
        """Derivatives of the coordinates, (n_rows, n_plain, n_coordinates)."""
        (n, d), rates = x.shape, 2.0 * np.pi * self.parts[0]
        angles, features = rates * x[:, :, None], np.arange(d)
        waves = np.zeros((2, n, d, d, rates.shape[1]))
        waves[0][:, features, features] = rates * np.cos(angles)
        waves[1][:, features, features] = -rates * np.sin(angles)
        plain = np.broadcast_to(np.eye(d), (n, d, d))
        slopes = np.concatenate([*waves.reshape(2, n, d, -1), plain], axis=2)
        for (_, weights), (hidden, _) in pairwise(self._layers(x)):
            slopes = (slopes @ weights) * (hidden > 0.0)[:, None, :]
        return slopes @ self.parts[-1]


@dataclass(frozen=True)
class EncodedMap:
    """Coordinates of a metric, and those of a network beside them."""

    metric: Transform
    standard: _model.StandardFeatures
    network: Network

    def coordinates(self, rows: Array) -> Array:
        """Coordinates of rows (n_rows, n_features), of shape (n_rows, n_coordinates)."""
        encoded = self.network.coordinates(self.standard.coordinates(rows))
        return np.hstack([self.metric.coordinates(rows), encoded])

    def gradient(self, slopes: Array, rows: Array) -> tuple[NDArray[np.intp], Array]:
        """Features, and slopes (n_rows, n_features, n_outputs) in them, from coordinates."""
        n_encoded = self.network.parts[-1].shape[1]
        features, plain = self.metric.gradient(slopes[:, :-n_encoded], rows)
        encoded, x = slopes[:, -n_encoded:], self.standard.coordinates(rows)
        by_scaled = np.empty((len(x), x.shape[1], slopes.shape[2]))
        for start in range(0, len(x), _BLOCK):
            some = slice(start, start + _BLOCK)
            jacobian = self.network.jacobian(x[some])
            by_scaled[some] = np.einsum("qjc,qcp->qjp", jacobian, encoded[some])
        return features, plain + self.standard.scaler.gradient(by_scaled, rows)[1]
