"""Several metrics, mixed by gates of the query."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Integral
from typing import ClassVar

import numpy as np

from skattn import _smoother
from skattn._sklearn import Interval
from skattn.variants import _model
from skattn.variants._model import Array, Components, Model, Parts, RowNumbers, Tensor, softmax
from skattn.variants._region_scale import Regions

# Standard deviation of the prior of gates around where they start.
_GATES = 2.0
# Features along which components are tried to be parted.
_MOST_TRIALS = 6


class Mixture(_model.Variant):
    r"""Several learned metrics, each with a share of every prediction.

    Component h has factors of its own for all features; predictions are
    :math:`f(x) = \sum_h g_h(x) f_h(x)` with gates :math:`g(x) = \operatorname{softmax}(xG + b)` of
    the standardised features. `attention_by_component` of the estimator gives weights and gates.

    Parameters
    ----------
    n_components : int, default=2
        Number of metrics; ``n_features + 1`` numbers more for each.

    Examples
    --------
    >>> from skattn import ParametricAttentionRegressor
    >>> from skattn.variants import Mixture
    >>> model = ParametricAttentionRegressor(variant=Mixture(n_components=3))
    """

    _parameter_constraints: ClassVar = {
        "n_components": [Interval(Integral, 2, None, closed="left")]
    }
    trial_steps = 10

    def __init__(self, n_components=2):  # type: ignore[no-untyped-def]
        self.n_components = n_components

    def models(self, beginning: _model.Beginning) -> list[Model]:
        """Equal components, parted by clusters, or along a feature that the metric counts."""
        x, metric, n_components = beginning.x, beginning.metric, self.n_components
        regions = Regions.of(x, n_components)
        places = np.arange(n_components) % len(regions.centers)  # shared, of few distinct rows
        parted = [Regions(regions.centers[places], regions.width)]
        lengths = np.linalg.norm(metric.matrix[: metric.n_plain], axis=1)
        for feature in np.argsort(-lengths, kind="stable")[:_MOST_TRIALS]:
            levels = np.quantile(x[:, feature], (np.arange(n_components) + 0.5) / n_components)
            centers = np.zeros((n_components, x.shape[1]))
            centers[:, feature] = levels
            parted.append(Regions(centers, max(float(np.ptp(levels)) / n_components, 0.1)))
        return [_Model(metric, *each.gates()) for each in parted]


class _Model(Model):
    def __init__(self, metric: _model.LearnableMetric, matrix: Array, offset: Array) -> None:
        common, block = metric.block(), _model.ParameterBlock
        factors = block(np.tile(common.start, (len(offset), 1)), common.spread)
        super().__init__(metric, [factors, block(matrix, _GATES), block(offset, _GATES)])

    def forward(self, parts: Parts, features: Tensor) -> RowNumbers:
        factors, matrix, offset = parts
        coordinates = [self.metric.coordinates(each, features) for each in factors]
        x = features[:, : self.metric.n_plain]
        return RowNumbers(coordinates, gates=softmax(x @ matrix + offset))

    def matrices(self, parts: Parts) -> list[Array]:
        return [self.metric.matrix_at(each) for each in parts[0]]

    def smoother(
        self, parts: Parts, components: Components, standard: _model.StandardFeatures
    ) -> _smoother.Mixture:
        return _smoother.Mixture(tuple(components), LinearGate(standard, *parts[1:]))


@dataclass(frozen=True)
class LinearGate:
    """Shares softmax(x G + b); far away, one component has them all."""

    standard: _model.StandardFeatures
    matrix: Array
    offset: Array

    def shares(self, X: Array) -> Array:
        """Shares at rows (n_rows, n_features), of shape (n_rows, n_components)."""
        logits = self.standard.coordinates(X) @ self.matrix + self.offset
        return np.asarray(softmax(logits))
