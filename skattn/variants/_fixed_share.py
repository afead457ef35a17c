"""A share of fixed attention beside the learned one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skattn import _smoother
from skattn._smoother import Component
from skattn.variants._model import (
    Beginning,
    LearnableMetric,
    Model,
    ParameterBlock,
    Parts,
    RowNumbers,
    StandardFeatures,
    Variant,
)

Array = NDArray[np.float64]

# Shares of the learned attention, and factors of its metric, that are tried as starts.
_SHARES, _FACTORS = (0.25, 0.5, 0.75, 1.0), (1.0, 2.0, 4.0)
# Standard deviation of the prior of the share around where it starts.
_SHARE = 0.5


class FixedShare(Variant):
    r"""A share of fixed, closed-form attention beside the learned one.

    Predictions are :math:`(1 - \lambda) f(x) + \lambda f_0(x)`, with :math:`f_0` under the best
    common factor of all standardised features, which stays as it is. The fixed share
    :math:`\lambda`, from 0 to 1, is ``members_[0].shares[1]``. Has no parameters.

    Examples
    --------
    >>> from skattn import ParametricAttentionRegressor
    >>> from skattn.variants import FixedShare
    >>> model = ParametricAttentionRegressor(variant=FixedShare())
    """

    def models(self, beginning: Beginning) -> list[Model]:
        """Some shares of the learned attention, and common factors of its metric."""
        fixed = beginning.common_scale * np.eye(len(beginning.metric.matrix))
        pairs = product(_SHARES, _FACTORS)
        return [_Model(beginning.metric, fixed, share, factor) for share, factor in pairs]


class _Model(Model):
    def __init__(
        self, metric: LearnableMetric, fixed: Array, share: float, factor: float
    ) -> None:
        learned = ParameterBlock(np.array([share]), _SHARE, bounds=(0.0, 1.0))
        super().__init__(metric, [metric.block(np.log(factor)), learned])
        self.fixed = fixed

    def forward(self, parts: Parts, features: Any) -> RowNumbers:
        factors, share = parts
        fixed = features @ features.new_tensor(self.fixed)
        gates = _both(share).expand(len(features), 2)
        return RowNumbers([self.metric.coordinates(factors, features), fixed], gates=gates)

    def matrices(self, parts: Parts) -> list[Array]:
        return [self.metric.matrix_at(parts[0]), self.fixed]

    def smoother(
        self, parts: Parts, components: Sequence[Component], standard: StandardFeatures
    ) -> _smoother.Mixture:
        (share,) = parts[1]
        return _smoother.Mixture(tuple(components), ConstantGate(np.array([share, 1.0 - share])))


def _both(share: Any) -> Any:
    """The share (1,) of the learned attention and that of the fixed one, a tensor (2,)."""
    return share * share.new_tensor([1.0, -1.0]) + share.new_tensor([0.0, 1.0])


@dataclass(frozen=True)
class ConstantGate:
    """The same shares everywhere.

    Attributes
    ----------
    constant : ndarray of shape (n_components,)
        The shares.
    """

    constant: Array

    def shares(self, X: Array) -> Array:
        """Shares at rows (n_rows, n_features), of shape (n_rows, n_components)."""
        return np.tile(self.constant, (len(X), 1))
