"""A factor of the metric from a small network of the query."""

from __future__ import annotations

from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np

from skattn._sklearn import Interval
from skattn._smoother import Component
from skattn.kernels import namespace
from skattn.variants import _model
from skattn.variants._model import Array, Components, Model, Parts, RowNumbers, Tensor

# Standard deviation of the prior of the network's weights around where they start.
_WEIGHTS = 1.0


class QueryScale(_model.Variant):
    r"""A learned factor of the whole metric at each query, from a small network.

    The factor is :math:`\exp(\tanh(xW + b)\,v)` of the standardised features: bounded, however far
    the query. With the Laplace kernel, logits are then the energies
    :math:`-w(x)\, \|A(x - x_i)\|`. `query_factors` of the estimator gives it.

    Parameters
    ----------
    n_hidden : int, default=8
        Units of the network: ``n_hidden * (n_features + 2)`` numbers.
    """

    _parameter_constraints: ClassVar = {"n_hidden": [Interval(Integral, 1, None, closed="left")]}

    def __init__(self, n_hidden=8):  # type: ignore[no-untyped-def]
        self.n_hidden = n_hidden

    def models(self, beginning: _model.Beginning) -> list[Model]:
        """The only candidate: nothing changed, since v is zero."""
        rng, n_plain = np.random.default_rng(beginning.seed), beginning.metric.n_plain
        weights = rng.standard_normal((n_plain, self.n_hidden)) / np.sqrt(n_plain)
        starts = weights, rng.uniform(-1.0, 1.0, self.n_hidden), np.zeros(self.n_hidden)
        network = [_model.ParameterBlock(start, _WEIGHTS) for start in starts]
        return [_Model(beginning.metric, [beginning.metric.block(), *network])]


class _Model(Model):
    def forward(self, parts: Parts, features: Tensor) -> RowNumbers:
        log_scales = _log_scales(parts[1:], features[:, : self.metric.n_plain])
        return RowNumbers([self.metric.coordinates(parts[0], features)], log_scales=log_scales)

    def smoother(
        self, parts: Parts, components: Components, standard: _model.StandardFeatures
    ) -> Component:
        return replace(components[0], query_scale=NetworkScale(standard, tuple(parts[1:])))


def _log_scales(network: Parts, x: Any) -> Any:
    """Logarithms of the factors of rows."""
    weights, offset, outer = network
    return namespace(x).tanh(x @ weights + offset) @ outer


@dataclass(frozen=True)
class NetworkScale:
    """Divisors of the distances of queries, by a network (W, b, v)."""

    standard: _model.StandardFeatures
    network: tuple[Array, ...]

    def scales(self, X: Array, coordinates: Array, excluded: Any) -> Array:
        """Divisors at rows (n_rows, n_features), (n_rows,)."""
        return np.asarray(np.exp(-_log_scales(self.network, self.standard.coordinates(X))))
