"""The one operation: attention of queries over keys.

With coordinates q of a query and k_i, values v_i and sample weights s_i of the keys,

    l_i(q) = log s_i + log K(|q - k_i|)        log-weights
    w_i(q) = exp l_i(q) / sum_j exp l_j(q)     attention weights
    f(q)   = sum_i w_i(q) v_i                  the mean

`attend` returns f and what else statistics need of the sums; `attend_weights` the weights
themselves; `read_rows` hands them over block by block, with bandwidths that vary as well. How the
sums are computed is the engines' business and changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from skattn.attention._dense import dense_sums
from skattn.attention._far import far_slopes, far_sums
from skattn.attention._grid import bandwidth_ladder, grid_means
from skattn.attention._merge import Sums
from skattn.attention._request import (
    Head,
    Line,
    Radii,
    Request,
    Resources,
    outside_of_mixed,
    slices,
)
from skattn.attention._rows import Rows, inverse_radii, read_rows
from skattn.attention._slopes import slope_sums
from skattn.attention._threads import run_blocks, single_threaded_blas
from skattn.attention._weights import collect_weights
from skattn.geometry import Own
from skattn.kernels import Kernel

__all__ = [
    "Attended",
    "Head",
    "Line",
    "Radii",
    "Request",
    "Resources",
    "Rows",
    "Sloped",
    "attend",
    "attend_slopes",
    "attend_weights",
    "bandwidth_ladder",
    "collect_weights",
    "grid_means",
    "inverse_radii",
    "outside_of_mixed",
    "read_rows",
    "run_blocks",
    "single_threaded_blas",
    "slices",
]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Attended:
    """What attention returns for each query.

    Attributes
    ----------
    mean : ndarray of shape (n_queries, n_outputs)
        Weighted mean of the values.
    log_normalizer : ndarray of shape (n_queries,)
        log of the sum of s_i K(|q - k_i|); -inf outside the support.
    own_weight : ndarray of shape (n_queries,)
        Attention weight of the query's own keys (degree 0: the leverage).
    squares : ndarray of shape (n_queries,) or None
        Sum over rows of squared attention weights, where it was asked for.
    outside : ndarray of shape (n_queries,) of bool
        Queries without a key in the support: their weight went to the nearest key, shared
        among ties.
    """

    mean: Array
    log_normalizer: Array
    own_weight: Array
    squares: Array | None
    outside: NDArray[np.bool_]


def attend(
    queries: Array,
    keys: Array,
    values: Array,
    kernel: Kernel,
    log_weights: Array,
    *,
    own: Own | None = None,
    repeats: Array | None = None,
    resources: Resources = Resources(),
) -> Attended:
    """Attention of queries over keys.

    Parameters
    ----------
    queries : ndarray of shape (n_queries, n_features)
        Coordinates: centred and divided by the bandwidth, at most 1e100 in absolute value.
    keys : ndarray of shape (n_keys, n_features)
        Coordinates of the keys.
    values : ndarray of shape (n_keys, n_outputs)
        Their values, of order one: see `skattn.geometry.Unit`.
    kernel : Kernel
        What weight a distance earns.
    log_weights : ndarray of shape (n_keys,)
        Logarithms of the sample weights, finite.
    own : Own, default=None
        The keys that are each query's own, and how much of their weight stays. At least one key
        must stay for every query.
    repeats : ndarray of shape (n_keys,), default=None
        How many rows each key stands for. Given, squared weights are summed over rows.
    resources : Resources, default=Resources()
        Threads, size of blocks and precision allowed.

    Returns
    -------
    Attended
        The mean, and what else was asked for.
    """
    largest = log_weights.max()
    request = Request(queries, keys, values, kernel, log_weights - largest, own, repeats)
    sums, single = dense_sums(request, resources)
    hard = _unresolved(sums, request, single)
    if single[hard].any():
        double = replace(resources, dtype=np.dtype(np.float64))
        again, single[hard] = dense_sums(request.take(hard), double)
        sums.write(hard, again)
        hard = _unresolved(sums, request, single)
    if hard.size:
        sums.write(hard, far_sums(request.take(hard), resources))
    with np.errstate(divide="ignore"):
        log_normalizer = sums.log_shift + np.log(sums.denominator) + largest
    return Attended(
        mean=sums.numerator / sums.denominator[:, None],
        log_normalizer=log_normalizer,
        own_weight=sums.own / sums.denominator,
        squares=None if repeats is None else sums.squares / sums.denominator**2,
        outside=np.isneginf(log_normalizer),
    )


@dataclass(frozen=True)
class Sloped:
    """Means and their derivatives in the logarithms of the bandwidths.

    Attributes
    ----------
    mean : ndarray of shape (n_queries, n_outputs)
    mean_slope : ndarray of shape (n_queries, n_outputs, n_features)
    own_weight : ndarray of shape (n_queries,)
    own_slope : ndarray of shape (n_queries, n_features)
        Derivatives of `own_weight`, for own keys at distance zero.
    """

    mean: Array
    mean_slope: Array
    own_weight: Array
    own_slope: Array


def attend_slopes(
    queries: Array,
    keys: Array,
    values: Array,
    kernel: Kernel,
    log_weights: Array,
    *,
    own: Own | None = None,
    resources: Resources = Resources(),
) -> Sloped:
    """`attend`, and how the means change with the bandwidth of each feature.

    Parameters
    ----------
    queries, keys, kernel, log_weights, own, resources
        As for `attend`; the kernel has a slope.
    values : ndarray of shape (n_keys, n_outputs)
        Of order one.

    Returns
    -------
    Sloped
        Means, own weights and their derivatives.
    """
    request = Request(queries, keys, values, kernel, log_weights - log_weights.max(), own)
    sums = slope_sums(request, resources)
    denominator = sums.totals[:, 0]
    hard = np.flatnonzero(denominator < kernel.trusted_normalizer(resources.dtype))
    safe = np.where(denominator > 0.0, denominator, 1.0)[:, None]
    mean, own_weight = sums.totals[:, 1:] / safe, sums.own / safe[:, 0]
    log_slope = sums.slopes[:, 0] / safe
    mean_slope = sums.slopes[:, 1:] / safe[:, :, None] - mean[:, :, None] * log_slope[:, None]
    if hard.size:
        double = replace(resources, dtype=np.dtype(np.float64))
        mean[hard], mean_slope[hard] = far_slopes(request.take(hard), double)
        exact = attend(
            queries[hard],
            keys,
            values,
            kernel,
            log_weights,
            own=None if own is None else own.take(hard),
            resources=double,
        )
        own_weight[hard], log_slope[hard] = exact.own_weight, 0.0
    return Sloped(mean, mean_slope, own_weight, -own_weight[:, None] * log_slope)


def _unresolved(sums: Sums, request: Request, single: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Queries whose sums underflow or rounding may have spoilt."""
    least = np.where(
        single,
        request.kernel.trusted_normalizer(np.dtype(np.float32)),
        request.kernel.trusted_normalizer(np.dtype(np.float64)),
    )
    if request.repeats is not None:  # squared weights underflow at half the exponent
        least = np.sqrt(least)
    return np.flatnonzero(sums.denominator < least)


def attend_weights(
    queries: Array,
    keys: Array,
    kernel: Kernel,
    log_weights: Array,
    *,
    own: Own | None = None,
    top_k: int | None = None,
    resources: Resources = Resources(),
) -> tuple[Array | csr_array, NDArray[np.bool_]]:
    """The attention weights of queries over keys.

    Parameters
    ----------
    queries, keys, kernel, log_weights, own, resources
        As for `attend`.
    top_k : int, default=None
        How many of the largest weights of each query to return; None for all.

    Returns
    -------
    weights : ndarray or csr_array of shape (n_queries, n_keys)
        Rows sum to 1; with `top_k`, a sparse array of the largest entries, not renormalised.
    outside : ndarray of shape (n_queries,) of bool
        Queries without a key in the support.
    """
    nothing = np.empty((len(keys), 0))
    request = Request(queries, keys, nothing, kernel, log_weights - log_weights.max(), own)
    return collect_weights(request, resources, top_k, lambda block: block.weights)
