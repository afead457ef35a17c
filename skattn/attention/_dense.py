"""The dense engine: queries x keys in cache-sized blocks, threads over blocks of queries."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from skattn.attention._blocks import Buffer, WeightBlocks
from skattn.attention._merge import Sums, merge
from skattn.attention._request import Request, Resources
from skattn.attention._threads import run_blocks

Array = NDArray[np.floating]

# Queries whose first block of keys sums to less are likely to underflow altogether.
_DISTANT = {np.dtype(np.float64): 1e-120, np.dtype(np.float32): 1e-10}


def dense_sums(request: Request, resources: Resources) -> tuple[Sums, NDArray[np.bool_]]:
    """Sums over all keys, without looking for the largest weight of a query where K <= 1.

    Returns also which queries were summed in single precision. Those whose denominator is below
    ``kernel.trusted_normalizer`` are not determined well; the caller recomputes them.

    Time O(n_queries * n_keys * n_features); memory ``resources.block_bytes`` a thread and
    O((n_queries + n_keys) * (n_features + n_outputs)).
    """
    engine = _DenseEngine(request, resources)
    blocks = resources.row_blocks(len(request.queries), len(request.keys))
    run_blocks(engine.run, blocks, resources.workers(request.n_pairs))
    return engine.sums, engine.single


class _DenseEngine:
    def __init__(self, request: Request, resources: Resources) -> None:
        self.request, self.resources = request, resources
        self.blocks = WeightBlocks(request, resources)
        factor = self.blocks.factor
        contracted = np.column_stack([request.values * factor[:, None], factor])
        self.contracted = {dtype: contracted.astype(dtype) for dtype in self.blocks.dtypes}
        repeats = 1.0 if request.repeats is None else request.repeats
        self.squared = {dtype: (factor**2 / repeats).astype(dtype) for dtype in self.blocks.dtypes}
        self.single = np.zeros(len(request.queries), dtype=bool)
        self.sums = Sums.empty(len(request.queries), request.values.shape[1])

    def run(self, row_blocks: Sequence[slice]) -> None:
        """Fill in the sums of some blocks of queries."""
        buffer = np.empty(0, dtype=np.uint8)
        for rows in row_blocks:
            n_rows = rows.stop - rows.start
            columns = self.resources.key_blocks(n_rows, len(self.request.keys))
            size = n_rows * (columns[0].stop - columns[0].start) * 8
            if buffer.size < size:
                buffer = np.empty(size, dtype=np.uint8)
            sums, lift = self._block_sums(rows, columns[0], buffer), 0.0
            if np.median(sums.denominator) < _DISTANT[self.resources.dtype]:
                lift = self.blocks.lift(rows)
                sums = self._block_sums(rows, columns[0], buffer, lift)
            for block in columns[1:]:
                sums = merge(sums, self._block_sums(rows, block, buffer, lift))
            self.sums.write(rows, sums)
            self.single[rows] = self.blocks.expansion(rows) == np.float32

    def _block_sums(self, rows: slice, columns: slice, buffer: Buffer, lift: float = 0.0) -> Sums:
        weights, shift = self.blocks.weights(rows, columns, buffer, lift)
        own, squares = np.zeros((2, len(weights)))
        totals = weights @ self.contracted[weights.dtype][columns]
        if self.request.own is not None:
            queries, keys, kept = self.blocks.own_entries(rows, columns)
            own_weights = weights[queries, keys] * self.blocks.factor[columns][keys]
            own[:] = np.bincount(queries, own_weights, len(weights))
        if self.request.repeats is not None:
            if self.request.own is not None:
                # of the rows a key stands for, the part that stays: its squares are as many fewer
                weights[queries, keys] /= np.sqrt(np.where(kept > 0.0, kept, 1.0))
            np.multiply(weights, weights, out=weights)
            squares = weights @ self.squared[weights.dtype][columns]
        return Sums(shift, totals[:, :-1], totals[:, -1], squares, own)
