"""The formulas, pair by pair, in NumPy: what the layers are compared with."""

import numpy as np

from skattn.kernels import KERNELS


def plain_weights(queries, keys, bandwidth, kernel="gaussian", allowed=None):
    """Weights of (n_queries, n_features) and (n_keys, n_features); rows without keys are zero."""
    squared = (((queries[:, None] - keys) / bandwidth) ** 2).sum(axis=2)
    allowed = np.ones(squared.shape, bool) if allowed is None else allowed
    weights = np.zeros(squared.shape)
    for i in np.flatnonzero(allowed.any(axis=1)):
        near = np.flatnonzero(allowed[i])
        nearest = np.full(len(near), squared[i, near].min())
        profile = KERNELS[kernel]
        if np.isneginf(profile.log_profile(nearest[:1]))[0]:
            row = (squared[i, near] <= nearest * (1 + 1e-12)).astype(float)
        else:
            row = np.exp(profile.log_decay(nearest, squared[i, near] - nearest))
        weights[i, near] = row / row.sum()
    return weights


def plain_mask(n_queries, n_keys, causal=False, window=None, exclude_self=False):
    """Positions of keys less those of queries, and what they allow."""
    ahead = np.arange(n_keys) - np.arange(n_queries)[:, None]
    allowed = np.ones(ahead.shape, bool)
    if causal:
        allowed &= ahead <= 0
    if window is not None:
        allowed &= np.abs(ahead) <= window
    if exclude_self:
        allowed &= ahead != 0
    return allowed
