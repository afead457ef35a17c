"""Training rows in canonical order, and what leave-one-out excludes for each of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Exclusion",
    "TrainingSet",
    "are_multiplicities",
    "evenly_spaced",
    "number_of_rows",
    "scaled_weights",
]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


def evenly_spaced(n: int, most: int) -> Indices:
    """Positions of at most so many of n rows, evenly spaced, both ends included."""
    return np.arange(n) if n <= most else np.linspace(0, n - 1, most).astype(np.intp)


def are_multiplicities(weights: Array) -> bool:
    """Whether all weights are whole numbers, and so count repetitions of their rows.

    Numbers too large to have a fraction count nothing.
    """
    return bool(np.all(weights == np.floor(weights)) and weights.max() < 2.0**53)


def scaled_weights(weights: Array) -> Array:
    """Weights over a power of two of the size of the largest, whose sums do not overflow."""
    return np.ldexp(weights, -np.frexp(weights.max())[1])


def number_of_rows(weights: Array) -> float:
    """n of criteria and rules: the sum of multiplicities, or the number of important rows."""
    return float(weights.sum()) if are_multiplicities(weights) else float(weights.size)


@dataclass(frozen=True)
class Exclusion:
    """Keys that a query must not see, and how much of their weight is retained.

    Leave-one-out removes the excluded weight before any sum is formed. Keys are in canonical order,
    in which the excluded keys of a query stand side by side.

    Attributes
    ----------
    start, stop : ndarray of shape (n_queries,)
        The excluded keys are ``start <= i < stop``; none when both are equal.
    retained : ndarray of shape (n_queries,)
        The factor of their sample weight that remains, between 0 (left out) and 1 (all of it: used
        to read off the weight a query gives to its own row, as leverage does).
    """

    start: Indices
    stop: Indices
    retained: Array

    def take(self, queries: slice | Indices) -> Exclusion:
        """Exclusion of some of the queries."""
        return Exclusion(self.start[queries], self.stop[queries], self.retained[queries])

    def covers(self, n_keys: int) -> NDArray[np.bool_]:
        """Queries for which all keys are excluded and nothing is retained."""
        reaches_all = (self.start <= 0) & (self.stop >= n_keys)
        return np.asarray(reaches_all & (self.retained == 0.0))

    def entries(self, first: int, last: int) -> tuple[Indices, Indices]:
        """Positions (query, key - first) of excluded keys among the keys first, ..., last - 1."""
        start = np.minimum(np.maximum(self.start, first), last)
        count = np.minimum(np.maximum(self.stop, first), last) - start
        if (count == 1).all():  # one each, as most often
            return np.arange(count.size), start - first
        queries = np.repeat(np.arange(count.size), count)
        offset = np.arange(queries.size) - np.repeat(np.cumsum(count) - count, count)
        return queries, np.repeat(start - first, count) + offset


@dataclass(frozen=True)
class TrainingSet:
    """Training rows, canonical and sorted.

    Rows are sorted by group, features and targets, so that results do not depend on the order of
    the caller's rows; rows of zero weight come last and are no keys.

    Attributes
    ----------
    X : ndarray of shape (n_rows, n_features)
        Features.
    y : ndarray of shape (n_rows, n_outputs)
        Targets.
    weights : ndarray of shape (n_rows,)
        Sample weights.
    groups : ndarray of shape (n_rows,) of int, or None
        Rows of a group are left out together.
    order : ndarray of shape (n_rows,)
        Position of each row in the caller's data.
    n_keys : int
        Number of rows of positive weight, which come first.
    """

    X: Array
    y: Array
    weights: Array
    groups: Indices | None
    order: Indices
    n_keys: int
    _cache: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def canonical(
        cls, X: Array, y: Array, weights: Array, groups: Indices | None = None
    ) -> TrainingSet:
        """Sort rows; groups are numbered by their first rows, whatever their labels."""
        absent = weights == 0.0
        labels = np.zeros(len(X), dtype=np.intp) if groups is None else groups
        for width in (1, 4, X.shape[1]):  # ties beyond the first features are rare
            leading = X[:, :width]
            order = np.lexsort((weights, labels, *y.T[::-1], *leading.T[::-1], absent))
            if width >= X.shape[1] or not _repeats(leading[order]).any():
                break
        if groups is not None:
            _, first, inverse = np.unique(labels[order], return_index=True, return_inverse=True)
            groups = np.argsort(np.argsort(first))[inverse]
            by_group = np.lexsort((groups, absent[order]))
            order, groups = order[by_group], groups[by_group]
        return cls(X[order], y[order], weights[order], groups, order, int(np.sum(~absent)))

    def __getstate__(self) -> dict[str, Any]:
        """State to pickle, without what can be computed again."""
        return self.__dict__ | {"_cache": {}}

    @property
    def keys(self) -> slice:
        """The rows that are keys."""
        return slice(0, self.n_keys)

    @property
    def callers_order(self) -> Indices:
        """Positions in canonical order of the caller's rows: the inverse of `order`."""
        if "callers_order" not in self._cache:
            self._cache["callers_order"] = np.argsort(self.order)
        order: Indices = self._cache["callers_order"]
        return order

    @property
    def deduplicated(self) -> TrainingSet:
        """The keys alone, equal ones (group, features and targets) as one of their joint weight."""
        if "deduplicated" not in self._cache:
            self._cache["deduplicated"] = self._deduplicated()
        training_set: TrainingSet = self._cache["deduplicated"]
        return training_set

    def _deduplicated(self) -> TrainingSet:
        first = np.flatnonzero(self.first_of_equals())
        weights = self.weights[: self.n_keys]
        if are_multiplicities(self.weights):
            weights = np.add.reduceat(weights, first)
        else:  # only ratios matter: sums are neither to overflow nor to be whole
            weights = np.add.reduceat(scaled_weights(weights), first)
            weights *= 0.5 / weights.max()
        return self._at(first, weights)

    def places_when_deduplicated(self) -> Indices:
        """Place of each key in the `deduplicated` training set."""
        return np.asarray(np.cumsum(self.first_of_equals()) - 1)

    def first_of_equals(self) -> NDArray[np.bool_]:
        """Whether each key is the first one of its group, features and targets."""
        columns = [self.X, self.y] if self.groups is None else [self.groups, self.X, self.y]
        return ~_repeats(np.column_stack(columns)[: self.n_keys])

    def take(self, rows: Indices) -> TrainingSet:
        """Some of the keys, in their order."""
        return self._at(rows, self.weights[rows])

    def _at(self, rows: Indices, weights: Array) -> TrainingSet:
        groups = None if self.groups is None else self.groups[rows]
        return TrainingSet(self.X[rows], self.y[rows], weights, groups, self.order[rows], rows.size)

    @property
    def multiplicity(self) -> Array:
        """Number of rows that each key stands for: its weight if that is a multiplicity, or one."""
        weights = self.weights[: self.n_keys]
        return weights.copy() if are_multiplicities(self.weights) else np.ones_like(weights)

    def counts(self) -> Array:
        """Number of rows that each key counts as among neighbours: importances have mean 1."""
        weights = self.weights[: self.n_keys]
        if are_multiplicities(self.weights):
            return weights.copy()
        shares = scaled_weights(weights)
        return shares / shares.mean()

    def leave_one_out(self) -> Exclusion:
        """Exclusion of leave-one-out, for every row.

        With groups, every key of the row's group. Otherwise whole-number weights are
        multiplicities: one unit of the row's own weight. Other weights are importances: every key
        with the same features, so that scaling the weights changes nothing. Rows of zero weight
        are no keys and exclude nothing but their group.
        """
        if self.groups is not None:
            keys = self.groups[: self.n_keys]
            start = np.searchsorted(keys, self.groups, side="left")
            stop = np.searchsorted(keys, self.groups, side="right")
            return Exclusion(start, stop, np.zeros(self.weights.size))
        if are_multiplicities(self.weights):
            return self.one_unit()
        fresh = np.flatnonzero(~_repeats(self.X[: self.n_keys]))
        stops = np.append(fresh[1:], self.n_keys)
        atom = np.searchsorted(fresh, np.arange(self.n_keys), side="right") - 1
        start, stop = np.zeros((2, self.weights.size), dtype=np.intp)
        start[: self.n_keys], stop[: self.n_keys] = fresh[atom], stops[atom]
        return Exclusion(start, stop, np.zeros(self.weights.size))

    def leaves_one_unit(self) -> bool:
        """Whether leave-one-out leaves out one unit of each row."""
        return self.groups is None and are_multiplicities(self.weights)

    def one_unit(self) -> Exclusion:
        """Exclusion of one unit of each row's multiplicity, or of the row of an importance."""
        everything = self.nothing()
        units = np.ones(self.weights.size)
        if are_multiplicities(self.weights):
            units = np.maximum(self.weights, 1.0)
        return Exclusion(everything.start, everything.stop, 1.0 - 1.0 / units)

    def nothing(self) -> Exclusion:
        """Exclusion that names every row's own key and retains all of it."""
        start = np.minimum(np.arange(self.weights.size), self.n_keys)
        stop = np.minimum(start + 1, self.n_keys)
        return Exclusion(start, stop, np.ones(self.weights.size))


def _repeats(sorted_rows: Array) -> NDArray[np.bool_]:
    """Whether each row equals the one before it."""
    repeats = np.zeros(len(sorted_rows), dtype=bool)
    repeats[1:] = (sorted_rows[1:] == sorted_rows[:-1]).all(axis=1)
    return repeats
