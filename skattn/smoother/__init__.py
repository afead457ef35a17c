"""The smoother matrix S of y_hat = S y: statistics that are arithmetic on attention weights.

At degree 0 rows of S are the attention weights; at degree 1, where a request has a line, they are
those of the local lines, and may be negative. The diagonal of S is the leverage of the training
rows, its trace the effective degrees of freedom; the variance of a prediction is the sum of a row's
squares times the variances of the targets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from skattn.attention import (
    Attended,
    Request,
    Resources,
    Rows,
    attend,
    collect_weights,
    read_rows,
)
from skattn.smoother._gradients import smooth_gradient
from skattn.smoother._keys import Adaptive, EqualGates, Keys
from skattn.smoother._lines import Lines, fit_lines, inverse_variances
from skattn.smoother._slopes import smooth_slopes

__all__ = [
    "Adaptive",
    "EqualGates",
    "Keys",
    "Lines",
    "Smoothed",
    "effective_neighbors",
    "fit_lines",
    "heads_of",
    "inverse_variances",
    "prediction_variance",
    "smooth",
    "smooth_gradient",
    "smooth_slopes",
    "smoother_matrix",
    "smoother_rows",
    "weights_by_head",
]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Smoothed:
    """Predictions, and what else was read off the rows of the smoother matrix.

    Attributes
    ----------
    mean : ndarray of shape (n_queries, n_outputs)
        The predictions.
    leverage : ndarray of shape (n_queries,)
        Entry of the query's own keys.
    outside : ndarray of shape (n_queries,) of bool
        Queries without a key in the support: the mean of the nearest keys.
    """

    mean: Array
    leverage: Array
    outside: NDArray[np.bool_]


def smooth(request: Request, resources: Resources) -> Smoothed:
    """Predictions of any degree, and leverages.

    Parameters
    ----------
    request : Request
        Local lines where it has a line; bandwidths that vary where it has radii.
    resources : Resources

    Returns
    -------
    Smoothed

    Notes
    -----
    Time O(n_queries * n_keys * (n_features + n_directions**2)); memory O(n_keys * n_directions**2)
    a thread.
    """
    if request.is_plain:
        attended = _attend(replace(request, repeats=None), resources)
        return Smoothed(attended.mean, attended.own_weight, attended.outside)
    n_queries, n_outputs = len(request.queries), request.values.shape[1]
    result = Smoothed(
        np.empty((n_queries, n_outputs)), np.empty(n_queries), np.empty(n_queries, dtype=bool)
    )
    order = _coherent_order(request)
    ordered = request.take(order)

    def receive(block: Rows) -> None:
        rows = order[block.queries]
        result.outside[rows] = block.outside
        result.mean[rows], result.leverage[rows] = _fit(block, ordered)

    read_rows(ordered, resources, receive)
    return result


def _fit(block: Rows, request: Request) -> tuple[Array, Array]:
    """Predictions and leverages of a block of queries."""
    if block.heads:
        fits = [_fit(*head) for head in heads_of(block, request)]
        gates = np.stack([head.gate[block.queries] for head in request.heads])
        means, leverages = (np.stack(parts) for parts in zip(*fits, strict=True))
        return np.einsum("hq,hqp->qp", gates, means), np.einsum("hq,hq->q", gates, leverages)
    if request.line is None:
        return block.weights @ request.values, block.own_weight
    lines = fit_lines(block, request.line, request.values)
    return lines.mean, block.own_weight * (1.0 + lines.reach)


def heads_of(block: Rows, request: Request) -> Iterator[tuple[Rows, Request]]:
    """The rows of each head, and what they belong to."""
    for rows, head in zip(block.heads, request.heads, strict=True):
        yield rows, head.request


def _coherent_order(request: Request) -> NDArray[np.intp]:
    """An order of the queries in which those of a block are near each other."""
    if request.line is None or len(request.queries) < 2:
        return np.arange(len(request.queries))
    widest = np.argmax(np.ptp(request.queries, axis=0))
    return np.argsort(request.queries[:, widest], kind="stable")


def smoother_matrix(
    request: Request, resources: Resources, top_k: int | None = None
) -> tuple[Array | csr_array, NDArray[np.bool_]]:
    """Rows of the smoother matrix: ``S @ values`` are the predictions.

    Parameters
    ----------
    request : Request
    resources : Resources
    top_k : int, default=None
        How many entries of largest absolute value of each query to return; None for all.

    Returns
    -------
    matrix : ndarray or csr_array of shape (n_queries, n_keys)
        Rows sum to 1; with `top_k`, a sparse array, not renormalised.
    outside : ndarray of shape (n_queries,) of bool
        Queries without a key in the support.
    """
    return collect_weights(request, resources, top_k, lambda block: smoother_rows(block, request))


def weights_by_head(request: Request, resources: Resources) -> tuple[Array, NDArray[np.bool_]]:
    """Attention weights of the kernel, at any degree.

    Returns
    -------
    weights : ndarray of shape (n_heads, n_queries, n_keys)
        Of each head of the request, or of the only one.
    outside : ndarray of shape (n_queries,) of bool
        Queries without a key in the support.
    """
    n_heads, n_queries = max(len(request.heads), 1), len(request.queries)
    weights = np.empty((n_heads, n_queries, len(request.keys)))
    outside = np.zeros(n_queries, dtype=bool)

    def receive(block: Rows) -> None:
        outside[block.queries] = block.outside
        for head, rows in enumerate(block.heads or (block,)):
            weights[head, block.queries] = rows.weights

    read_rows(request, resources, receive)
    return weights, outside


def smoother_rows(block: Rows, request: Request) -> Array:
    """The rows of the smoother matrix that belong to a block of attention weights."""
    if block.heads:
        rows = np.zeros_like(block.weights)
        for head, part in zip(request.heads, heads_of(block, request), strict=True):
            rows += head.gate[block.queries, None] * smoother_rows(*part)
        return rows
    if request.line is None:
        return block.weights
    lines = fit_lines(block, request.line, request.values)
    return lines.smoother(block.weights, request.line.keys)


def prediction_variance(request: Request, resources: Resources, variances: Array) -> Array:
    """Variances of the predictions: the sum over rows of S**2 times the variances of the values.

    Parameters
    ----------
    request : Request
        With `repeats`.
    resources : Resources
    variances : ndarray of shape (n_keys, n_outputs)
        Variances of the values.

    Returns
    -------
    ndarray of shape (n_queries, n_outputs)
    """
    result = np.empty((len(request.queries), variances.shape[1]))

    def receive(block: Rows) -> None:
        result[block.queries] = _squares(smoother_rows(block, request), block, request) @ variances

    read_rows(request, resources, receive)
    return result


def effective_neighbors(request: Request, resources: Resources) -> tuple[Array, NDArray[np.bool_]]:
    """1 / sum(w**2): the number of rows that, weighted equally, would average as much noise out.

    Parameters
    ----------
    request : Request
        With `repeats`. Its attention weights count, whatever the degree.
    resources : Resources

    Returns
    -------
    number : ndarray of shape (n_queries,)
        Between 1 and the number of rows.
    outside : ndarray of shape (n_queries,) of bool
        Queries without a key in the support.
    """
    if request.radii is None and not request.heads:
        attended = _attend(request, resources)
        assert attended.squares is not None
        return 1.0 / attended.squares, attended.outside
    squares, outside = np.empty((2, len(request.queries)))

    def receive(block: Rows) -> None:
        squares[block.queries] = _squares(block.weights, block, request).sum(axis=1)
        outside[block.queries] = block.outside

    read_rows(request, resources, receive)
    return 1.0 / squares, outside.astype(bool)


def _attend(request: Request, resources: Resources) -> Attended:
    return attend(
        request.queries,
        request.keys,
        request.values,
        request.kernel,
        request.log_weights,
        own=request.own,
        repeats=request.repeats,
        resources=resources,
    )


def _squares(rows: Array, block: Rows, request: Request) -> Array:
    """Sums of squares over the rows each key stands for, of weights shared among them."""
    assert request.repeats is not None
    np.multiply(rows, rows, out=rows)
    rows /= request.repeats
    if request.own is not None:
        own = request.own.take(block.queries)
        queries, keys = own.entries(0, rows.shape[1])
        kept = own.kept[queries]
        rows[queries, keys] /= np.where(kept > 0.0, kept, 1.0)
    return rows
