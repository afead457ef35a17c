"""Means for many bandwidths at once, from one pass over the distances.

For bandwidths c in units of the coordinates' scale, weights are K(|q - k| / c). With a Gaussian
kernel, halving c**2 squares them, so that a whole ladder of bandwidths costs one multiplication
each; weights are taken relative to the nearest key, the same for all bandwidths.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from skattn.attention._request import Request, Resources
from skattn.attention._threads import run_blocks

Array = NDArray[np.float64]

# Each squaring doubles the relative error of a weight; from time to time exp is called anew.
_SQUARINGS = 16


def bandwidth_ladder(widest: float, narrowest: float, steps_per_octave: int) -> Array:
    """Bandwidths from wide to narrow, `2 * steps_per_octave` to a factor of two.

    Each is ``2**(-1 / (2 * steps_per_octave))`` times the one before, so that after
    `steps_per_octave` steps the square has halved.
    """
    n_steps = int(np.ceil(2 * steps_per_octave * np.log2(widest / narrowest)))
    return widest * 2.0 ** (-np.arange(n_steps + 1) / (2 * steps_per_octave))


def grid_means(
    request: Request, bandwidths: Array, steps_per_octave: int, resources: Resources
) -> tuple[Array, Array]:
    """Means, and weights of the queries' own keys, for each of a ladder of bandwidths.

    Parameters
    ----------
    request : Request
        Coordinates are divided by no bandwidth yet. The kernel peaks at one; own keys of which a
        part stays are at distance zero.
    bandwidths : ndarray of shape (n_bandwidths,)
        As `bandwidth_ladder` returns them.
    steps_per_octave : int
        The ladder's.
    resources : Resources

    Returns
    -------
    means : ndarray of shape (n_bandwidths, n_queries, n_outputs)
        A query without a key in the support takes its nearest key.
    own_weights : ndarray of shape (n_bandwidths, n_queries)
        Of own keys that stay; zero where none does.
    """
    n_queries, n_outputs = len(request.queries), request.values.shape[1]
    means = np.empty((len(bandwidths), n_queries, n_outputs))
    own_weights = np.zeros((len(bandwidths), n_queries))
    factor = np.exp(request.log_weights)
    contracted = np.column_stack([request.values * factor[:, None], factor])

    def run(row_blocks: Sequence[slice]) -> None:
        for rows in row_blocks:
            squared, nearest, kept, kept_values = _distances(request, rows, contracted)
            fallback = None
            for i, weights in enumerate(
                _weights(request, squared, nearest, bandwidths, steps_per_octave)
            ):
                sums = weights @ contracted + kept_values
                alone = sums[:, -1] < 1e-250
                if alone.any():
                    if fallback is None:
                        ties = squared <= nearest[:, None] * (1.0 + 1e-12)
                        fallback = ties @ contracted
                    sums[alone] = fallback[alone]
                means[i, rows] = sums[:, :-1] / sums[:, -1:]
                own_weights[i, rows] = kept / sums[:, -1]

    # rows are read whole: as many as fit beside the keys, but not so few that calls dominate
    least = int(np.clip(resources.block_bytes // (8 * len(request.keys)), 8, 256))
    blocks = resources.row_blocks(n_queries, len(request.keys), least=least)
    run_blocks(run, blocks, resources.workers(request.n_pairs))
    return means, own_weights


def _distances(
    request: Request, rows: slice, contracted: Array
) -> tuple[Array, Array, Array, Array]:
    """Squared distances to keys that are not own, the smallest, and what own keys add to sums."""
    squared = cdist(request.queries[rows], request.keys, "sqeuclidean")
    kept, kept_values = np.zeros(len(squared)), np.zeros((len(squared), contracted.shape[1]))
    if request.own is not None:
        own = request.own.take(rows)
        queries, keys = own.entries(0, len(request.keys))
        squared[queries, keys] = np.inf
        np.add.at(kept_values, queries, own.kept[queries, None] * contracted[keys])
        kept = kept_values[:, -1].copy()
    nearest = np.where(kept > 0.0, 0.0, squared.min(axis=1))
    return squared, nearest, kept, kept_values


def _weights(
    request: Request, squared: Array, nearest: Array, bandwidths: Array, steps_per_octave: int
) -> Iterator[Array]:
    """Kernel weights for each bandwidth, relative to the nearest key for unbounded kernels."""
    kernel = request.kernel
    if kernel.is_exponential:
        exponent = kernel.rate * (squared - nearest[:, None])
        rungs: list[Array] = [np.empty(0)] * steps_per_octave
        for i, c in enumerate(bandwidths):
            rung = i % steps_per_octave
            if i // steps_per_octave % _SQUARINGS == 0:
                rungs[rung] = np.exp(exponent / c**2)
            else:
                np.multiply(rungs[rung], rungs[rung], out=rungs[rung])
            yield rungs[rung]
    elif np.isinf(kernel.support):
        excess = np.where(np.isinf(squared), 0.0, squared - nearest[:, None])
        for c in bandwidths:
            decay = kernel.log_decay(nearest[:, None] / c**2, excess / c**2)
            yield np.where(np.isinf(squared), 0.0, np.exp(decay))
    else:
        for c in bandwidths:
            yield kernel.profile(squared * (kernel.rate / c**2)).astype(np.float64, copy=False)
