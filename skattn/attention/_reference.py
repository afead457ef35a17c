"""The plain definition: the truth for all engines, at O(n_queries * n_keys * d) time and memory."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skattn.geometry import Own
from skattn.kernels import Kernel

Array = NDArray[np.float64]


def reference_weights(
    queries: Array, keys: Array, kernel: Kernel, log_weights: Array, own: Own | None = None
) -> tuple[Array, Array]:
    """Attention weights (n_queries, n_keys) and log-normalisers (n_queries,), straight.

    A query without a key in its support gives all its weight to the nearest keys, shared by
    sample weight, and has log-normaliser -inf.
    """
    left_out = np.zeros((len(queries), len(keys)))
    if own is not None:
        for query, (start, stop, kept) in enumerate(
            zip(own.start, own.stop, own.kept, strict=True)
        ):
            left_out[query, start:stop] = np.log(kept) if kept > 0.0 else -np.inf
    log_weights = log_weights + left_out
    squared = ((queries[:, None, :] - keys) ** 2).sum(axis=2)
    logits = log_weights + kernel.log_profile(squared)
    outside = np.isneginf(logits.max(axis=1))
    distances = np.where(np.isneginf(log_weights), np.inf, squared)[outside]
    is_nearest = distances <= distances.min(axis=1, keepdims=True) * (1.0 + 1e-12)
    logits[outside] = np.where(is_nearest, log_weights[outside], -np.inf)
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    log_normalizer = np.log(weights.sum(axis=1)) + logits.max(axis=1)
    log_normalizer[outside] = -np.inf
    return weights / weights.sum(axis=1, keepdims=True), log_normalizer
