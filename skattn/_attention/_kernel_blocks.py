"""Blocks of kernel weights, queries x keys: the inner loop of everything dense."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skattn._attention._attention import Attention
from skattn._attention._resources import Resources
from skattn._geometry.distances import Expansion

__all__ = ["Buffer", "KernelBlocks", "ThreadMemory"]

Array = NDArray[Any]  # of float32 or float64
Indices = NDArray[np.intp]
Buffer = NDArray[np.uint8]

_DOUBLE = np.dtype(np.float64)
# Largest error of a squared distance in float32, where it is allowed.
_SINGLE_TOLERANCE = 5e-5
# What may be added to the exponent of weights that would underflow: their sums stay finite.
_LIFT = {np.dtype(np.float64): 600.0, np.dtype(np.float32): 70.0}


class ThreadMemory:
    """Memory for one block, kept by each thread: fresh memory costs as much as the arithmetic."""

    def __init__(self) -> None:
        self.local = threading.local()

    def of_size(self, size: int) -> Buffer:
        """Memory of at least so many bytes; valid until this thread asks again."""
        buffer: Buffer | None = getattr(self.local, "buffer", None)
        if buffer is None or buffer.size < size:
            np.empty(
                size, dtype=np.uint8
            )  # once freed, the allocator keeps as much for what follows
            buffer = self.local.buffer = np.empty(size, dtype=np.uint8)
        return buffer


class KernelBlocks:
    """Weights of blocks of queries and keys at fixed bandwidths, up to a shift of each query.

    Parameters
    ----------
    attention : Attention
        Without scales of queries or keys.
    resources : Resources
        The precision allowed.

    Attributes
    ----------
    factor : ndarray of shape (n_keys,)
        Per-key factor still missing from the weights: the sample weights if the kernel peaks at one
        (multiply them into the columns that are summed), else ones.
    dtypes : list of numpy.dtype
        Types that weights may have.
    """

    def __init__(self, attention: Attention, resources: Resources) -> None:
        self.attention = attention
        kernel, dtype = attention.kernel, resources.dtype
        self.dtypes = [_DOUBLE] if dtype == _DOUBLE else [dtype, _DOUBLE]
        tolerances = {dtype: _SINGLE_TOLERANCE, _DOUBLE: resources.tolerance}
        usable = {each: tolerances[each] for each in self.dtypes} if kernel.smooth_at_zero else {}
        self.distances = Expansion(attention.queries, attention.keys, kernel.rate, usable)
        in_weights = not kernel.peaks_at_one
        self.factor = np.ones(len(attention.keys)) if in_weights else np.exp(attention.log_weights)

    def dtype(self, queries: slice) -> np.dtype:
        """Type of the weights of a block of queries."""
        return self.distances.dtype(queries) or _DOUBLE

    def lift(self, queries: slice) -> float:
        """Largest number that can be added to the log-weights of distant queries in passing."""
        dtype = self.distances.dtype(queries)
        return _LIFT[dtype] if dtype is not None and self.attention.kernel.is_exponential else 0.0

    def weights(
        self, queries: slice, keys: slice, buffer: Buffer, lift: float = 0.0
    ) -> tuple[Array, Array]:
        """Weights of a block up to `factor` and a shift of each query, and the shift.

        Weights are exp(log_weight - shift) / factor.

        Parameters
        ----------
        queries, keys : slice
            The block.
        buffer : ndarray of uint8
            Memory of the block: 8 bytes an entry.
        lift : float, default=0.0
            Added to the log-weights; at most `lift` of the queries.
        """
        kernel = self.attention.kernel
        t = self.distances.scaled(queries, keys, buffer, lift)
        if kernel.peaks_at_one:
            weights = kernel.profile(t)
            if self.attention.excluded is not None:
                rows, columns, retained = self.excluded_entries(queries, keys)
                weights[rows, columns] *= retained.astype(weights.dtype)
            return weights, np.full(len(weights), -lift)
        logits = np.add(kernel.log_profile(t), self.attention.log_weights[keys], out=t)
        if self.attention.excluded is not None:
            rows, columns, retained = self.excluded_entries(queries, keys)
            with np.errstate(divide="ignore"):
                logits[rows, columns] += np.log(retained)
        shift = logits.max(axis=1)
        logits -= np.where(np.isneginf(shift), 0.0, shift)[:, None]
        return np.exp(logits, out=logits), shift

    def slopes(self, queries: slice, keys: slice, buffer: Buffer) -> Array:
        """Derivatives dK / d(u**2) of a block, times what is retained of excluded keys."""
        slopes = self.attention.kernel.slope(self.distances.scaled(queries, keys, buffer))
        if self.attention.excluded is not None:
            rows, columns, retained = self.excluded_entries(queries, keys)
            slopes[rows, columns] *= retained.astype(slopes.dtype)
        return slopes

    def excluded_entries(self, queries: slice, keys: slice) -> tuple[Indices, Indices, Array]:
        """Positions of excluded keys in a block, and the share of their weight that is retained."""
        assert self.attention.excluded is not None
        excluded = self.attention.excluded.take(queries)
        rows, columns = excluded.entries(keys.start, keys.stop)
        return rows, columns, excluded.retained[rows]
