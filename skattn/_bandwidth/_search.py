"""Search for the bandwidths that minimise a criterion, everywhere.

A ladder of bandwidths common to all features, from the gaps between neighbours to everything as
one neighbourhood, is evaluated in one pass over the distances. Its minima are refined for a common
bandwidth; for one of each feature, the best of them is one of the starts of descents.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.spatial.distance import cdist

from skattn._bandwidth._bend import WIDEST, bend
from skattn._bandwidth._descent import (
    INFINITE,
    Candidate,
    best,
    descend,
    gauss_newton,
    restored,
    shifted,
)
from skattn._bandwidth._line_fleet import LineFleet
from skattn._bandwidth._objective import Objective
from skattn._bandwidth._scout import Fleet, can_scout, distinct, fleet_of, scout
from skattn._geometry.training_set import evenly_spaced

__all__ = ["search_common", "search_each"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Log-bandwidths, in spreads, from which a feature hardly matters.
_WIDE = np.log(30.0)
# Rows at which starts are judged, where not all of them descend.
_JUDGES = 50
_ALL = 1_000_000
# Starts this close to a better one in every coordinate come after all others.
_CROWDED = 0.3
# Descents without a fleet, at most.
_MOST_EXACT = 12
# Up to which a fleet descends for the criterion itself, relative to its value.
_FLEET_TOLERANCE = 1e-7
# Range of log-bandwidths of starts, where these do not depend on the ladder.
_NARROW_START, _WIDE_START = -2.5, 1.2
# With more pairs of rows, first descents are in single precision.
_MANY_PAIRS = 4_000_000


def ladder(objective: Objective, *, exact: bool) -> tuple[Array, int]:
    """Common bandwidths in spreads, from wide to narrow, and their steps to half the square."""
    sample = objective.coordinates[evenly_spaced(len(objective.coordinates), 200)]
    distances = cdist(sample, objective.coordinates)
    gaps = np.where(distances > 0.0, distances, np.inf).min(axis=1)
    density = (len(sample) / len(objective.coordinates)) ** (1.0 / objective.coordinates.shape[1])
    narrowest = np.quantile(gaps, 0.05, method="lower") * min(1.0, density) / 8.0
    n_pairs = len(objective.rows) * len(objective.coordinates)
    steps = 1 if not exact else 4 if n_pairs < 2e5 else 2
    if exact and objective.degree > 0:  # lines jump where a key enters the support
        steps = 8 if n_pairs < 2e5 and np.isfinite(objective.kernel.support) else 2
    if not objective.kernel.has_slope and n_pairs < 2e4:
        steps = 48  # steps and kinks everywhere: look closely
    widest = min(4.0 * distances.max(), np.exp(WIDEST))
    return bandwidth_ladder(widest, min(narrowest, widest), steps), steps


def search_common(objective: Objective, pilot: Objective, *, exact: bool = True) -> Candidate:
    """One multiple of the spreads for all features: the global minimum of the criterion.

    Parameters
    ----------
    objective : Objective
        What is minimised.
    pilot : Objective
        The same, on fewer rows where there are many, to find where its minima are.
    exact : bool, default=True
        Whether minima are refined, or the best of the ladder will do, as a start.
    """
    bandwidths, steps = ladder(pilot, exact=exact)
    values = curve(pilot, bandwidths, steps)
    minima = _minima(values)[: 6 if exact else 1]
    lowest = min(values[minima[0]], INFINITE)
    tolerated = 0.2 if pilot.is_like(objective) else 0.02
    minima = minima[values[minima] <= lowest + tolerated * abs(lowest)]
    logs = np.log(bandwidths) + pilot.shrinkage(objective)
    d = objective.coordinates.shape[1]
    candidates = [Candidate.at(objective, np.full(d, np.inf))]
    for log in logs[minima]:
        candidates.append(Candidate.at(objective, np.full(d, log)))
        if not exact:
            continue
        if pilot.is_like(objective) or not objective.kernel.has_slope:
            reach = logs[0] - logs[1] if pilot.is_like(objective) else np.log(2.0)
            candidates.append(_bracket(objective, log - reach, log + reach))
        else:
            found = descend(objective.in_common(), np.array([log]), 1e-6)
            candidates.append(found.expand(d))
    return best(candidates)


def _minima(values: Array) -> Indices:
    """Positions of the local minima, lowest first; the first position of each plateau."""
    fresh = np.flatnonzero(np.append(True, values[1:] != values[:-1]))
    padded = np.concatenate([[np.inf], values[fresh], [np.inf]])
    minima = fresh[(padded[1:-1] <= padded[:-2]) & (padded[1:-1] <= padded[2:])]
    return minima[np.argsort(values[minima], kind="stable")]


def _bracket(objective: Objective, low: float, high: float) -> Candidate:
    """The best common bandwidth between two."""
    d = objective.coordinates.shape[1]

    def function(log_bandwidth: float) -> float:
        return min(objective.value(np.full(d, log_bandwidth)), INFINITE)

    candidates = []
    has_kinks = np.isfinite(objective.kernel.support)
    if has_kinks:  # look where between
        logs = np.linspace(low, high, 17)
        values = [function(log) for log in logs]
        i = int(np.argmin(values))
        candidates.append(Candidate(values[i], np.full(d, logs[i])))
        low, high = logs[max(i - 1, 0)], logs[min(i + 1, 16)]
    options = {"xatol": 1e-9 if has_kinks else 1e-5}
    found = minimize_scalar(function, bounds=(low, high), method="bounded", options=options)
    candidates.append(Candidate(restored(found.fun), np.full(d, found.x)))
    return best(candidates)


def curve(objective: Objective, bandwidths: Array, steps_per_octave: int) -> Array:
    """The criterion at each of a ladder of common bandwidths, in spreads."""
    logs = np.log(bandwidths)[:, None] + np.zeros(objective.coordinates.shape[1])
    if objective.degree > 0:
        return _values(objective, logs)
    return np.array([objective.value(log_bandwidth) for log_bandwidth in logs])


def bandwidth_ladder(widest: float, narrowest: float, steps_per_octave: int) -> Array:
    n_steps = int(np.ceil(2 * steps_per_octave * np.log2(widest / narrowest)))
    return widest * 2.0 ** (-np.arange(n_steps + 1) / (2 * steps_per_octave))


def search_each(
    objective: Objective,
    scouts: Objective,
    pilots: Sequence[Objective],
    common: Candidate | None,
) -> Candidate:
    """A bandwidth for each feature.

    Parameters
    ----------
    objective : Objective
        What is minimised.
    scouts : Objective
        Leave-one-out on few rows, to descend from many starts at once.
    pilots : sequence of Objective
        The criterion on fewer rows, from few to many, to choose among the best.
    common : Candidate or None
        A good common bandwidth, to start from; None to seek it on scouts of lines.
    """
    mean = Candidate.at(objective, np.full(objective.coordinates.shape[1], np.inf))
    if not objective.kernel.has_slope:
        assert common is not None
        return best([mean, _coordinate_search(objective, common.log_bandwidth)])
    fleet, shift = fleet_of(scouts) if can_scout(scouts) else None, scouts.shrinkage(objective)
    if common is None:
        common = _common(scouts, fleet).moved(shift)
    base = np.minimum(common.log_bandwidth, np.log(4.0))
    effort = _Effort.on(objective)
    starts = _starts(objective, base, effort.n_random)
    found = _scouted(scouts, fleet, starts, effort, 1e-3 if pilots else 1e-4, shift)
    points = _promising(found, effort.n_promising)
    if objective.degree == 0 or fleet is None or objective.criterion != "loo":
        points = [base, *points]
    for pilot in pilots:
        shift = pilot.shrinkage(objective)
        if can_scout(pilot):
            again = replace(effort, n_descents=len(points), n_steps=20)
            found = _scouted(pilot, fleet_of(pilot), np.array(points), again, 1e-3, shift)
        else:
            moved = [shifted(point, -shift) for point in points]
            found = [descend(pilot.single(), start, 1e-3).moved(shift) for start in moved]
        points = _promising(found, 3)
    has_same = scouts.is_like(objective) and objective.criterion == "loo"
    lowest = _lowest(objective, points, fleet if has_same else None)
    return best([mean, _smooth_out(objective, lowest)])


@dataclass(frozen=True)
class _Effort:
    """How much is tried on few rows.

    Attributes
    ----------
    n_random : int
        Starts that have no structure.
    n_descents : int
        Starts, the best of all, from which to descend.
    n_steps : int
        Of each descent.
    n_promising : int
        Results, the best of all, that are followed on more rows.
    """

    n_random: int
    n_descents: int
    n_steps: int
    n_promising: int

    @classmethod
    def on(cls, objective: Objective) -> _Effort:
        """What an objective needs: where rows are few or features many, minima are many."""
        n, d = objective.coordinates.shape
        if objective.degree == 0:
            many, few = cls(48, _ALL, 14, 5), cls(16, _ALL, 8, 4)
            return many if n <= 250 or d > 3 else few
        # minima of lines depend more on single rows: choose late
        if d == 2:
            return cls(48, int(np.clip(1.2e5 / n**2, 12, 48)), 8, 8)
        return cls(128, int(np.clip(4e5 / n**2, 24, 64)), 20, 8)


def _common(scouts: Objective, fleet: Fleet | None) -> Candidate:
    """The best common bandwidth of a ladder for local lines, at some of the rows."""
    assert isinstance(fleet, LineFleet)
    bandwidths, _ = ladder(scouts, exact=False)
    logs = np.log(bandwidths)[:, None] + np.zeros(scouts.coordinates.shape[1])
    values = fleet.at_most(_JUDGES).judge(logs)
    best_one = int(np.argmin(values))
    return Candidate(float(values[best_one]), logs[best_one])


def _scouted(
    few: Objective,
    fleet: Fleet | None,
    starts: Array,
    effort: _Effort,
    tolerance: float,
    shift: float,
) -> list[Candidate]:
    """Where descents on few rows arrive, as log-bandwidths shifted to those of all."""
    starts = shifted(starts, -shift)
    if len(starts) > effort.n_descents:
        if isinstance(fleet, LineFleet):
            judged = fleet.at_most(_JUDGES).judge(starts)
        else:
            judged = _values(few.at_most(_JUDGES), starts)
        crowded = np.logical_not(distinct(bend(starts), judged, _CROWDED))
        starts = starts[np.lexsort((judged, crowded))[: effort.n_descents]]
    if fleet is None:  # one by one, which takes longer
        n_steps, starts = effort.n_steps, starts[:_MOST_EXACT]
        arrived = [gauss_newton(few.linearize, start, tolerance, n_steps) for start in starts]
    else:
        races = isinstance(fleet, LineFleet)
        values, logs = scout(fleet, starts, effort.n_steps, tolerance, races=races)
        arrived = [Candidate(float(value), log) for value, log in zip(values, logs, strict=True)]
    return [candidate.moved(shift) for candidate in arrived]


def _values(objective: Objective, log_bandwidths: Array) -> Array:
    """The criterion of lines at log-bandwidths, one a row."""
    if can_scout(objective):
        return LineFleet(objective).judge(log_bandwidths)
    return np.array([objective.value(log_bandwidth) for log_bandwidth in log_bandwidths])


def _lowest(objective: Objective, points: Sequence[Array], fleet: Fleet | None) -> Candidate:
    """The lowest of the minima near some points, most promising first.

    A fleet of the same rows is faster; of lines, it has the same values.
    """
    n_pairs = len(objective.rows) * len(objective.coordinates)
    if n_pairs > _MANY_PAIRS or objective.criterion != "loo":
        points = [best([descend(objective.single(), p, 1e-4) for p in points]).log_bandwidth]
    if isinstance(fleet, LineFleet):
        points = [_descended(fleet, points).log_bandwidth]
    found = descend(objective, points[0], 1e-8)
    for point in points[1:]:
        found = best([found, descend(objective, point, 1e-8, known=found)])
    return found


def _descended(fleet: LineFleet, points: Sequence[Array]) -> Candidate:
    """The lowest of the minima near some points, as a fleet of the same rows sees them."""
    found = gauss_newton(fleet.linearize_at, points[0], _FLEET_TOLERANCE)
    for point in points[1:]:
        other = gauss_newton(fleet.linearize_at, point, _FLEET_TOLERANCE, known=found)
        found = best([found, other])
    return found


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
    n_near = n_random if objective.degree == 0 else n_random // 2
    near = base + rng.uniform(-2.0, 2.0, (n_near, d))
    elsewhere = rng.uniform(_NARROW_START, _WIDE_START, (n_random - n_near, d))
    return np.vstack([base, rule, out, alone, near, elsewhere])


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
    return [candidate.log_bandwidth for candidate in kept[:most]]


def _smooth_out(objective: Objective, candidate: Candidate) -> Candidate:
    """Give up features whose bandwidth the criterion does not need to be finite."""
    for j in np.argsort(-candidate.log_bandwidth, kind="stable"):
        if candidate.log_bandwidth[j] < 0.0:  # narrower than its spread: it matters
            break
        wider = candidate.log_bandwidth.copy()
        wider[j] = np.inf
        without = Candidate.at(objective, wider)
        negligible = 1e-6 if candidate.log_bandwidth[j] > _WIDE else 1e-9
        if without.value <= candidate.value + negligible * abs(candidate.value):
            candidate = without
    return candidate


def _coordinate_search(objective: Objective, start: Array) -> Candidate:
    """For kernels without slopes: each feature in turn along a ladder, as long as it helps."""
    candidate = Candidate.at(objective, start)
    for step in (np.log(2.0), np.log(2.0) / 4.0):
        improved = True
        while improved:
            improved = False
            for j in range(len(start)):
                moves = [
                    candidate.log_bandwidth[j] + step * k for k in (-4, -3, -2, -1, 1, 2, 3, 4)
                ]
                for move in (*moves, np.inf):
                    moved = candidate.log_bandwidth.copy()
                    moved[j] = move
                    other = Candidate.at(objective, moved)
                    if other.value < candidate.value * (1.0 - 1e-9):
                        candidate, improved = other, True
    return candidate
