"""Moments from full rows of weights: local lines, and bandwidths that vary."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from skattn._attention._attention import Attention, Products
from skattn._attention._blocks import BlockReader, queries_of_a_block, squared_weights
from skattn._attention._moments import Moments, Want
from skattn._attention._resources import Resources

__all__ = ["RowSums"]

Array = NDArray[np.float64]
RowMoments = Callable[[Array, Products], tuple[Array, Array | None]]


class RowSums:
    """Sums from full rows of weights, block by block of queries.

    Parameters
    ----------
    attention, products, want, resources
        As for an engine.
    row_moments : callable
        `row_moments` or `row_moments_exactly`.
    """

    def __init__(
        self,
        attention: Attention,
        products: Products,
        want: Want,
        resources: Resources,
        row_moments: RowMoments,
    ) -> None:
        self.attention, self.products, self.want = attention, products, want
        self.row_moments = row_moments
        n_queries = queries_of_a_block(attention) if products.degree > 0 else 64
        self.reader = BlockReader(attention, resources, n_queries)
        self.blocks = self.reader.blocks

    def moments(self, queries: slice) -> Moments:
        """Moments of a block of queries, whose weights sum to 1."""
        block = self.reader.read(queries)
        sums, center = self.row_moments(block.weights, self.products)
        squares = None
        if self.want & Want.SQUARES:
            excluded = self.attention.excluded
            excluded = None if excluded is None else excluded.take(queries)
            squares = squared_weights(block.weights, excluded) @ self.products.values
        total = np.ones(len(sums))
        known = block.own, block.outside, block.nearest
        return Moments(block.log_total, total, sums, *known, center, squares)
