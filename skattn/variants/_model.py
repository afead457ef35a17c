"""Models that depend on the rows: functions of parameters, trained on tensors, applied with NumPy.

A model gives every row coordinates z for each of its components, and may give it gates g, a
log-scale r and a log-factor c: all functions of the row alone. Between a query q and a key i,

    D_hqi = exp(2 r_q) |z_hq - z_hi|**2,   w_hqi ~ exp(c_i) K(D_hqi),   f(q) = sum_h g_hq f_h(q),

with f_h the mean or local line under w_h.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from skattn._geometry.transforms import Scaler
from skattn._sklearn import check_parameters
from skattn._smoother import Component, Mixture

Array = NDArray[np.float64]
ArrayOrTensor = Any
Tensor = Any  # whose type is known only where PyTorch is installed
Parts = Sequence[ArrayOrTensor]
Components = Sequence[Component]

# Standard deviation that the prior gives log-factors of features around those of the given metric.
_FEATURES = 1.0
# Parameters stay within this of where they start.
_FARTHEST = 8.0


@dataclass(frozen=True)
class RowNumbers:
    """Numbers that a model gives each row, as tensors; None for what it does not give.

    Attributes
    ----------
    coordinates : list of Tensor of shape (n_rows, n_coordinates)
        Coordinates for each component.
    gates : Tensor of shape (n_rows, n_components) or None
        Shares of the components, for rows as queries.
    log_scales, log_factors : Tensor of shape (n_rows,) or None
        Logarithms of what multiplies all factors of a row as query, its weights as key.
    """

    coordinates: list[Tensor]
    gates: Tensor | None = None
    log_scales: Tensor | None = None
    log_factors: Tensor | None = None

    def tensors(self) -> list[Tensor]:
        """All tensors."""
        others = (self.gates, self.log_scales, self.log_factors)
        return [*self.coordinates, *(other for other in others if other is not None)]

    def mapped(self, change: Callable[[Tensor], Tensor]) -> RowNumbers:
        """Numbers made of each tensor."""
        others = (self.gates, self.log_scales, self.log_factors)
        rest = [None if other is None else change(other) for other in others]
        return RowNumbers([change(part) for part in self.coordinates], *rest)


@dataclass(frozen=True)
class StandardFeatures:
    """Standardised features, less their medians: what tells rows apart."""

    scaler: Scaler
    middle: Array

    def coordinates(self, rows: Array) -> Array:
        """Standardised features of rows (n_rows, n_features), (n_rows, n_plain)."""
        return self.scaler.coordinates(rows) - self.middle


@dataclass(frozen=True)
class ParameterBlock:
    """Some of the parameters of a model.

    Attributes
    ----------
    start : ndarray
        First values, at which the prior is centred.
    spread : float
        Standard deviation of the prior.
    bounds : pair of float, default=None
        Lowest and highest value; None for 8 below and above the start.
    """

    start: Array
    spread: float
    bounds: tuple[float, float] | None = None

    def limits(self) -> tuple[Array, Array]:
        """Lower and upper bounds, each of shape (n_values,)."""
        start = self.start.ravel()
        if self.bounds is None:
            return start - _FARTHEST, start + _FARTHEST
        return np.full_like(start, self.bounds[0]), np.full_like(start, self.bounds[1])


@dataclass(frozen=True)
class LearnableMetric:
    """A metric with log-factors of its features, to be learned further.

    Attributes
    ----------
    matrix : ndarray of shape (n_features, n_coordinates)
        Multiplied with features and, behind them, ranks, where the log-factors are zero.
    n_plain : int
        Number of features that are no ranks.
    is_scalar : bool
        Whether there is one log-factor for all features.
    """

    matrix: Array
    n_plain: int
    is_scalar: bool

    def block(self, start: float = 0.0, spread: float = _FEATURES) -> ParameterBlock:
        """Log-factors, all of which start at the same number."""
        return ParameterBlock(np.full(1 if self.is_scalar else len(self.matrix), start), spread)

    def coordinates(self, log_factors: Tensor, features: Tensor) -> Tensor:
        """Coordinates of rows (n_rows, n_features)."""
        return (features * log_factors.exp()) @ features.new_tensor(self.matrix)

    def matrix_at(self, log_factors: Array) -> Array:
        """The metric with its log-factors."""
        return np.asarray(np.exp(log_factors)[:, None] * self.matrix)


class Model:
    """A metric, and what makes it depend on the rows, as a function of blocks of parameters.

    By default the metric alone. A subclass passes its blocks, log-factors of the features first,
    and defines `forward`, on tensors, and `smoother`, with NumPy, which must agree.
    """

    def __init__(self, metric: LearnableMetric, blocks: Sequence[ParameterBlock]) -> None:
        self.metric, self.blocks = metric, tuple(blocks)
        self.start = np.concatenate([block.start.ravel() for block in blocks])
        self.spread = np.concatenate([np.full(each.start.size, each.spread) for each in blocks])
        lower, upper = zip(*(block.limits() for block in blocks), strict=True)
        self.bounds = np.concatenate(lower), np.concatenate(upper)

    def split(self, parameters: ArrayOrTensor) -> list[ArrayOrTensor]:
        """Parameters (n_parameters,) block by block."""
        parts, first = [], 0
        for block in self.blocks:
            parts.append(parameters[first : first + block.start.size].reshape(block.start.shape))
            first += block.start.size
        return parts

    def forward(self, parts: Parts, features: Tensor) -> RowNumbers:
        """Numbers of all rows (n_rows, n_features); differentiable in the parameters."""
        return RowNumbers([self.metric.coordinates(parts[0], features)])

    def matrices(self, parts: Parts) -> list[Array]:
        """Metric of each component, (n_features, n_coordinates)."""
        return [self.metric.matrix_at(parts[0])]

    def smoother(
        self, parts: Parts, components: Components, standard: StandardFeatures
    ) -> Component | Mixture:
        """Keys that predict, from a component under each of the `matrices`."""
        return components[0]

    def added_squares(self, parts: Parts, x: Array) -> Array:
        """Squared slopes of added coordinates in standardised features, in the shape of x."""
        return np.zeros(x.shape)


@dataclass(frozen=True)
class Beginning:
    """Start of a variant: what was learned before it.

    Attributes
    ----------
    metric : LearnableMetric
        The metric that was learned alone.
    x : ndarray of shape (n_keys, n_plain)
        Standardised features of the keys.
    common_scale : float
        The best common factor of all features.
    seed : int
        Seed of first values that are drawn.
    """

    metric: LearnableMetric
    x: Array
    common_scale: float
    seed: int


class Variant(BaseEstimator):
    """Base class of variants, which have parameters, their constraints, and `models`."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}
    #: Solvers that can learn it; the first one is meant by "auto".
    solvers: ClassVar[tuple[str, ...]] = ("lbfgs", "adam")
    #: Tolerance of "lbfgs": a step in which little happens is not to be the last one.
    tol: ClassVar[float] = 1e-5
    #: Learning rate of "adam".
    learning_rate: ClassVar[float] = 0.05
    #: Steps in which candidate models compete; with 0, their losses at the start are compared.
    trial_steps: ClassVar[int] = 0
    #: Whether it needs validation rows, which then are no keys: it could learn their targets.
    hides_validation: ClassVar[bool] = False
    #: Probability with which a query misses a key in a step of training.
    dropout = 0.0

    def check(self) -> None:
        """Refuse parameters that are out of range."""
        check_parameters(self)

    def models(self, beginning: Beginning) -> list[Model]:
        """Candidate models, of which the one that lowers the loss most is learned."""
        raise NotImplementedError(f"{type(self).__name__} defines no models.")


def softmax(logits: ArrayOrTensor) -> ArrayOrTensor:
    """Shares of the columns, which sum to 1 in each row."""
    if not isinstance(logits, np.ndarray):
        return logits.softmax(dim=1)
    shares = np.exp(logits - logits.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)
