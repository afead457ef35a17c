"""Attention and products: the weight of each key, and the columns that are summed under it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from skattn._geometry.training_set import Exclusion
from skattn.kernels import Kernel

__all__ = ["Attention", "KeyScale", "Products"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Two computations of a distance differ by so much of it.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class KeyScale:
    """A radius for each key, whose kernel weighs ``K(|q - k_i| / r_i) / r_i**n_features``.

    Attributes
    ----------
    radius : ndarray of shape (n_keys,)
        Positive.
    without : ndarray of shape (n_keys,) or None
        The radius of each key in the absence of one row within `radius` of it: what counts for
        queries that are such rows, left out.
    """

    radius: Array
    without: Array | None = None


@dataclass(frozen=True)
class Attention:
    """The weight of each key for each query: no values, no degree, no mixture.

    Attributes
    ----------
    queries, keys : ndarray of shape (n_queries or n_keys, n_features)
        Coordinates: centred and divided by the bandwidth, at most 1e100 in absolute value.
    kernel : Kernel
        What weight a distance earns.
    log_weights : ndarray of shape (n_keys,)
        Logarithms of the sample weights, finite; the largest is subtracted from all.
    excluded : Exclusion or None
        Keys that each query must not see.
    query_scale : ndarray of shape (n_queries,) or None
        Positive; distances of a query are divided by it.
    key_scale : KeyScale or None
        Radii of the keys. Not together with `query_scale`.
    log_offset : float
        Number that was subtracted from the log-weights as they were given.
    """

    queries: Array
    keys: Array
    kernel: Kernel
    log_weights: Array
    excluded: Exclusion | None = None
    query_scale: Array | None = None
    key_scale: KeyScale | None = None
    log_offset: float = 0.0

    def __post_init__(self) -> None:
        """Subtract the largest log-weight, once for all sums."""
        if (largest := float(self.log_weights.max())) != 0.0:
            object.__setattr__(self, "log_weights", self.log_weights - largest)
            object.__setattr__(self, "log_offset", self.log_offset + largest)

    @property
    def has_scales(self) -> bool:
        """Whether bandwidths vary with the query or the key."""
        return self.query_scale is not None or self.key_scale is not None

    @property
    def n_pairs(self) -> int:
        """Number of pairs of queries and keys."""
        return len(self.queries) * len(self.keys)

    def take(self, queries: slice | Indices) -> Attention:
        """Attention of some of the queries."""
        return replace(
            self,
            queries=self.queries[queries],
            excluded=None if self.excluded is None else self.excluded.take(queries),
            query_scale=None if self.query_scale is None else self.query_scale[queries],
        )

    def over(self, keys: slice) -> Attention:
        """Attention over some of the keys; moments over disjoint slices merge to those over all."""
        excluded, scale = self.excluded, self.key_scale
        if excluded is not None:  # ranges may begin before these keys, and end after them
            start, stop = excluded.start - keys.start, excluded.stop - keys.start
            excluded = Exclusion(start, stop, excluded.retained)
        if scale is not None:
            without = None if scale.without is None else scale.without[keys]
            scale = KeyScale(scale.radius[keys], without)
        return replace(
            self,
            keys=self.keys[keys],
            log_weights=self.log_weights[keys],
            excluded=excluded,
            key_scale=scale,
            log_offset=0.0,
        )

    def widened(self, multiple: float) -> Attention:
        """Attention at a multiple of its bandwidths."""
        return replace(self, queries=self.queries / multiple, keys=self.keys / multiple)

    def inverse_scales(self, distances: Array) -> Array:
        """Factors of the distances (n_queries, n_keys), in a shape that broadcasts."""
        if self.query_scale is not None:
            return np.reciprocal(self.query_scale)[:, None]
        if self.key_scale is None:
            return np.ones((1, 1))
        if self.key_scale.without is None:
            return np.reciprocal(self.key_scale.radius)[None, :]
        near = distances <= self.key_scale.radius * (1.0 + _ROUNDING)
        if self.excluded is not None:  # queries that leave nothing out are no neighbours
            near &= (self.excluded.stop > self.excluded.start)[:, None]
        inverse: Array = 1.0 / np.where(near, self.key_scale.without, self.key_scale.radius)
        return inverse


@dataclass(frozen=True)
class Products:
    """Columns of the keys whose weighted sums are wanted.

    At degree 0 the values v; at degree 1 the values, the regressors r of local lines, and the
    products of all pairs of regressors, and of regressors and values: v, r, r r', r v'. They are
    formed block by block, never for all keys and pairs at once.

    Attributes
    ----------
    values : ndarray of shape (n_keys, n_outputs)
        Of order one.
    regressors : ndarray of shape (n_keys, n_directions) or None
        None at degree 0.
    """

    values: Array
    regressors: Array | None = None

    @property
    def degree(self) -> int:
        """The degree of the polynomial that can be fitted to the sums."""
        return 0 if self.regressors is None else 1

    @property
    def n_columns(self) -> int:
        """Number of columns that are summed."""
        n_outputs = self.values.shape[1]
        d = 0 if self.regressors is None else self.regressors.shape[1]
        return n_outputs + d + d * (d + 1) // 2 + d * n_outputs

    def over(self, keys: slice) -> Products:
        """Products of some of the keys."""
        regressors = None if self.regressors is None else self.regressors[keys]
        return Products(self.values[keys], regressors)

    def columns(self, center: Array) -> Array:
        """All columns, (n_keys, n_columns), regressors centred at `center` (n_directions,)."""
        if self.regressors is None:
            return self.values
        shifted, n_keys = self.regressors - center, len(self.values)
        first, second = np.triu_indices(shifted.shape[1])
        cross = (shifted[:, :, None] * self.values[:, None, :]).reshape(n_keys, -1)
        return np.hstack([self.values, shifted, shifted[:, first] * shifted[:, second], cross])
