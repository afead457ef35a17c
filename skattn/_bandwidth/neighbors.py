"""Selecting the number of neighbours that an adaptive bandwidth reaches."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from skattn._attention import Attention, KeyScale
from skattn._bandwidth.objective import Objective, SelectionSettings
from skattn._bandwidth.problem import Problem
from skattn._geometry.neighbors import neighbor_distances
from skattn._geometry.training_set import TrainingSet

__all__ = ["neighbors_curve", "select_neighbors"]

Array = NDArray[np.float64]
Numbers = NDArray[np.intp]

# Numbers of neighbours that are all tried; beyond, so many to a factor of two.
_ALL, _PER_OCTAVE = 64, 8
# Pairs of rows at which numbers are tried before the best are judged at all of them.
_FIRST_PAIRS, _LEAST_QUERIES = 1_000_000, 100
# Minima of the numbers tried that are followed.
_MINIMA = 3


def select_neighbors(
    training_set: TrainingSet,
    settings: SelectionSettings,
    adaptive: str,
    bandwidths: Sequence[Array],
    n_neighbors: int | None,
) -> tuple[Array, int, float]:
    """Find the number of neighbours of least criterion, and the relative bandwidths with it.

    Parameters
    ----------
    training_set : TrainingSet
        The training rows.
    settings : SelectionSettings
        Criterion, kernel, degree and resources.
    adaptive : {"query", "key"}
        Whose neighbours are counted.
    bandwidths : sequence of ndarray of shape (n_features,)
        Relative bandwidths to choose among.
    n_neighbors : int or None
        The number, where it is given.

    Returns
    -------
    bandwidth : ndarray of shape (n_features,)
        The best relative bandwidths.
    n_neighbors : int
        The best number.
    value : float
        The criterion, in the units of `select_bandwidth`.

    Notes
    -----
    All numbers up to 64 are tried, and eight to a factor of two beyond; on a sample of the rows
    where there are many. From the best of them, the search goes on in ever smaller steps.
    """
    found = []
    for bandwidth in bandwidths:
        curve = _Curve.of(training_set, settings, adaptive, bandwidth)
        number = _best_number(curve) if n_neighbors is None else int(n_neighbors)
        found.append((curve.at(np.array([number]))[0], number, bandwidth))
    value, number, bandwidth = min(found, key=lambda one: one[0])
    return bandwidth, number, float(value)


def neighbors_curve(
    training_set: TrainingSet,
    settings: SelectionSettings,
    adaptive: str,
    bandwidth: Array,
    numbers: Numbers,
) -> Array:
    """The criterion at each of some numbers of neighbours; parameters as for `select_neighbors`."""
    order = np.argsort(numbers)
    values = np.empty(len(numbers))
    values[order] = _Curve.of(training_set, settings, adaptive, bandwidth).at(numbers[order])
    return values


@dataclass(frozen=True)
class _Curve:
    """The criterion as a function of the number of neighbours, at relative bandwidths."""

    problem: Problem
    scaled: Callable[[Problem, Objective, Attention, Numbers], list[Attention]]
    bandwidth: Array

    @classmethod
    def of(
        cls,
        training_set: TrainingSet,
        settings: SelectionSettings,
        adaptive: str,
        bandwidth: Array,
    ) -> _Curve:
        scaled = {"query": _with_query_scales, "key": _with_key_scales}[adaptive]
        return cls(Problem.of(training_set, settings), scaled, bandwidth)

    @property
    def most(self) -> int:
        """The largest number of neighbours."""
        return max(int(self.problem.training_set.counts().sum() + 1e-9) - 1, 1)

    def thinned(self) -> _Curve:
        """Curve at a sample of the rows, where they are many."""
        fewer = max(_LEAST_QUERIES, _FIRST_PAIRS // len(self.problem.values))
        settings = self.problem.settings
        fewer = min(fewer, settings.max_queries)
        return replace(self, problem=self.problem.judging_by(replace(settings, max_queries=fewer)))

    def at(self, numbers: Numbers) -> Array:
        """The criterion at ascending numbers."""
        if self.problem.is_constant:
            return np.full(len(numbers), self.problem.value_of_the_mean())
        objective = self.problem.objective()
        regression = objective.regression(self.problem.log_bandwidths(self.bandwidth))
        varied = self.scaled(self.problem, objective, regression.attention, numbers)
        values = [objective.value_of(replace(regression, attention=each)) for each in varied]
        return np.array([self.problem.restore(value) for value in values])


def _with_query_scales(
    problem: Problem, objective: Objective, attention: Attention, numbers: Numbers
) -> list[Attention]:
    """Attention whose queries are scaled by the distance to each number of neighbours."""
    training_set, excluded = problem.training_set, problem.training_set.one_unit()
    if problem.settings.criterion.leaves_out:
        excluded = training_set.leave_one_out()
    some, counts = excluded.take(objective.sample.queries), training_set.counts()
    scales = neighbor_distances(attention.queries, attention.keys, counts, numbers, some)
    return [replace(attention, query_scale=each) for each in scales.T]


def _with_key_scales(
    problem: Problem, objective: Objective, attention: Attention, numbers: Numbers
) -> list[Attention]:
    """Attention whose keys are scaled by the distance to each number of neighbours."""
    training_set, keys = problem.training_set, attention.keys
    both = np.unique(np.concatenate([numbers, numbers + 1]))
    excluded, counts = training_set.one_unit(), training_set.counts()
    radii = neighbor_distances(keys, keys, counts, both, excluded)
    changes = problem.settings.criterion.leaves_out and training_set.leaves_one_unit()
    scales = [
        KeyScale(radii[:, i], radii[:, i + 1] if changes else None)
        for i in np.searchsorted(both, numbers)
    ]
    return [replace(attention, key_scale=each) for each in scales]


def _best_number(curve: _Curve) -> int:
    """The number of least criterion of those tried."""
    if curve.problem.is_constant:  # any number does
        return 1
    numbers = _numbers_to_try(curve.most)
    values = curve.thinned().at(numbers)
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


def _numbers_to_try(most: int) -> Numbers:
    """Numbers of neighbours to try, from 1 to `most`."""
    beyond = _ALL * 2.0 ** (np.arange(1, 200) / _PER_OCTAVE)
    numbers = np.concatenate([np.arange(1, _ALL + 1), np.round(beyond[beyond < most]), [most]])
    return np.unique(numbers[numbers <= most]).astype(np.intp)
