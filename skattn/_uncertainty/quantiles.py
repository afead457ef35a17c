"""Quantiles of values under attention weights."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skattn._attention import Resources, WeightBlock, read_blocks
from skattn._smoother import Regression

__all__ = ["weighted_quantiles"]

Array = NDArray[np.float64]

# Sums of weights are rounded: a quantile is reached where its level is missed by this.
_ROUNDING = 1e-12


def weighted_quantiles(
    regression: Regression, resources: Resources, values: Array, levels: Array
) -> tuple[Array, NDArray[np.bool_]]:
    """Quantiles of the values by the inverse of their weighted distribution function.

    Parameters
    ----------
    values : ndarray of shape (n_keys, n_outputs)
        Any numbers.
    levels : ndarray of shape (n_levels,)
        Between 0 and 1.

    Returns
    -------
    quantiles : ndarray of shape (n_queries, n_levels, n_outputs)
        The smallest value at which the summed weight reaches the level, up to rounding.
    outside : ndarray of shape (n_queries,) of bool
        Queries without a key in the support.
    """
    n_queries, n_outputs = regression.n_queries, values.shape[1]
    quantiles = np.empty((n_queries, len(levels), n_outputs))
    outside = np.zeros(n_queries, dtype=bool)
    order = np.argsort(values, axis=0, kind="stable")
    least = np.maximum(levels - _ROUNDING, np.finfo(float).tiny)

    def receive(block: WeightBlock) -> None:
        outside[block.queries] = block.outside
        for output in range(n_outputs):
            totals = block.weights[:, order[:, output]].cumsum(axis=1)
            totals /= totals[:, -1:]
            for i, level in enumerate(least):
                position = np.count_nonzero(totals < level, axis=1)
                quantiles[block.queries, i, output] = values[order[position, output], output]

    read_blocks(regression.reader(resources), resources, receive)
    return quantiles, outside
