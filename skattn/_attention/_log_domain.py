"""Weights in the log domain, relative to the nearest key: exact at any distance and any scale.

Where all weights of a query underflow, or no key is in the kernel's support, what matters is how
much farther the other keys are than the nearest one. Only keys near enough to count are looked at.
This is the only home of the nearest-key rule for NumPy: outside every key's support, all weight
goes to the nearest key, shared among ties by sample weight.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skattn._attention._attention import Attention
from skattn._attention._resources import Resources
from skattn._geometry.distances import (
    candidates_near,
    distances,
    excess_over_nearest,
    rounding_of_excess,
)

__all__ = ["LogWeights", "log_domain_weights", "rows_at_a_time", "scaled_weights"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# exp(-40) of a weight, divided by the number of keys, is below rounding.
_MARGIN = 40.0
# Squared distances as close as this are ties, where they are computed without a reference.
_TIE = 1.0 + 1e-12


@dataclass(frozen=True)
class LogWeights:
    """Weights of some queries, as (query, key, weight) sorted by query.

    Attributes
    ----------
    queries, keys : ndarray of shape (n_entries,)
        Positions; every query has an entry.
    weights : ndarray of shape (n_entries,)
        exp(log_weight - log_shift); the largest of each query is 1.
    log_shift : ndarray of shape (n_queries,)
        Largest log-weight of each query; of the sample weights alone where `outside`.
    outside : ndarray of shape (n_queries,) of bool
        Queries without a key in the support.
    nearest : ndarray of shape (n_queries,)
        Squared distance of the nearest key.
    """

    queries: Indices
    keys: Indices
    weights: Array
    log_shift: Array
    outside: NDArray[np.bool_]
    nearest: Array

    @property
    def starts(self) -> Indices:
        """First entry of each query."""
        return np.searchsorted(self.queries, np.arange(self.log_shift.size))

    def dense(self, n_keys: int) -> Array:
        """Weights as an array (n_queries, n_keys)."""
        weights = np.zeros((self.log_shift.size, n_keys))
        weights[self.queries, self.keys] = self.weights
        return weights


def log_domain_weights(attention: Attention) -> LogWeights:
    """Weights of few queries, each with a key that it may see.

    Time and memory O(n_queries * n_keys).
    """
    if attention.has_scales:
        return _of_all_pairs(*scaled_weights(attention))
    if not attention.kernel.peaks_at_one:
        return _of_any_shape(attention)
    return _of_near_keys(attention)


def _of_all_pairs(
    weights: Array, log_shift: Array, outside: NDArray[np.bool_], nearest: Array
) -> LogWeights:
    entries, candidates = np.nonzero(weights >= 0.0)
    return LogWeights(entries, candidates, weights.ravel(), log_shift, outside, nearest)


def _of_any_shape(attention: Attention) -> LogWeights:
    """Weights of a kernel whose largest log-weight may be anywhere."""
    weights, log_shift, outside, nearest = scaled_weights(attention)
    far = np.flatnonzero(outside)
    if far.size:  # where ties are told apart at any distance
        near = _of_near_keys(attention.take(far))
        weights[far], log_shift[far] = near.dense(weights.shape[1]), near.log_shift
        nearest[far] = near.nearest
    return _of_all_pairs(weights, log_shift, outside, nearest)


def _of_near_keys(attention: Attention) -> LogWeights:
    """Weights of the keys near enough to the nearest one to count."""
    log_weights = _kept_log_weights(attention)
    kernel, queries, keys = attention.kernel, attention.queries, attention.keys
    margin = _MARGIN + np.log(len(keys)) - float(attention.log_weights.min())
    entries, candidates = candidates_near(
        queries, keys, lambda nearest: kernel.reach(nearest, margin), np.isneginf(log_weights)
    )
    reference, excess = excess_over_nearest(queries, keys, entries, candidates)
    nearest_squared = ((queries - keys[reference]) ** 2).sum(axis=1)
    outside = np.asarray(np.isneginf(kernel.log_profile(nearest_squared)))
    ties = excess <= rounding_of_excess(queries, keys, entries, candidates, reference)
    with np.errstate(invalid="ignore"):  # -inf - -inf outside the support, where ties decide
        decay = kernel.log_decay(nearest_squared[entries], excess)
    decay = np.where(outside[entries], np.where(ties, 0.0, -np.inf), decay)
    logits = decay + log_weights[entries, candidates]
    starts = np.searchsorted(entries, np.arange(len(queries)))
    shift = np.maximum.reduceat(logits, starts)
    log_shift = np.where(outside, shift, shift + kernel.log_profile(nearest_squared))
    weights = np.exp(logits - shift[entries])
    return LogWeights(entries, candidates, weights, log_shift, outside, nearest_squared)


def rows_at_a_time(attention: Attention, resources: Resources) -> int:
    """Number of queries whose differences to all keys fit into a block."""
    n_keys, n_features = attention.keys.shape
    return max(1, resources.block_bytes // (8 * n_keys * (n_features + 6)))


def _kept_log_weights(attention: Attention) -> Array:
    """Log-weights (n_queries, n_keys), -inf for excluded keys of which nothing is retained."""
    shape = len(attention.queries), len(attention.keys)
    log_weights = np.broadcast_to(attention.log_weights, shape)
    if attention.excluded is None:
        return log_weights
    queries, keys = attention.excluded.entries(0, shape[1])
    log_weights = log_weights.copy()
    with np.errstate(divide="ignore"):
        log_weights[queries, keys] += np.log(attention.excluded.retained[queries])
    return log_weights


def scaled_weights(attention: Attention) -> tuple[Array, Array, NDArray[np.bool_], Array]:
    """Weights with bandwidths that vary, all pairs; with the attributes of `LogWeights`.

    Returns
    -------
    weights : ndarray of shape (n_queries, n_keys)
        The largest of each query is 1.
    log_shift, outside, nearest : ndarray of shape (n_queries,)
        As in `LogWeights`.
    """
    log_weights = _kept_log_weights(attention)
    away = distances(attention.queries, attention.keys)
    inverse = attention.inverse_scales(away)
    if attention.key_scale is not None:
        log_weights = log_weights + attention.keys.shape[1] * np.log(inverse)
    with np.errstate(over="ignore"):
        squared = np.multiply(away, inverse, out=away)
        squared *= squared
    logits = attention.kernel.log_profile(squared)
    logits += log_weights
    shift = logits.max(axis=1)
    outside = np.asarray(np.isneginf(shift))
    nearest = np.full(len(shift), np.inf)
    if outside.any():
        hidden = np.isneginf(log_weights[outside])
        squared = np.where(hidden, np.inf, squared[outside])
        nearest[outside] = squared.min(axis=1)
        ties = squared <= nearest[outside, None] * _TIE
        logits[outside] = np.where(ties, log_weights[outside], -np.inf)
        shift = logits.max(axis=1)
    logits -= shift[:, None]
    return np.exp(logits, out=logits), shift, outside, nearest
