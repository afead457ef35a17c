"""Selecting a bandwidth for training rows."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skattn._attention import single_threaded_blas
from skattn._bandwidth.criteria import LeaveOneOut
from skattn._bandwidth.effort import SUBSAMPLES, Effort
from skattn._bandwidth.objective import SelectionSettings
from skattn._bandwidth.problem import Problem
from skattn._bandwidth.search import Candidate, search_common, search_each
from skattn._geometry.training_set import TrainingSet, are_multiplicities

__all__ = ["Selected", "criterion_curve", "select_bandwidth", "share_of_copies"]

Array = NDArray[np.float64]


class Selected(NamedTuple):
    """Bandwidths of least criterion.

    Attributes
    ----------
    bandwidth : ndarray of shape (n_features,)
        In the units of the features; inf for those that are smoothed out.
    value : float
        The criterion there. For one output in the units of its square, or their logarithm; for
        several, each is divided by its variance before, and averaged.
    has_converged : bool
        False where a search along the features, for kernels without slopes, was cut short.
    """

    bandwidth: Array
    value: float
    has_converged: bool


def select_bandwidth(
    training_set: TrainingSet, settings: SelectionSettings, *, anisotropic: bool
) -> Selected:
    """Find the bandwidths of least criterion.

    Parameters
    ----------
    training_set : TrainingSet
        The training rows. At least one key is left for each row when its own are left out,
        unless all features are constant.
    settings : SelectionSettings
        Criterion, kernel, degree and resources.
    anisotropic : bool
        Whether every feature has a bandwidth of its own, or all a common multiple of their
        spreads.

    Returns
    -------
    Selected
    """
    problem = Problem.of(training_set, settings)
    if problem.is_constant:
        return Selected(np.full(problem.spread.size, np.inf), problem.value_of_the_mean(), True)
    with single_threaded_blas():  # once: limiting it takes as long as a small evaluation
        objective = problem.objective()
        if anisotropic and objective.n_features > 1:
            found = _search_each(problem)
        else:
            found = search_common(objective, problem.objective(SUBSAMPLES[-1]))
    value = problem.restore(found.value)
    return Selected(problem.bandwidth(found.point), value, found.has_converged)


def _search_each(problem: Problem) -> Candidate:
    objective = problem.objective()
    n, d = objective.n_keys, objective.n_features
    subsamples = [problem.objective(size) for size in SUBSAMPLES if 2 * size <= n]
    by_leave_one_out = problem.judging_by(replace(problem.settings, criterion=LeaveOneOut()))
    effort = Effort.on(n, d, problem.settings.degree)
    return search_each(objective, by_leave_one_out.objective(effort.n_rows), subsamples)


def criterion_curve(
    training_set: TrainingSet, settings: SelectionSettings, bandwidths: Array
) -> Array:
    """The criterion at each of some bandwidths.

    Parameters
    ----------
    training_set : TrainingSet
        The training rows.
    settings : SelectionSettings
        Criterion, kernel, degree and resources.
    bandwidths : ndarray of shape (n_bandwidths, n_features)
        In the units of the features, inf allowed.

    Returns
    -------
    ndarray of shape (n_bandwidths,)
        In the units of `select_bandwidth`.
    """
    problem = Problem.of(training_set, settings)
    if problem.is_constant:
        return np.full(len(bandwidths), problem.value_of_the_mean())
    values = problem.objective().values(problem.log_bandwidths(bandwidths))
    return np.array([problem.restore(value) for value in values])


def share_of_copies(training_set: TrainingSet) -> float:
    """The share of the weight in rows that occur more than once, features and targets alike."""
    deduplicated = training_set.deduplicated
    if are_multiplicities(training_set.weights):
        copied = deduplicated.weights > 1.0
    else:
        first = np.flatnonzero(training_set.first_of_equals())
        copied = np.diff(np.append(first, training_set.n_keys)) > 1
    return float(deduplicated.weights[copied].sum() / deduplicated.weights.sum())
