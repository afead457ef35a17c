"""Mixtures: several kinds of attention, gated. The only place that knows of several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skattn._attention import Resources, WeightBlock
from skattn._geometry.training_set import Exclusion
from skattn._smoother.local_regression import LocalRegression, RowReader
from skattn._smoother.removal import LeftOut, Moves, Removal

__all__ = ["MixedRegression", "MixedRowReader", "Regression"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# A component of a larger share that is outside its support puts the query outside.
_COUNTING_SHARE = 1e-3


@dataclass(frozen=True)
class MixedRegression:
    """Queries under several components, and the shares of these.

    Attributes
    ----------
    components : tuple of LocalRegression
        Over the same keys and values.
    gates : ndarray of shape (n_components, n_queries)
        Shares; they sum to 1 over components.
    """

    components: tuple[LocalRegression, ...]
    gates: Array

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return self.gates.shape[1]

    @property
    def n_keys(self) -> int:
        """Number of keys."""
        return self.components[0].n_keys

    @property
    def excluded(self) -> Exclusion | None:
        """Keys that each query must not see."""
        return self.components[0].excluded

    @property
    def values(self) -> Array:
        """Values of the keys."""
        return self.components[0].values

    def _each(self, change: Callable[[LocalRegression], LocalRegression]) -> MixedRegression:
        return replace(self, components=tuple(change(each) for each in self.components))

    def take(self, queries: slice | Indices) -> MixedRegression:
        """The regression of some of the queries."""
        some = self._each(lambda each: each.take(queries))
        return replace(some, gates=self.gates[:, queries])

    def excluding(self, excluded: Exclusion) -> MixedRegression:
        """Regression of these queries with other keys excluded."""
        return self._each(lambda each: each.excluding(excluded))

    def widened(self, multiple: float) -> MixedRegression:
        """Regression of these queries at a multiple of the bandwidths."""
        return self._each(lambda each: each.widened(multiple))

    def means_of(self, values: Array) -> MixedRegression:
        """Weighted means of other values (n_keys, n_columns) under these attention weights."""
        return self._each(lambda each: each.means_of(values))

    def mix(self, read: Callable[[LocalRegression], tuple[Any, ...]]) -> tuple[Any, ...]:
        """Mix numbers that are read off each component.

        Parameters
        ----------
        read : callable
            Returns arrays whose first axis are the queries, the last one of bool: which queries are
            outside. Numbers are added by their gates; a query is outside where a component that
            counts is.
        """
        *numbers, outside = zip(*(read(each) for each in self.components), strict=True)
        added = [np.einsum("hq,hq...->q...", self.gates, np.stack(part)) for part in numbers]
        return *added, mixed_outside(self.gates, outside)

    def reader(self, resources: Resources) -> MixedRowReader:
        """Reader of attention weights, block by block."""
        return MixedRowReader(self, resources)


Regression = LocalRegression | MixedRegression


class MixedRowReader:
    """Attention weights and rows of the smoother matrix, mixed from those of the components.

    Parameters
    ----------
    regression : MixedRegression
        Queries, keys and local fits.
    """

    def __init__(self, regression: MixedRegression, resources: Resources) -> None:
        self.gates = regression.gates
        self.readers = [RowReader(each, resources) for each in regression.components]
        self.blocks = min((each.blocks for each in self.readers), key=lambda blocks: blocks[0].stop)

    def read(self, queries: slice) -> WeightBlock:
        """Attention weights of a block of queries."""
        return self.mixed(queries, [each.read(queries) for each in self.readers])

    def smoother_rows(self, queries: slice) -> WeightBlock:
        """Rows of the smoother matrix of a block of queries, in place of attention weights."""
        return self.mixed(queries, [each.smoother_rows(queries) for each in self.readers])

    def mixed(self, queries: slice, blocks: Sequence[WeightBlock]) -> WeightBlock:
        """Mix the blocks of all components."""
        gates = self.gates[:, queries]
        weights, own = np.zeros_like(blocks[0].weights), np.zeros_like(blocks[0].own)
        for gate, block in zip(gates, blocks, strict=True):
            weights += gate[:, None] * block.weights
            own += gate * block.own
        weights /= weights.sum(axis=1, keepdims=True)
        outside = mixed_outside(gates, [block.outside for block in blocks])
        return replace(blocks[0], weights=weights, own=own, outside=outside)


def mixed_outside(gates: Array, outside: Sequence[NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """Queries for which some component that counts has no key in its support."""
    return np.asarray(((gates > _COUNTING_SHARE) & np.stack(outside)).any(axis=0))


class MixedRemoval:
    """Predictions of a block of queries without some keys: each component does without them.

    Parameters
    ----------
    gates : ndarray of shape (n_components, n_queries)
        Shares of the components at the queries.
    parts : sequence of Removal
        One for each component.
    n_keys : int
        Number of keys.
    """

    def __init__(self, gates: Array, parts: Sequence[Removal], n_keys: int) -> None:
        self.gates, self.parts, self.n_keys = gates, parts, n_keys
        self.prediction: Array = np.einsum("hq,hqp->qp", gates, [p.prediction for p in parts])

    def moves(self, output: int) -> Moves:
        """Changes of the predictions of one output without each key that matters."""
        pairs, changed = [], []
        for gate, part in zip(self.gates, self.parts, strict=True):
            moves = part.moves(output)
            pairs.append(moves.queries * self.n_keys + moves.keys)
            changed.append(gate[moves.queries] * moves.changes)
        pair, position = np.unique(np.concatenate(pairs), return_inverse=True)
        total = np.bincount(position, np.concatenate(changed), len(pair)).astype(np.float64)
        queries, keys = (part.astype(np.intp) for part in np.divmod(pair, self.n_keys))
        return Moves(queries, keys, total)


def remove(
    reader: RowReader | MixedRowReader,
    queries: slice,
    regression: Regression,
    left_out: LeftOut,
    resources: Resources,
) -> tuple[Removal | MixedRemoval, NDArray[np.bool_]]:
    """How predictions of a block of queries move without some keys; and who is outside.

    Parameters
    ----------
    reader : RowReader or MixedRowReader
        Reader of `regression`.
    queries : slice
        A block of the reader.
    regression : LocalRegression or MixedRegression
        The regression of all queries; nothing is excluded.
    left_out : LeftOut
        What is left out as one.
    """
    if isinstance(regression, LocalRegression):
        block = reader.read(queries)
        return Removal(block, regression.take(queries), left_out, resources), block.outside
    assert isinstance(reader, MixedRowReader)
    some, parts, outside = regression.take(queries), [], []
    for each, component in zip(reader.readers, some.components, strict=True):
        block = each.read(queries)
        parts.append(Removal(block, component, left_out, resources))
        outside.append(block.outside)
    return MixedRemoval(some.gates, parts, some.n_keys), mixed_outside(some.gates, outside)
