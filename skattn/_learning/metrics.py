"""Metrics: parametrised maps from features to the coordinates in which kernels see distances.

With D the squared distance of a query q and a key k in coordinates z, and b_qi the derivatives of a
prediction in D_qi, the derivatives in a parameter p are

    d f(q) / d p = sum_i b_qi d D_qi / d p,

which for all metrics are sums of b times powers of the features: matrix products. A metric has
`n_parameters`, a `matrix` (n_features, n_coordinates) of parameters, and a `jacobian` (n_queries,
n_parameters), given b (n_queries, n_keys) and the features of queries and keys.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from skattn._geometry.distances import weighted_squares

Array = NDArray[np.float64]


@dataclass(frozen=True)
class DiagonalMetric:
    """A factor exp(theta) for each feature."""

    n_features: int

    @property
    def n_parameters(self) -> int:
        """One for each feature."""
        return self.n_features

    def matrix(self, parameters: Array) -> Array:
        """A diagonal matrix."""
        return np.diag(np.exp(parameters))

    def jacobian(self, parameters: Array, changes: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
        """2 exp(2 theta_j) sum_i b_qi (x_qj - x_ij)**2."""
        squares: Tensor = weighted_squares(changes, queries, keys)
        return squares * squares.new_tensor(2.0 * np.exp(2.0 * parameters))


@dataclass(frozen=True)
class ScalarMetric:
    """One factor exp(theta) for all features."""

    n_features: int
    n_parameters: int = 1

    def matrix(self, parameters: Array) -> Array:
        """A multiple of the identity."""
        return np.exp(parameters[0]) * np.eye(self.n_features)

    def jacobian(self, parameters: Array, changes: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
        """Sum of the derivatives of all features."""
        each = DiagonalMetric(self.n_features)
        common = np.full(self.n_features, parameters[0])
        return each.jacobian(common, changes, queries, keys).sum(dim=1, keepdim=True)


@dataclass(frozen=True)
class LinearMetric:
    """A linear map ``base + scale * B`` in its leading rows and columns, and `base` elsewhere.

    The entries of B are the parameters; `base` is (n_features, n_coordinates), `scale` has a number
    for each row of B.
    """

    base: Array
    scale: Array
    n_columns: int

    @property
    def n_parameters(self) -> int:
        """One for each entry of B."""
        return len(self.scale) * self.n_columns

    def matrix(self, parameters: Array) -> Array:
        """The map."""
        matrix = self.base.copy()
        departure = self.scale[:, None] * parameters.reshape(len(self.scale), self.n_columns)
        matrix[: len(self.scale), : self.n_columns] += departure
        return matrix

    def jacobian(self, parameters: Array, changes: Tensor, queries: Tensor, keys: Tensor) -> Tensor:
        """2 scale_a sum_i b_qi (x_qa - x_ia) (z_qc - z_ic), for each entry (a, c)."""
        matrix = keys.new_tensor(self.matrix(parameters)[:, : self.n_columns])
        mapped, mapped_keys = queries @ matrix, keys @ matrix
        n_rows = len(self.scale)
        queries, keys = queries[:, :n_rows], keys[:, :n_rows]
        total = changes.sum(dim=1)[:, None, None]
        pairs = (keys[:, :, None] * mapped_keys[:, None, :]).reshape(len(keys), -1)
        products = (
            queries[:, :, None] * mapped[:, None, :] * total
            - queries[:, :, None] * (changes @ mapped_keys)[:, None, :]
            - (changes @ keys)[:, :, None] * mapped[:, None, :]
            + (changes @ pairs).reshape(len(queries), n_rows, self.n_columns)
        )
        return (products * products.new_tensor(2.0 * self.scale[:, None])).flatten(start_dim=1)


Metric = DiagonalMetric | ScalarMetric | LinearMetric
