"""The smoother matrix S of y_hat = S y: statistics that are arithmetic on attention weights.

At degree 0 rows of S are the attention weights; at degree 1 they are those of the local lines, and
may be negative. The diagonal of S is the leverage of the training rows, its trace the effective
degrees of freedom; the variance of a prediction is the sum of a row's squares times the variances
of the targets.

Each takes a regression, of one component or a mixture, and resources.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from skattn._attention import (
    Products,
    Resources,
    TopWeights,
    Want,
    WeightBlock,
    attend,
    read_blocks,
)
from skattn._attention._blocks import squared_weights
from skattn._geometry.distances import distances
from skattn._smoother.local_fit import Fit, LocalMean
from skattn._smoother.local_regression import LocalRegression, read_fits
from skattn._smoother.mixture import MixedRegression, Regression

__all__ = [
    "component_weights",
    "effective_neighbors",
    "gradient",
    "predict",
    "prediction_variance",
    "smoother_matrix",
]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Outside = NDArray[np.bool_]

# Sums of terms that cancel are zero up to this share of them.
_ROUNDING = 1e-14


def predict(regression: Regression, resources: Resources) -> tuple[Array, Array, Outside]:
    """Predictions of any degree.

    Returns
    -------
    prediction : ndarray of shape (n_queries, n_outputs)
        In the units of the values.
    leverage : ndarray of shape (n_queries,)
        Weight of the query's own keys, as far as it is retained.
    outside : ndarray of shape (n_queries,) of bool
        Queries without a key in the support: their prediction is the mean of the nearest keys.
    """

    def read(part: LocalRegression) -> tuple[Array, Array, Outside]:
        n_queries = part.n_queries
        prediction, leverage = np.empty((n_queries, part.values.shape[1])), np.empty(n_queries)
        outside = np.empty(n_queries, dtype=bool)

        def receive(queries: Indices, fit: Fit, is_outside: Outside) -> None:
            prediction[queries], leverage[queries] = fit.prediction, fit.leverage
            outside[queries] = is_outside

        read_fits(part, resources, receive)
        return prediction, leverage, outside

    return regression.mix(read)


def smoother_matrix(
    regression: Regression, resources: Resources, top_k: int | None = None
) -> tuple[Array | csr_array, Outside]:
    """Rows of the smoother matrix: ``S @ values`` are the predictions.

    Parameters
    ----------
    top_k : int, default=None
        Number of entries of largest absolute value of each query; None for all.

    Returns
    -------
    matrix : ndarray or csr_array of shape (n_queries, n_keys)
        Rows sum to 1; with `top_k`, a sparse array of at most as many entries a row, largest
        first, not renormalised.
    outside : ndarray of shape (n_queries,) of bool
        Queries without a key in the support.
    """
    n_queries, n_keys = regression.n_queries, regression.n_keys
    outside, dense = np.zeros(n_queries, dtype=bool), np.empty((0, n_keys))
    top = TopWeights(n_queries, top_k or 0)
    if top_k is None:
        dense = np.empty((n_queries, n_keys))

    def receive(block: WeightBlock) -> None:
        outside[block.queries] = block.outside
        if top_k is None:
            dense[block.queries] = block.weights
        else:
            top.write(block.queries, block.weights)

    _read_rows(regression, resources, receive)
    return (dense if top_k is None else top.array(n_keys)), outside


def component_weights(regression: Regression, resources: Resources) -> tuple[Array, Array, Outside]:
    """Attention weights of each component, at any degree, and the gates.

    Returns
    -------
    weights : ndarray of shape (n_components, n_queries, n_keys)
        Attention weights of the kernel; rows sum to 1.
    gates : ndarray of shape (n_components, n_queries)
        Shares of the components.
    outside : ndarray of shape (n_queries,) of bool
        Queries without a key in the support.
    """
    found = []

    def read(part: LocalRegression) -> tuple[Array, Outside]:
        weights, outside = smoother_matrix(part.means_of(part.values), resources)
        found.append(weights)
        return np.zeros(part.n_queries), outside

    _, outside = regression.mix(read)
    gates = np.ones((1, regression.n_queries))
    if isinstance(regression, MixedRegression):
        gates = regression.gates
    return np.stack(found), gates, outside


def prediction_variance(regression: Regression, resources: Resources, variances: Array) -> Array:
    """Variances of the predictions: the sum over rows of S**2 times the variances of the values.

    Parameters
    ----------
    variances : ndarray of shape (n_keys, n_outputs)
        Variances of the values, divided by the number of rows that each key stands for.

    Returns
    -------
    ndarray of shape (n_queries, n_outputs)
    """
    if isinstance(regression, LocalRegression) and isinstance(regression.local_fit, LocalMean):
        return _sums_of_squares(regression, resources, variances)[0]
    result = np.empty((regression.n_queries, variances.shape[1]))

    def receive(block: WeightBlock) -> None:
        result[block.queries] = _squares(block, regression) @ variances

    _read_rows(regression, resources, receive)
    return result


def effective_neighbors(
    regression: Regression, resources: Resources, multiplicity: Array
) -> tuple[Array, Outside]:
    """Effective number of neighbours, 1 / sum(w**2).

    So many rows, weighted equally, would average as much noise out.

    Parameters
    ----------
    regression : LocalRegression or MixedRegression
        Whose attention weights count, whatever the degree.
    multiplicity : ndarray of shape (n_keys,)
        Number of rows that each key stands for.

    Returns
    -------
    number : ndarray of shape (n_queries,)
        Between 1 and the number of rows.
    outside : ndarray of shape (n_queries,) of bool
        Queries without a key in the support.
    """
    inverse = 1.0 / multiplicity[:, None]
    if isinstance(regression, LocalRegression):
        squares, outside = _sums_of_squares(regression, resources, inverse)
        return 1.0 / squares[:, 0], outside
    squares, outside = np.empty(regression.n_queries), np.zeros(regression.n_queries, dtype=bool)

    def receive(block: WeightBlock) -> None:
        squares[block.queries] = (_squares(block, regression) @ inverse)[:, 0]
        outside[block.queries] = block.outside

    read_blocks(regression.reader(resources), resources, receive)
    return 1.0 / squares, outside


def _sums_of_squares(
    regression: LocalRegression, resources: Resources, columns: Array
) -> tuple[Array, Outside]:
    """Sums over keys of squared attention weights times columns, and who is outside."""
    moments = attend(regression.attention, Products(columns), Want.SQUARES, resources)
    assert moments.squares is not None
    return moments.squares / moments.total[:, None] ** 2, moments.outside


def _squares(block: WeightBlock, regression: Regression) -> Array:
    """Squares of a block of rows, in place."""
    excluded = regression.excluded
    return squared_weights(
        block.weights, None if excluded is None else excluded.take(block.queries)
    )


def _read_rows(
    regression: Regression, resources: Resources, receive: Callable[[WeightBlock], None]
) -> None:
    """Hand over rows of the smoother matrix, block by block."""
    read_blocks(_Rows(regression, resources), resources, receive)


class _Rows:
    """Rows of the smoother matrix in place of attention weights."""

    def __init__(self, regression: Regression, resources: Resources) -> None:
        reader = regression.reader(resources)
        self.blocks, self.read = reader.blocks, reader.smoother_rows


def gradient(regression: Regression, X: Array, resources: Resources) -> tuple[Array, Outside]:
    """Derivatives of the predictions in the features.

    Parameters
    ----------
    regression : LocalRegression or MixedRegression
        At degree 1 the slopes of the local lines are returned. At degree 0 the derivatives of the
        mean, scales held fixed; the kernel has a slope. Gates are held fixed.
    X : ndarray of shape (n_queries, n_features)
        Features of the queries.

    Returns
    -------
    gradient : ndarray of shape (n_queries, n_features, n_outputs)
        In units of the values; zero outside every support and in constant features.
    outside : ndarray of shape (n_queries,) of bool
        Queries without a key in the support.
    """

    def read(part: LocalRegression) -> tuple[Array, Outside]:
        slopes, outside = _slopes(part, resources)
        features, slopes = part.transform.gradient(slopes, X)
        result = np.zeros((len(slopes), X.shape[1], slopes.shape[2]))
        result[:, features] = slopes
        return result, outside

    return regression.mix(read)


def _slopes(regression: LocalRegression, resources: Resources) -> tuple[Array, Outside]:
    """Derivatives in coordinates or regressors, (n_queries, n_coordinates, n_outputs)."""
    n_queries, n_outputs = regression.n_queries, regression.values.shape[1]
    outside = np.zeros(n_queries, dtype=bool)
    if regression.regressors is not None:
        slopes = np.empty((n_queries, regression.regressors.shape[1], n_outputs))

        def receive(queries: Indices, fit: Fit, is_outside: Outside) -> None:
            slopes[queries], outside[queries] = fit.slope, is_outside  # type: ignore[attr-defined]

        read_fits(regression, resources, receive)
        return slopes, outside
    slopes = np.empty((n_queries, regression.attention.keys.shape[1], n_outputs))

    def receive_block(block: WeightBlock) -> None:
        outside[block.queries] = block.outside
        slopes[block.queries] = _mean_slopes(block, regression.take(block.queries))

    read_blocks(regression.reader(resources), resources, receive_block)
    return slopes, outside


def _mean_slopes(block: WeightBlock, regression: LocalRegression) -> Array:
    """With g = 2 (d log K / d u**2) / r**2: sum_i w_i g_i (q - k_i) (v_i - f)."""
    attention, weights = regression.attention, block.weights
    keys, queries = attention.keys, attention.queries
    away = distances(queries, keys)
    inverse = attention.inverse_scales(away)
    with np.errstate(over="ignore"):
        change = 2.0 * attention.kernel.log_slope((away * inverse) ** 2) * inverse**2
    center, mean = weights @ keys, weights @ regression.values
    change = np.where(weights > 0.0, change, 0.0) * weights
    change[block.outside] = 0.0
    slopes = np.empty((len(weights), keys.shape[1], mean.shape[1]))
    for output, values in enumerate(regression.values.T):
        moved = change * (values - mean[:, output, None])
        # keys relative to their mean: far away, what the differences q - k_i share cancels
        total, size = moved.sum(axis=1), np.abs(moved).sum(axis=1)
        total = np.where(np.abs(total) > _ROUNDING * size, total, 0.0)[:, None]
        slopes[:, :, output] = (queries - center) * total - (moved @ keys - total * center)
    return slopes
