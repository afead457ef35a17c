"""Models: what makes a learned metric depend on the rows.

All but mixtures start where they change (next to) nothing of the metric they are given, whose
features keep log-factors of their own, so that both are learned together.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from skattn._learning._rowwise import RowNumbers
from skattn.modifiers import (
    ConstantGates,
    Encoder,
    LinearGates,
    Modification,
    NetworkScale,
    RegionScale,
)

Array = NDArray[np.float64]

# Standard deviations the prior gives log-factors of features around those of the given metric, and
# of regions around one; and weights of networks and gates around zero.
_FEATURES, _REGIONS, _WEIGHTS = 1.0, 1.5, 1.0
# The same of keys around one, and by how much features are held more tightly beside them.
_KEYS, _HELD = 1.0, 0.5
# The same of the weights of an encoder, and its frequencies for each feature.
_NETWORK, _FREQUENCIES = 3.0, 8


@dataclass(frozen=True)
class Base:
    """A metric, whose features have log-factors to be learned.

    Attributes
    ----------
    matrix : ndarray of shape (n_features, n_coordinates)
    n_plain : int
        Features that are no ranks, the first ones: what rows are told apart by.
    is_scalar : bool
        Whether there is one log-factor for all features.
    """

    matrix: Array
    n_plain: int
    is_scalar: bool

    @property
    def n_parameters(self) -> int:
        """Log-factors."""
        return 1 if self.is_scalar else len(self.matrix)

    def coordinates(self, parameters: Tensor, features: Tensor) -> Tensor:
        """Coordinates of rows."""
        matrix = torch.as_tensor(self.matrix, dtype=features.dtype, device=features.device)
        return (features * torch.exp(parameters)) @ matrix

    def matrix_at(self, parameters: Array) -> Array:
        """The metric with its log-factors."""
        return np.exp(parameters)[:, None] * self.matrix

    def spread(self) -> Array:
        """Standard deviations of the prior."""
        return np.full(self.n_parameters, _FEATURES)


@dataclass(frozen=True)
class PlainModel:
    """The metric alone."""

    base: Base

    @property
    def n_parameters(self) -> int:
        """Log-factors of features."""
        return self.base.n_parameters

    def start(self) -> Array:
        """Nothing changed."""
        return np.zeros(self.n_parameters)

    def spread(self) -> Array:
        """Standard deviations of the prior."""
        return self.base.spread()

    def rows(self, parameters: Tensor, features: Tensor) -> RowNumbers:
        """Coordinates."""
        return RowNumbers([self.base.coordinates(parameters, features)])

    def modification(self, parameters: Array) -> Modification:
        """The metric."""
        return Modification((self.base.matrix_at(parameters),))


@dataclass(frozen=True)
class SampleModel:
    """A factor for the weight of each key."""

    base: Base
    n_keys: int

    @property
    def n_parameters(self) -> int:
        """Log-factors of features, then of keys."""
        return self.base.n_parameters + self.n_keys

    def start(self) -> Array:
        """Nothing changed."""
        return np.zeros(self.n_parameters)

    def spread(self) -> Array:
        """Standard deviations of the prior; the metric is not to narrow around wrong rows."""
        return np.append(_HELD * self.base.spread(), np.full(self.n_keys, _KEYS))

    def rows(self, parameters: Tensor, features: Tensor) -> RowNumbers:
        """Coordinates and log-factors."""
        own, factors = parameters.split([self.base.n_parameters, self.n_keys])
        return RowNumbers([self.base.coordinates(own, features)], log_factors=factors)

    def modification(self, parameters: Array) -> Modification:
        """The metric, and the log-factors of the keys, whose largest is zero."""
        own, factors = np.split(parameters, [self.base.n_parameters])
        return Modification((self.base.matrix_at(own),), log_factors=factors - factors.max())


@dataclass(frozen=True)
class DynamicModel:
    """A factor from a small network of the query: exp(tanh(x W + b) v)."""

    base: Base
    n_hidden: int
    seed: int

    @property
    def n_parameters(self) -> int:
        """Log-factors of features, then W, b and v."""
        return self.base.n_parameters + self.n_hidden * (self.base.n_plain + 2)

    def start(self) -> Array:
        """Nothing changed: v is zero."""
        rng = np.random.default_rng(self.seed)
        n_plain, n_hidden = self.base.n_plain, self.n_hidden
        weights = rng.standard_normal((n_plain, n_hidden)) / np.sqrt(n_plain)
        offset = rng.uniform(-1.0, 1.0, n_hidden)
        parts = np.zeros(self.base.n_parameters), weights.ravel(), offset, np.zeros(n_hidden)
        return np.concatenate(parts)

    def spread(self) -> Array:
        """Standard deviations of the prior; W and b stay near where they start."""
        rest = self.n_parameters - self.base.n_parameters
        return np.append(self.base.spread(), np.full(rest, _WEIGHTS))

    def rows(self, parameters: Tensor, features: Tensor) -> RowNumbers:
        """Coordinates and log-scales."""
        sizes = self.base.n_plain * self.n_hidden, self.n_hidden, self.n_hidden
        own, weights, offset, outer = parameters.split([self.base.n_parameters, *sizes])
        plain = features[:, : self.base.n_plain]
        hidden = torch.tanh(plain @ weights.reshape(self.base.n_plain, -1) + offset)
        return RowNumbers([self.base.coordinates(own, features)], log_scales=hidden @ outer)

    def modification(self, parameters: Array) -> Modification:
        """The metric, and the network."""
        sizes = [self.base.n_parameters, self.base.n_plain * self.n_hidden, self.n_hidden]
        own, weights, offset, outer = np.split(parameters, np.cumsum(sizes))
        network = NetworkScale(weights.reshape(self.base.n_plain, -1), offset, outer)
        return Modification((self.base.matrix_at(own),), scale=network)


@dataclass(frozen=True)
class HierarchicalModel:
    """A factor for each of some regions, which rows belong to by degrees.

    Attributes
    ----------
    base : Base
    regions : RegionScale
        Where they are.
    memberships : ndarray of shape (n_rows, n_regions)
        Of the rows.
    """

    base: Base
    regions: RegionScale
    memberships: Array

    @property
    def n_parameters(self) -> int:
        """Log-factors of features, then of regions."""
        return self.base.n_parameters + self.memberships.shape[1]

    def start(self) -> Array:
        """Nothing changed."""
        return np.zeros(self.n_parameters)

    def spread(self) -> Array:
        """Standard deviations of the prior."""
        return np.append(self.base.spread(), np.full(self.memberships.shape[1], _REGIONS))

    def rows(self, parameters: Tensor, features: Tensor) -> RowNumbers:
        """Coordinates and log-scales."""
        own, factors = parameters.split([self.base.n_parameters, self.memberships.shape[1]])
        belongs = torch.as_tensor(self.memberships, dtype=features.dtype, device=features.device)
        return RowNumbers([self.base.coordinates(own, features)], log_scales=belongs @ factors)

    def modification(self, parameters: Array) -> Modification:
        """The metric, and the regions."""
        own, factors = np.split(parameters, [self.base.n_parameters])
        regions = replace(self.regions, log_factors=factors)
        return Modification((self.base.matrix_at(own),), scale=regions)


@dataclass(frozen=True)
class HeadsModel:
    """Several metrics, mixed by gates softmax(x G + b) of the query.

    Attributes
    ----------
    base : Base
    matrix, offset : ndarray of shape (n_plain, n_heads), (n_heads,)
        G and b at first: where each head counts.
    """

    base: Base
    matrix: Array
    offset: Array

    @property
    def n_parameters(self) -> int:
        """Log-factors of the features of each head, then G and b."""
        return len(self.offset) * (self.base.n_parameters + self.base.n_plain + 1)

    def start(self) -> Array:
        """All heads alike."""
        metrics = np.zeros(len(self.offset) * self.base.n_parameters)
        return np.concatenate([metrics, self.matrix.ravel(), self.offset])

    def spread(self) -> Array:
        """Standard deviations of the prior; gates stay near where they start."""
        metrics = np.tile(self.base.spread(), len(self.offset))
        return np.append(metrics, np.full(self.n_parameters - metrics.size, 2.0 * _WEIGHTS))

    def rows(self, parameters: Tensor, features: Tensor) -> RowNumbers:
        """Coordinates of each head, and gates."""
        n_heads, n_own = len(self.offset), self.base.n_parameters
        sizes = n_heads * n_own, self.base.n_plain * n_heads, n_heads
        metrics, matrix, offset = parameters.split(sizes)
        heads = [self.base.coordinates(own, features) for own in metrics.reshape(n_heads, n_own)]
        plain = features[:, : self.base.n_plain]
        logits = plain @ matrix.reshape(self.base.n_plain, n_heads) + offset
        return RowNumbers(heads, gates=torch.softmax(logits, dim=1))

    def modification(self, parameters: Array) -> Modification:
        """The metric of each head, and the gates."""
        n_heads, n_own = len(self.offset), self.base.n_parameters
        sizes = n_heads * n_own, n_heads * (n_own + self.base.n_plain)
        metrics, matrix, offset = np.split(parameters, sizes)
        matrices = [self.base.matrix_at(own) for own in metrics.reshape(n_heads, n_own)]
        gates = LinearGates(matrix.reshape(self.base.n_plain, n_heads), offset)
        return Modification(tuple(matrices), gates=gates)


@dataclass(frozen=True)
class MixtureModel:
    """The learned metric mixed with a fixed one, in the same shares everywhere.

    Attributes
    ----------
    base : Base
    fixed : ndarray of shape (n_features, n_coordinates)
    share : float
        Of the learned weights at first.
    factor : float
        What the learned metric is multiplied with at first.
    """

    base: Base
    fixed: Array
    share: float
    factor: float

    @property
    def n_parameters(self) -> int:
        """Log-factors of features, then the logit of their share."""
        return self.base.n_parameters + 1

    def start(self) -> Array:
        """The given share and factor."""
        logit = np.log(self.share / (1.0 - self.share))
        return np.append(np.full(self.base.n_parameters, np.log(self.factor)), logit)

    def spread(self) -> Array:
        """Standard deviations of the prior."""
        return np.append(self.base.spread(), 2.0 * _WEIGHTS)

    def rows(self, parameters: Tensor, features: Tensor) -> RowNumbers:
        """Coordinates of both, and their shares."""
        own, logit = parameters[:-1], parameters[-1]
        fixed = torch.as_tensor(self.fixed, dtype=features.dtype, device=features.device)
        share = torch.sigmoid(logit)
        gates = torch.stack([share, 1.0 - share]).expand(len(features), 2)
        return RowNumbers([self.base.coordinates(own, features), features @ fixed], gates=gates)

    def modification(self, parameters: Array) -> Modification:
        """Both metrics, and their shares."""
        share = 1.0 / (1.0 + np.exp(-parameters[-1]))
        gates = ConstantGates(np.array([share, 1.0 - share]))
        return Modification((self.base.matrix_at(parameters[:-1]), self.fixed), gates=gates)


@dataclass(frozen=True)
class EncoderModel:
    """Coordinates of a network, beside those of the metric.

    Attributes
    ----------
    base : Base
    sizes : tuple of int
        Of the hidden layers; the last is also the number of coordinates.
    seed : int
    """

    base: Base
    sizes: tuple[int, ...]
    seed: int

    def _shapes(self) -> list[tuple[int, ...]]:
        """Of the frequencies, of the weights and offset of each layer, and of the last matrix."""
        n_plain = self.base.n_plain
        inner = [n_plain * (2 * _FREQUENCIES + 1), *self.sizes]
        layers = [shape for pair in pairwise(inner) for shape in (pair, pair[1:])]
        return [(n_plain, _FREQUENCIES), *layers, (inner[-1], inner[-1])]

    @property
    def n_parameters(self) -> int:
        """Log-factors of features, then those of the network."""
        return self.base.n_parameters + sum(int(np.prod(shape)) for shape in self._shapes())

    def start(self) -> Array:
        """Next to nothing changed: the last matrix is small."""
        rng, parts = np.random.default_rng(self.seed), [np.zeros(self.base.n_parameters)]
        frequencies, *layers, outer = self._shapes()
        parts.append(0.3 * rng.standard_normal(frequencies))
        for shape in layers:
            is_offset = len(shape) == 1
            drawn = rng.standard_normal(shape) * np.sqrt(2.0 / shape[0])
            parts.append(np.zeros(shape) if is_offset else drawn)
        parts.append(0.3 * rng.standard_normal(outer) / np.sqrt(outer[0]))
        return np.concatenate([part.ravel() for part in parts])

    def spread(self) -> Array:
        """Standard deviations of the prior."""
        rest = self.n_parameters - self.base.n_parameters
        return np.append(self.base.spread(), np.full(rest, _NETWORK))

    def rows(self, parameters: Tensor, features: Tensor) -> RowNumbers:
        """Coordinates of the metric and the network side by side."""
        shapes = self._shapes()
        sizes = [self.base.n_parameters, *(int(np.prod(shape)) for shape in shapes)]
        own, *rest = parameters.split(sizes)
        frequencies, *layers, outer = (
            part.reshape(shape) for part, shape in zip(rest, shapes, strict=True)
        )
        x = features[:, : self.base.n_plain]
        angles = (2.0 * np.pi * frequencies * x[:, :, None]).flatten(start_dim=1)
        hidden = torch.cat([torch.sin(angles), torch.cos(angles), x], dim=1)
        for weights, offset in zip(layers[::2], layers[1::2], strict=True):
            hidden = torch.relu(hidden @ weights + offset)
        plain = self.base.coordinates(own, features)
        return RowNumbers([torch.cat([plain, hidden @ outer], dim=1)])

    def modification(self, parameters: Array) -> Modification:
        """The metric, and the network."""
        shapes = self._shapes()
        ends = np.cumsum([self.base.n_parameters, *(int(np.prod(shape)) for shape in shapes)])
        own, *rest = np.split(parameters, ends[:-1])
        frequencies, *layers, outer = (
            part.reshape(shape) for part, shape in zip(rest, shapes, strict=True)
        )
        pairs = tuple(zip(layers[::2], layers[1::2], strict=True))
        encoder = Encoder(frequencies, pairs, outer)
        return Modification((self.base.matrix_at(own),), encoder=encoder)
