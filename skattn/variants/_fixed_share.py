"""A share of fixed attention beside the learned one."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np

from skattn import _smoother
from skattn.variants import _model
from skattn.variants._model import Array, Components, Model, Parts, RowNumbers, Tensor

# Shares of the learned attention, and factors of its metric, that are tried as starts.
_SHARES, _FACTORS = (0.25, 0.5, 0.75, 1.0), (1.0, 2.0, 4.0)
# Standard deviation of the prior of the share around where it starts.
_SHARE = 0.5


class FixedShare(_model.Variant):
    r"""A share of fixed, closed-form attention beside the learned one.

    Predictions are :math:`(1 - \lambda) f(x) + \lambda f_0(x)`, with :math:`f_0` under the best
    common factor of all standardised features, which stays as it is. The fixed share
    :math:`\lambda`, from 0 to 1, is ``members_[0].shares[1]``. No parameters.
    """

    def models(self, beginning: _model.Beginning) -> list[Model]:
        """Some shares of the learned attention, and common factors of its metric."""
        fixed = beginning.common_scale * np.eye(len(beginning.metric.matrix))
        pairs = product(_SHARES, _FACTORS)
        return [_Model(beginning.metric, fixed, share, factor) for share, factor in pairs]


class _Model(Model):
    def __init__(
        self, metric: _model.LearnableMetric, fixed: Array, share: float, factor: float
    ) -> None:
        learned = _model.ParameterBlock(np.array([share]), _SHARE, bounds=(0.0, 1.0))
        super().__init__(metric, [metric.block(np.log(factor)), learned])
        self.fixed = fixed

    def forward(self, parts: Parts, features: Tensor) -> RowNumbers:
        factors, share = parts
        both = share * share.new_tensor([1.0, -1.0]) + share.new_tensor([0.0, 1.0])
        fixed = features @ features.new_tensor(self.fixed)
        learned = self.metric.coordinates(factors, features)
        return RowNumbers([learned, fixed], gates=both.expand(len(features), 2))

    def matrices(self, parts: Parts) -> list[Array]:
        return [self.metric.matrix_at(parts[0]), self.fixed]

    def smoother(
        self, parts: Parts, components: Components, standard: _model.StandardFeatures
    ) -> _smoother.Mixture:
        (share,) = parts[1]
        return _smoother.Mixture(tuple(components), ConstantGate(np.array([share, 1.0 - share])))


@dataclass(frozen=True)
class ConstantGate:
    """Shares (n_components,) that are the same everywhere."""

    constant: Array

    def shares(self, X: Array) -> Array:
        """Shares at rows (n_rows, n_features), of shape (n_rows, n_components)."""
        return np.tile(self.constant, (len(X), 1))
