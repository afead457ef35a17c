"""A factor of all bandwidths from a small network of the query."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from skattn._geometry.training_set import Exclusion
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

# Standard deviation of the prior of the network's weights around where they start.
_WEIGHTS = 1.0


class QueryScale(Variant):
    r"""A learned factor of the whole metric at each query, from a small network.

    The factor is :math:`\exp(\tanh(xW + b)\,v)` of the standardised features: bounded, however far
    the query. With the Laplace kernel, logits are then the energies
    :math:`-w(x)\, \|A(x - x_i)\|`. `query_factors` of the estimator gives it.

    Parameters
    ----------
    n_hidden : int, default=8
        Units of the network: ``n_hidden * (n_features + 2)`` numbers.

    Examples
    --------
    >>> from skattn import ParametricAttentionRegressor
    >>> from skattn.variants import QueryScale
    >>> model = ParametricAttentionRegressor(variant=QueryScale(n_hidden=4))
    """

    _parameter_constraints: ClassVar = {"n_hidden": [Interval(Integral, 1, None, closed="left")]}

    def __init__(self, n_hidden=8):  # type: ignore[no-untyped-def]
        self.n_hidden = n_hidden

    def models(self, beginning: Beginning) -> list[Model]:
        """The only candidate: nothing changed, since v is zero."""
        rng, n_plain = np.random.default_rng(beginning.seed), beginning.metric.n_plain
        weights = rng.standard_normal((n_plain, self.n_hidden)) / np.sqrt(n_plain)
        starts = weights, rng.uniform(-1.0, 1.0, self.n_hidden), np.zeros(self.n_hidden)
        network = [ParameterBlock(start, _WEIGHTS) for start in starts]
        return [_Model(beginning.metric, [beginning.metric.block(), *network])]


class _Model(Model):
    def forward(self, parts: Parts, features: Any) -> RowNumbers:
        factors, *network = parts
        log_scales = _log_scales(network, features[:, : self.metric.n_plain])
        return RowNumbers([self.metric.coordinates(factors, features)], log_scales=log_scales)

    def smoother(
        self, parts: Parts, components: Sequence[Component], standard: StandardFeatures
    ) -> Component:
        (component,) = components
        return replace(component, query_scale=NetworkScale(standard, *parts[1:]))


def _log_scales(network: Parts, x: Any) -> Any:
    """Logarithms of the factors of rows, arrays or tensors."""
    weights, offset, outer = network
    hidden = x @ weights + offset
    return (np.tanh(hidden) if isinstance(hidden, np.ndarray) else hidden.tanh()) @ outer


@dataclass(frozen=True)
class NetworkScale:
    """Divisors of the distances of queries, exp(-tanh(x W + b) v).

    Attributes
    ----------
    standard : StandardFeatures
        x of rows.
    weights : ndarray of shape (n_plain, n_hidden)
        W.
    offset, outer : ndarray of shape (n_hidden,)
        b and v.
    """

    standard: StandardFeatures
    weights: Array
    offset: Array
    outer: Array

    def scales(self, X: Array, coordinates: Array, excluded: Exclusion | None) -> Array:
        """Divisors at rows (n_rows, n_features), (n_rows,)."""
        network, x = (self.weights, self.offset, self.outer), self.standard.coordinates(X)
        return np.exp(-_log_scales(network, x))  # type: ignore[no-any-return]
