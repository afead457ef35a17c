"""How predictions change with the bandwidth of each feature.

With theta_j the logarithm of the bandwidth of feature j, w_i the attention weights and S_i those
of the smoother matrix, a weighted least squares fit changes by

    d f(q) / d theta_j = sum_i S_i (d log w_i / d theta_j) (v_i - line(k_i)),
    d log K / d theta_j = -2 (d log K / d u**2) (q_j - k_ij)**2,

and nothing in directions in which lines are flat. The leverage is the fit to the indicator of the
query's own key, at distance zero, whose line is its attention weight times the factors
1 + (k_i - k̄)' dual.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skattn._attention import Attention, Resources, Want, WeightBlock, attend, run_blocks
from skattn._geometry.distances import squared_distances, weighted_squares
from skattn._smoother.local_regression import LocalRegression, RowReader

__all__ = ["BandwidthSlopes", "bandwidth_slopes"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class BandwidthSlopes:
    """Predictions and leverages, and their derivatives in the logarithms of the bandwidths.

    Attributes
    ----------
    prediction : ndarray of shape (n_queries, n_outputs)
        Predictions in the units of the values.
    prediction_slope : ndarray of shape (n_queries, n_outputs, n_features)
        Their derivatives.
    leverage : ndarray of shape (n_queries,)
        Weights of the own keys, as far as they are retained.
    leverage_slope : ndarray of shape (n_queries, n_features)
        Their derivatives, for own keys at distance zero.
    """

    prediction: Array
    prediction_slope: Array
    leverage: Array
    leverage_slope: Array


def bandwidth_slopes(regression: LocalRegression, resources: Resources) -> BandwidthSlopes:
    """Predictions of any degree and their derivatives in the logarithms of the bandwidths.

    Parameters
    ----------
    regression : LocalRegression
        The kernel has a slope; bandwidths do not vary.

    Returns
    -------
    BandwidthSlopes
    """
    if regression.local_fit.degree == 0:
        return _of_means(regression, resources)
    n_queries, n_features = regression.attention.queries.shape
    n_outputs = regression.values.shape[1]
    slopes = BandwidthSlopes(
        np.empty((n_queries, n_outputs)),
        np.empty((n_queries, n_outputs, n_features)),
        np.empty(n_queries),
        np.empty((n_queries, n_features)),
    )
    reader = regression.reader(resources)

    def run(blocks: Sequence[slice]) -> None:
        for queries in blocks:
            _add_lines(slopes, reader, queries)

    run_blocks(run, reader.blocks, resources.workers(regression.attention.n_pairs))
    return slopes


def _of_means(regression: LocalRegression, resources: Resources) -> BandwidthSlopes:
    moments = attend(regression.attention, regression.products, Want.SLOPES, resources)
    assert moments.slopes is not None
    total = moments.total[:, None]
    mean, leverage = moments.sums / total, moments.own / moments.total
    log_slope = moments.slopes[:, 0] / total
    slope = moments.slopes[:, 1:] / total[:, :, None] - mean[:, :, None] * log_slope[:, None]
    return BandwidthSlopes(mean, slope, leverage, -leverage[:, None] * log_slope)


def _add_lines(slopes: BandwidthSlopes, reader: RowReader, queries: slice) -> None:
    """Fill in the slopes of a block of local lines."""
    regression = reader.regression
    attention, regressors = regression.attention, regression.products.regressors
    block, fit = reader.fitted(queries)
    own = block.own
    factors = fit.factors(regressors)
    slopes.prediction[queries], slopes.leverage[queries] = fit.prediction, fit.leverage
    change, places = _weight_changes(block, attention), attention.queries[queries]
    for output, values in enumerate(regression.values.T):
        moved = change * factors
        moved *= values - fit.lines(regressors, output)
        slopes.prediction_slope[queries, output] = weighted_squares(moved, places, attention.keys)
    slopes.leverage_slope[queries] = 0.0
    if own.any():
        moved = change * factors
        moved *= factors
        by_feature = weighted_squares(moved, places, attention.keys)
        slopes.leverage_slope[queries] = -own[:, None] * by_feature


def _weight_changes(block: WeightBlock, attention: Attention) -> Array:
    """Factors -2 w_i (d log K / d u**2) of squared differences."""
    kernel, weights = attention.kernel, block.weights
    if kernel.is_exponential:
        return np.multiply(weights, -2.0 * kernel.rate, out=weights)
    change = -2.0 * kernel.log_slope(
        squared_distances(attention.queries[block.queries], attention.keys)
    )
    change[block.outside] = 0.0
    return np.where(weights > 0.0, change, 0.0) * weights
