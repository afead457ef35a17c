"""Local regression: attention of queries over keys, and the local fit that is read off it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skattn._attention import (
    Attention,
    BlockReader,
    Moments,
    Products,
    Resources,
    Want,
    WeightBlock,
    attend_blocks,
    attend_exactly,
)
from skattn._attention._blocks import queries_of_a_block
from skattn._attention._moments import row_moments, row_moments_exactly
from skattn._geometry.training_set import Exclusion
from skattn._geometry.transforms import Transform
from skattn._smoother.local_fit import Fit, LocalFit, LocalMean

__all__ = ["LocalRegression", "RowReader", "read_fits"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class LocalRegression:
    """Queries and the local fits they get.

    Attributes
    ----------
    attention : Attention
        What weight each key has for each query.
    products : Products
        Values of the keys and, at degree 1, their regressors.
    local_fit : LocalFit
        The mean, or a line.
    regressors : ndarray of shape (n_queries, n_directions) or None
        Regressors of the queries; None at degree 0.
    transform : Transform
        Takes derivatives in coordinates, or in regressors at degree 1, back to features.
    """

    attention: Attention
    products: Products
    local_fit: LocalFit
    regressors: Array | None
    transform: Transform

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return len(self.attention.queries)

    @property
    def n_keys(self) -> int:
        """Number of keys."""
        return len(self.attention.keys)

    @property
    def excluded(self) -> Exclusion | None:
        """Keys that each query must not see."""
        return self.attention.excluded

    @property
    def values(self) -> Array:
        """Values of the keys."""
        return self.products.values

    def take(self, queries: slice | Indices) -> LocalRegression:
        """The regression of some of the queries."""
        regressors = None if self.regressors is None else self.regressors[queries]
        return replace(self, attention=self.attention.take(queries), regressors=regressors)

    def excluding(self, excluded: Exclusion) -> LocalRegression:
        """Regression of these queries with other keys excluded."""
        return replace(self, attention=replace(self.attention, excluded=excluded))

    def widened(self, multiple: float) -> LocalRegression:
        """Regression of these queries at a multiple of the bandwidths."""
        return replace(self, attention=self.attention.widened(multiple))

    def means_of(self, values: Array) -> LocalRegression:
        """Weighted means of other values (n_keys, n_columns) under these attention weights."""
        means = replace(self, products=Products(values), local_fit=LocalMean())
        return replace(means, regressors=None)

    def mix(self, read: Callable[[LocalRegression], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Numbers read off this regression: the only one, so nothing is mixed."""
        return read(self)

    def reader(self, resources: Resources) -> RowReader:
        """Reader of attention weights, block by block."""
        return RowReader(self, resources)


class RowReader:
    """Attention weights, fits and rows of the smoother matrix of blocks of queries.

    Parameters
    ----------
    regression : LocalRegression
        Queries, keys and the local fit.
    resources : Resources
        Threads, memory and engine.
    """

    def __init__(self, regression: LocalRegression, resources: Resources) -> None:
        self.regression = regression
        attention = regression.attention
        n_queries = queries_of_a_block(attention) if regression.local_fit.degree > 0 else 64
        self.weights = BlockReader(attention, resources, n_queries)
        self.blocks = self.weights.blocks

    def read(self, queries: slice) -> WeightBlock:
        """Attention weights of a block of queries."""
        return self.weights.read(queries)

    def fitted(self, queries: slice) -> tuple[WeightBlock, Any]:
        """Attention weights of a block of queries, and the local fits under them."""
        block = self.read(queries)
        return block, fit_block(block, self.regression.take(queries))

    def smoother_rows(self, queries: slice) -> WeightBlock:
        """Rows of the smoother matrix of a block of queries, in place of attention weights."""
        if isinstance(self.regression.local_fit, LocalMean):
            return self.read(queries)
        block, fit = self.fitted(queries)
        keys = self.regression.products.regressors
        rows = self.regression.local_fit.smoother_rows(fit, block.weights, keys)
        return replace(block, weights=rows)


def fit_block(block: WeightBlock, regression: LocalRegression) -> Any:
    """Local fits of the queries of a block, from their attention weights."""
    products, local_fit = regression.products, regression.local_fit

    def read(some: Indices | slice, sums: Array, center: Array | None) -> Any:
        own, outside = block.own[some], block.outside[some]
        total, zeros = np.ones(len(sums)), np.zeros(len(sums))
        moments = Moments(zeros, total, sums, own, outside, zeros, center)
        regressors = None if regression.regressors is None else regression.regressors[some]
        return local_fit.read(moments, regressors)

    fit = read(slice(None), *row_moments(block.weights, products))
    poor = np.flatnonzero(fit.ill_conditioned)
    if poor.size:
        fit.write(poor, read(poor, *row_moments_exactly(block.weights[poor], products)))
    return fit


def read_fits(
    regression: LocalRegression,
    resources: Resources,
    receive: Callable[[Indices, Fit, NDArray[np.bool_]], None],
) -> None:
    """Fit all queries, and hand over positions, fits and which are outside, block by block.

    `receive` is called from several threads, once for each block.

    Time O(n_queries * n_keys * (n_features + n_directions**2)); memory O(n_keys * n_directions**2)
    a thread.
    """
    order = _coherent_order(regression)
    ordered = regression if regression.local_fit.degree == 0 else regression.take(order)
    local_fit, attention, products = regression.local_fit, ordered.attention, ordered.products

    def read(moments: Moments, queries: slice | Indices) -> Any:
        regressors = None if ordered.regressors is None else ordered.regressors[queries]
        return local_fit.read(moments, regressors)

    def receive_moments(queries: slice, moments: Moments) -> None:
        fit = read(moments, queries)
        poor = np.flatnonzero(fit.ill_conditioned)
        if poor.size:
            some = queries.start + poor
            fit.write(poor, read(attend_exactly(attention.take(some), products), some))
        receive(order[queries], fit, moments.outside)

    attend_blocks(attention, products, Want.SUMS, resources, receive_moments)


def _coherent_order(regression: LocalRegression) -> Indices:
    """An order of the queries in which those of a block are near each other."""
    queries = regression.attention.queries
    if regression.local_fit.degree == 0 or len(queries) < 2:
        return np.arange(len(queries))
    widest = np.argmax(np.ptp(queries, axis=0))
    return np.argsort(queries[:, widest], kind="stable")
