"""Selecting the number of neighbours that an adaptive bandwidth reaches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from skattn._attention import KeyScale
from skattn._bandwidth._selection import Criterion, Task
from skattn._geometry.neighbors import neighbor_distances as neighbor_radii
from skattn._geometry.scaling import spread
from skattn._geometry.training_set import TrainingSet as Table

__all__ = ["neighbors_curve", "select_neighbors"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]

# Numbers of neighbours that are all tried; beyond, so many to a factor of two.
_ALL, _PER_OCTAVE = 64, 8
# Pairs of rows at which numbers are tried before the best are judged at all of them.
_PILOT_PAIRS = 1_000_000
# Of the numbers tried, how many minima are followed.
_MINIMA = 3


def select_neighbors(
    table: Table,
    criterion: Criterion,
    adaptive: str,
    bandwidths: Sequence[Array],
    n_neighbors: int | None,
) -> tuple[Array, int, float]:
    """The number of neighbours of least criterion, and which relative bandwidths go with it.

    Parameters
    ----------
    table : Table
    criterion : Criterion
    adaptive : {"query", "key"}
    bandwidths : sequence of ndarray of shape (n_features,)
        Relative bandwidths to choose among.
    n_neighbors : int or None
        The number, where it is given.

    Returns
    -------
    bandwidth : ndarray of shape (n_features,)
    n_neighbors : int
    value : float
        Of the criterion, in the units of `select_bandwidth`.

    Notes
    -----
    All numbers up to 64 are tried, and eight to a factor of two beyond; on a sample of the rows
    where there are many. From the best of them, the search goes on in ever smaller steps.
    """
    found = []
    for bandwidth in bandwidths:
        curve = _Curve.of(table, criterion, adaptive, bandwidth)
        number = _best_number(curve) if n_neighbors is None else int(n_neighbors)
        found.append((curve.at(np.array([number]))[0], number, bandwidth))
    value, number, bandwidth = min(found, key=lambda one: one[0])
    return bandwidth, number, float(value)


def neighbors_curve(
    table: Table, criterion: Criterion, adaptive: str, bandwidth: Array, numbers: Numbers
) -> Array:
    """The criterion at each of some numbers of neighbours."""
    order = np.argsort(numbers)
    values = np.empty(len(numbers))
    values[order] = _Curve.of(table, criterion, adaptive, bandwidth).at(numbers[order])
    return values


@dataclass(frozen=True)
class _Curve:
    """The criterion as a function of the number of neighbours, at relative bandwidths."""

    task: Task
    adaptive: str
    log_bandwidth: Array
    most: int

    @classmethod
    def of(cls, table: Table, criterion: Criterion, adaptive: str, bandwidth: Array) -> _Curve:
        task = Task.of(table, criterion)
        scale = spread(task.table.X, task.table.weights)
        informative = np.isfinite(scale)
        log_bandwidth = np.log(bandwidth[informative] / scale[informative])
        return cls(task, adaptive, log_bandwidth, max(int(task.table.counts().sum() + 1e-9) - 1, 1))

    def thinned(self) -> _Curve:
        """The same at a sample of the rows, where they are many."""
        fewer = max(100, _PILOT_PAIRS // len(self.task.table.X))
        criterion = self.task.criterion
        if fewer >= criterion.max_queries:
            return self
        thin = replace(criterion, max_queries=fewer)
        return replace(self, task=Task.of(self.task.table, thin))

    def at(self, numbers: Numbers) -> Array:
        """The criterion at ascending numbers."""
        objective = self.task.objective
        if objective is None:
            return np.full(len(numbers), self.task.constant)
        request = objective.at(self.log_bandwidth)
        table, counts = self.task.table, self.task.table.counts()
        is_loo = self.task.criterion.name == "loo"
        if self.adaptive == "query":
            own = (table.leave_one_out() if is_loo else table.one_unit()).take(objective.rows)
            radii = neighbor_radii(request.attention.queries, request.attention.keys, counts, numbers, own)
            varied = [dict(query_scale=column) for column in radii.T]
        else:
            both = np.unique(np.concatenate([numbers, numbers + 1]))
            own = table.one_unit()
            radii = neighbor_radii(request.attention.keys, request.attention.keys, counts, both, own)
            positions = np.searchsorted(both, numbers)
            changes = is_loo and table.leaves_one_unit()
            varied = [
                dict(key_scale=KeyScale(radii[:, i], radii[:, i + 1] if changes else None))
                for i in positions
            ]
        values = [objective.value_of(replace(request, attention=replace(request.attention, **each))) for each in varied]
        return np.array([self.task.units.restore(value) for value in values])


def _best_number(curve: _Curve) -> int:
    """The number of least criterion of those tried."""
    if curve.task.objective is None:  # any number does
        return 1
    few = curve.thinned()
    numbers = _ladder(curve.most)
    values = few.at(numbers)
    padded = np.concatenate([[np.inf], values, [np.inf]])
    minima = np.flatnonzero((values <= padded[:-2]) & (values <= padded[2:]))
    minima = minima[np.argsort(values[minima], kind="stable")][:_MINIMA]
    known = {int(numbers[i]): float(curve.at(numbers[i : i + 1])[0]) for i in minima}
    for i in minima:
        best, step = int(numbers[i]), int(np.diff(numbers[max(i - 1, 0) : i + 2]).max(initial=1))
        while (step := step // 2) >= 1:
            for number in (best - step, best + step):
                if 1 <= number <= curve.most and number not in known:
                    known[number] = float(curve.at(np.array([number]))[0])
            best = min((best - step, best, best + step), key=lambda k: known.get(k, np.inf))
    return min(known, key=lambda number: known[number])


def _ladder(most: int) -> Numbers:
    """Numbers to try, from 1 to `most`."""
    beyond = _ALL * 2.0 ** (np.arange(1, 200) / _PER_OCTAVE)
    numbers = np.concatenate([np.arange(1, _ALL + 1), np.round(beyond[beyond < most]), [most]])
    return np.unique(numbers[numbers <= most]).astype(np.intp)
