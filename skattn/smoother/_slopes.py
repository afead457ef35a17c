"""How predictions of local lines change with the bandwidth of each feature.

With theta_j the logarithm of the bandwidth of feature j, w_i the attention weights and S_i those
of the smoother matrix, a weighted least squares fit changes by

    d f(q) / d theta_j = sum_i S_i (d log w_i / d theta_j) (v_i - line(k_i)),
    d log K / d theta_j = -2 (d log K / d u**2) (q_j - k_ij)**2,

and nothing in directions in which lines are flat. The leverage is the fit to the indicator of the
query's own key, at distance zero, whose line is its attention weight times the factors
1 + (k_i - center)' arm.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from skattn.attention import Request, Resources, Rows, Sloped, attend_slopes, read_rows
from skattn.smoother._lines import fit_lines

Array = NDArray[np.float64]


def smooth_slopes(request: Request, resources: Resources) -> Sloped:
    """Predictions of any degree and their derivatives in the logarithms of the bandwidths.

    Parameters
    ----------
    request : Request
        The kernel has a slope; bandwidths do not vary.
    resources : Resources

    Returns
    -------
    Sloped
        The own weights are leverages.
    """
    if request.line is None:
        return attend_slopes(
            request.queries,
            request.keys,
            request.values,
            request.kernel,
            request.log_weights,
            own=request.own,
            resources=resources,
        )
    n_queries, n_features = request.queries.shape
    n_outputs = request.values.shape[1]
    sloped = Sloped(
        np.empty((n_queries, n_outputs)),
        np.empty((n_queries, n_outputs, n_features)),
        np.empty(n_queries),
        np.empty((n_queries, n_features)),
    )
    read_rows(request, resources, lambda block: _add_block(sloped, block, request))
    return sloped


def _add_block(sloped: Sloped, block: Rows, request: Request) -> None:
    assert request.line is not None
    rows, queries = block.queries, request.queries[block.queries]
    lines = fit_lines(block, request.line, request.values)
    factors = lines.factors(request.line.keys)
    sloped.mean[rows] = lines.mean
    sloped.own_weight[rows] = block.own_weight * (1.0 + lines.reach)
    change = _weight_changes(block, request)
    for output, values in enumerate(request.values.T):
        errors = values - lines.values(request.line.keys, output)
        moved = change * factors
        moved *= errors
        sloped.mean_slope[rows, output] = _times_squares(moved, queries, request.keys)
    sloped.own_slope[rows] = 0.0
    if block.own_weight.any():
        moved = change * factors
        moved *= factors
        slopes = _times_squares(moved, queries, request.keys)
        sloped.own_slope[rows] = -block.own_weight[:, None] * slopes


def _weight_changes(block: Rows, request: Request) -> Array:
    """-2 w_i (d log K / d u**2), what squared differences are multiplied with."""
    kernel, weights = request.kernel, block.weights
    if kernel.is_exponential:
        return np.multiply(weights, -2.0 * kernel.rate, out=weights)
    squared = cdist(request.queries[block.queries], request.keys, "sqeuclidean")
    change = -2.0 * kernel.log_slope(squared)
    change[block.outside] = 0.0
    return np.where(weights > 0.0, change, 0.0) * weights


def _times_squares(moved: Array, queries: Array, keys: Array) -> Array:
    """Sums over keys of moved * (q_j - k_ij)**2, (n_rows, n_features)."""
    zeroth, first, second = moved.sum(axis=1)[:, None], moved @ keys, moved @ keys**2
    return queries**2 * zeroth - 2.0 * queries * first + second
