"""Search for the bandwidths that minimise a criterion, everywhere.

A geometric grid of bandwidths common to all features, from the gaps between neighbours to
everything as one neighbourhood, shows where minima are. They are refined for a common bandwidth;
for one of each feature, the best of them is one of many starts of descents on a subsample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar

from skattn._bandwidth.criteria import INFINITE
from skattn._bandwidth.effort import Effort
from skattn._bandwidth.objective import Objective
from skattn._bandwidth.saturating_log import HIGHEST, LOWEST, WIDEST, desaturate, saturate
from skattn._geometry.distances import distances
from skattn._geometry.training_set import evenly_spaced
from skattn._optimize import EarlyAbandonment, LevenbergMarquardt, Minima

__all__ = ["Candidate", "search_common", "search_each"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Log-bandwidths, in spreads, from which a feature hardly matters.
_WIDE = np.log(30.0)
# Rows at which starts are judged, where not all of them descend.
_JUDGES = 50
# Starts this close to a better one, in every coordinate, come after all others.
_CROWDED = 0.3
# Descents of a multistart that are not batched, at most.
_MOST_UNBATCHED = 12
# Up to this number of pairs of rows, a descent costs little.
_FEW_PAIRS = 300_000
# From this number on, the first steps of a single descent are approximate too.
_MANY_PAIRS = 1_000_000
# Pairs of rows for the best common bandwidth of lines.
_COMMON_PAIRS = 100_000
# Rows at which a grid of common bandwidths is judged, to find its minima.
_GRID_QUERIES = 250
# Range of log-bandwidths of starts, where these do not depend on the grid.
_NARROW_START, _WIDE_START = -2.5, 1.2
# Gains of the last steps, in units of the criterion.
_FINEST = 1e-10
# Passes of a coordinate search over all features, at each step size.
_MOST_PASSES = 25
# Gains of a coordinate search, of the value, that are rounding.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Candidate:
    """A value of the criterion, and the log-bandwidths in spreads that reach it."""

    value: float
    point: Array
    has_converged: bool = True

    @classmethod
    def at(cls, objective: Objective, point: Array) -> Candidate:
        """Evaluate the criterion."""
        return cls(objective.value(point), point)

    def distance(self, other: Candidate) -> float:
        """The largest difference of log-bandwidths, wherever features matter."""
        logs = (np.minimum(each.point, np.log(10.0)) for each in (self, other))
        return float(np.abs(np.subtract(*logs)).max())


def _shifted(points: Array, shift: float) -> Array:
    """Log-bandwidths for another number of rows; features that are smoothed out stay so."""
    return np.where(points < WIDEST, points + shift, WIDEST)


def _best(candidates: Sequence[Candidate]) -> Candidate:
    """The candidate of least value, the first of several."""
    return min(candidates, key=lambda candidate: candidate.value)


# Common bandwidths


def search_common(objective: Objective, subsample: Objective) -> Candidate:
    """One multiple of the spreads for all features: the global minimum of the criterion.

    Parameters
    ----------
    objective : Objective
        The criterion to minimise.
    subsample : Objective
        The criterion on fewer rows where there are many, to find where its minima are.
    """
    d, few = objective.n_features, subsample.at_most(_GRID_QUERIES).approximate()
    logs = geometric_grid(few, _grid_steps(few))
    values = np.minimum(few.values(logs[:, None] + np.zeros(d)), INFINITE)
    minima = _minima(values)[:6]
    lowest = values[minima[0]]
    is_same, step = few.n_keys == objective.n_keys, logs[0] - logs[1]
    tolerated = (0.2 if is_same else 0.02) * few.criterion.unit(lowest)
    minima = minima[values[minima] <= lowest + tolerated]
    logs = logs[minima] + few.shrinkage(objective)
    candidates = [Candidate.at(objective, np.full(d, np.inf))]
    kernel = objective.settings.kernel
    if kernel.has_slope and not (is_same and np.isfinite(kernel.support)):
        return _best([*candidates, _descend_in_common(objective, logs)])
    reach = step if few.sample.n_pairs == objective.sample.n_pairs else np.log(2.0)
    candidates += [Candidate.at(objective, np.full(d, log)) for log in logs]
    return _best([*candidates, *(_bracket(objective, x - reach, x + reach) for x in logs)])


def geometric_grid(objective: Objective, n_steps: int) -> Array:
    """Common log-bandwidths in spreads, from wide to narrow, `n_steps` to a factor of two."""
    coordinates = objective.sample.coordinates
    some = coordinates[evenly_spaced(len(coordinates), 200)]
    away = distances(some, coordinates)
    gaps = np.where(away > 0.0, away, np.inf).min(axis=1)
    density = (len(some) / len(coordinates)) ** (1.0 / objective.n_features)
    narrowest = np.quantile(gaps, 0.05, method="lower") * min(1.0, density) / 8.0
    widest = min(4.0 * away.max(), np.exp(WIDEST))
    octaves = np.log2(widest / min(narrowest, widest))
    return np.log(widest) - np.log(2.0) / n_steps * np.arange(np.ceil(n_steps * octaves) + 1)


def _grid_steps(objective: Objective) -> int:
    """Steps of a grid to a factor of two, so that minima are not missed."""
    kernel, n_pairs = objective.settings.kernel, objective.sample.n_pairs
    if not kernel.has_slope and n_pairs < 2e4:
        return 96  # steps and kinks everywhere
    if objective.settings.degree > 0:  # lines jump where a key enters the support
        return 16 if n_pairs <= _GRID_QUERIES**2 and np.isfinite(kernel.support) else 4
    return 8 if n_pairs <= _GRID_QUERIES**2 else 4


def _minima(values: Array) -> Indices:
    """Positions of the local minima, lowest first; the first position of each plateau."""
    digits = 1e-6 * max(abs(float(values.min())), 1e-30)
    rounded = np.round(values / digits)
    fresh = np.flatnonzero(np.append(True, rounded[1:] != rounded[:-1]))
    padded = np.concatenate([[np.inf], values[fresh], [np.inf]])
    minima = fresh[(padded[1:-1] <= padded[:-2]) & (padded[1:-1] <= padded[2:])]
    return minima[np.argsort(values[minima], kind="stable")]


def _descend_in_common(objective: Objective, logs: Array) -> Candidate:
    """The lowest of the minima near some common log-bandwidths."""

    def linearize(saturated: Array) -> tuple[Array, Array, Array]:
        values, gradients, matrices = objective.linearize_saturated(
            saturated + np.zeros(objective.n_features)
        )
        total = matrices.sum(axis=(1, 2))[:, None, None]
        return values, gradients.sum(axis=1, keepdims=True), total

    method, bounds = _method(objective, _FINEST, 60), (np.array([LOWEST]), np.array([HIGHEST]))
    found = method.minimize(linearize, saturate(logs)[:, None], bounds, EarlyAbandonment(0.05))
    point = desaturate(found.best) + np.zeros(objective.n_features)
    return Candidate(float(found.values.min()), point)


def _bracket(objective: Objective, low: float, high: float) -> Candidate:
    """The best common bandwidth between two."""
    d = objective.n_features

    def function(log: float) -> float:
        return min(objective.value(np.full(d, log)), INFINITE)

    candidates = []
    has_kinks = np.isfinite(objective.settings.kernel.support)
    if has_kinks:  # look where between
        logs = np.linspace(low, high, 17)
        values = [function(log) for log in logs]
        i = int(np.argmin(values))
        candidates.append(Candidate(values[i], np.full(d, logs[i])))
        low, high = logs[max(i - 1, 0)], logs[min(i + 1, 16)]
    options = {"xatol": 1e-9 if has_kinks else 1e-5}
    found = minimize_scalar(function, bounds=(low, high), method="bounded", options=options)
    candidates.append(Candidate(float(found.fun), np.full(d, found.x)))
    return _best([replace(each, value=_restored(each.value)) for each in candidates])


def _restored(value: float) -> float:
    """The criterion that a search saw as `value`."""
    return value if value < INFINITE else np.inf


# Bandwidths of each feature


def search_each(
    objective: Objective, first: Objective, subsamples: Sequence[Objective]
) -> Candidate:
    """A bandwidth for each feature.

    Parameters
    ----------
    objective : Objective
        The criterion to minimise.
    first : Objective
        Leave-one-out on few rows, to descend from many starts at once.
    subsamples : sequence of Objective
        The criterion on fewer rows, from few to many, to choose among the best.
    """
    mean = Candidate.at(objective, np.full(objective.n_features, np.inf))
    if not objective.settings.kernel.has_slope:
        start = _best_common([*subsamples, objective][0])
        return _best([mean, _coordinate_search(objective, start)])
    effort = Effort.on(objective.n_keys, objective.n_features, objective.settings.degree)
    few, shift = first.approximate(), first.shrinkage(objective)
    many = few if objective.settings.degree == 0 else [few, *subsamples][-1]
    base = np.minimum(_best_common(many) + many.shrinkage(objective), np.log(4.0))
    starts = _starts(objective, base, effort.n_random)
    tolerance = 1e-3 if subsamples else 1e-4
    found = _multistart(few, starts, effort, tolerance, shift)
    has_same = few.n_keys == objective.n_keys and objective.criterion.leaves_out
    points = _promising(found, 1 if has_same else effort.n_promising)
    for subsample in subsamples:
        some, shift = subsample.approximate(), subsample.shrinkage(objective)
        again = replace(effort, least=len(points) + 1, n_steps=20)
        followed = _multistart(some, np.array([base, *points]), again, 1e-3, shift)
        points = _promising(followed, 3)
    if not has_same and objective.sample.n_pairs <= _FEW_PAIRS:
        points = [base, *points]
    return _best([mean, _smooth_out(objective, _lowest(objective, points))])


def _best_common(objective: Objective) -> Array:
    """The best common bandwidth of a grid, at some of the rows."""
    is_mean = objective.settings.degree == 0  # single rows matter more to lines
    few = objective.at_most(2 * _JUDGES if is_mean else _COMMON_PAIRS // objective.n_keys)
    n_steps = 2 if few.settings.kernel.has_slope else _grid_steps(few)
    points = geometric_grid(few, n_steps)[:, None] + np.zeros(few.n_features)
    return points[int(np.argmin(few.approximate().values(points)))]


def _starts(objective: Objective, base: Array, n_random: int) -> Array:
    """Starts: all features alike, the rule of thumb, each feature smoothed out or alone, others.

    The others are random, the same for all data: between them, they find what structure misses.
    """
    d = len(base)
    features = np.eye(d, dtype=bool)[: 30 if d > 30 else d]
    rule = np.full(d, -np.log(objective.n) / (d + 4))
    out = np.where(features, WIDEST, base)
    alone = np.where(features, base, WIDEST)
    rng = np.random.default_rng(0)
    n_near = n_random if objective.settings.degree == 0 else n_random // 2
    near = base + rng.uniform(-2.0, 2.0, (n_near, d))
    elsewhere = rng.uniform(_NARROW_START, _WIDE_START, (n_random - n_near, d))
    return np.vstack([base, rule, out, alone, near, elsewhere])


def _multistart(
    few: Objective, starts: Array, effort: Effort, tolerance: float, shift: float
) -> list[Candidate]:
    """Minima of few rows near the best of some starts; log-bandwidths are those of all rows."""
    starts = _shifted(starts, -shift)
    n_descents = effort.n_descents(few.n_keys)
    if len(starts) > n_descents or few.batched is None:
        judged = few.at_most(_JUDGES).approximate().values(starts)
        is_crowded = EarlyAbandonment(_CROWDED).meets_better(saturate(starts), judged)
        n_descents = n_descents if few.batched else min(n_descents, _MOST_UNBATCHED)
        starts = starts[np.lexsort((judged, is_crowded))[:n_descents]]
    hope = 1e100 if few.settings.degree == 0 else 4.0
    rules = EarlyAbandonment(0.05, hope=hope, n_free_steps=2)
    found = _descend(few, starts, _method(few, tolerance, effort.n_steps), rules)
    points = _shifted(desaturate(found.points), shift)
    return [Candidate(float(found.values[i]), points[i]) for i in np.flatnonzero(~found.is_merged)]


def _method(objective: Objective, tolerance: float, max_iter: int) -> LevenbergMarquardt:
    is_relative = not objective.criterion.is_logarithm
    return LevenbergMarquardt(tolerance, max_iter, is_relative=is_relative)


def _descend(
    objective: Objective, starts: Array, method: LevenbergMarquardt, rules: EarlyAbandonment
) -> Minima:
    """Descents in the saturating variable from log-bandwidths (n_starts, n_features)."""
    bounds = np.full(starts.shape[1], LOWEST), np.full(starts.shape[1], HIGHEST)
    return method.minimize(objective.linearize_saturated, saturate(starts), bounds, rules)


def _promising(candidates: Sequence[Candidate], most: int) -> list[Array]:
    """The best candidates' log-bandwidths: good ones, and one of those that are much the same."""
    ordered = sorted(candidates, key=lambda candidate: candidate.value)
    unit = abs(ordered[0].value)
    kept: list[Candidate] = []
    for candidate in ordered:
        is_good = candidate.value - ordered[0].value <= 0.2 * unit
        is_new = all(
            candidate.value - other.value > 1e-4 * unit and candidate.distance(other) > 0.1
            for other in kept
        )
        if is_good and is_new:
            kept.append(candidate)
    return [candidate.point for candidate in kept[:most]]


def _lowest(objective: Objective, points: Sequence[Array]) -> Candidate:
    """The lowest of the minima near some points, most promising first."""
    rules = EarlyAbandonment(0.1, hope=10.0, n_free_steps=1)
    start = np.array(points)
    if len(points) > 1 or objective.sample.n_pairs > _MANY_PAIRS:
        method = _method(objective, 1e-4, 60)
        start = desaturate(_descend(objective.approximate(), start, method, rules).best)[None]
    found = _descend(objective, start, _method(objective, _FINEST, 60), rules)
    return Candidate(float(found.values.min()), desaturate(found.best))


def _smooth_out(objective: Objective, candidate: Candidate) -> Candidate:
    """Give up features whose bandwidth the criterion does not need to be finite."""
    for j in np.argsort(-candidate.point, kind="stable"):
        if candidate.point[j] < 0.0:  # narrower than its spread: it matters
            break
        wider = candidate.point.copy()
        wider[j] = np.inf
        without = Candidate.at(objective, wider)
        negligible = 1e-6 if candidate.point[j] > _WIDE else 1e-9
        tolerated = negligible * objective.criterion.unit(candidate.value)
        if without.value <= candidate.value + tolerated:
            candidate = without
    return candidate


def _coordinate_search(objective: Objective, start: Array) -> Candidate:
    """For kernels without slopes: each feature in turn along a grid, as long as it helps."""
    candidate, has_converged = Candidate.at(objective, start), True
    for step in (np.log(2.0), np.log(2.0) / 4.0):
        for _ in range(_MOST_PASSES):
            before = candidate
            for j in range(len(start)):
                candidate = _best_along(objective, candidate, j, step)
            if candidate is before:
                break
        else:
            has_converged = False
    return replace(candidate, has_converged=has_converged)


def _best_along(objective: Objective, candidate: Candidate, j: int, step: float) -> Candidate:
    """The best of a grid of bandwidths of one feature, around a candidate's."""
    log = candidate.point[j]
    for move in (*(log + step * k for k in (-4, -3, -2, -1, 1, 2, 3, 4)), np.inf):
        moved = candidate.point.copy()
        moved[j] = move
        other = Candidate.at(objective, moved)
        least_gain = _ROUNDING * objective.criterion.unit(candidate.value)
        if other.value < candidate.value - least_gain:
            candidate = other
    return candidate
