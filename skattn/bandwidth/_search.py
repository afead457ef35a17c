"""Search for the bandwidths that minimise a criterion, everywhere.

A ladder of bandwidths common to all features, from the gaps between neighbours to everything as
one neighbourhood, is evaluated in one pass over the distances. Its minima are refined for a common
bandwidth; for one of each feature, the best of them is one of the starts of descents.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import os
import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize, minimize_scalar
from scipy.spatial.distance import cdist

from skattn.attention import bandwidth_ladder, grid_means
from skattn.bandwidth._bend import WIDEST, bend, free, newton_steps, stretch, unbend
from skattn.bandwidth._objective import Objective
from skattn.bandwidth._scout import fleet_of, is_small_enough_to_scout, scout

__all__ = ["Candidate", "gauss_newton", "search_common", "search_each"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Log-bandwidths, in spreads, from which a feature hardly matters.
_WIDE = np.log(30.0)
# Stands for an infinite criterion in searches that do arithmetic with it.
_INFINITE = 1e100
# Descents of local lines on few rows, and the rows at which their starts are judged.
_MOST_LINES, _JUDGES = int(os.environ.get('ML',12)), 50
# Longest step of a descent in any coordinate.
_LONGEST = 2.0
# With more pairs of rows, first descents are in single precision.
_MANY_PAIRS = 4_000_000


@dataclass(frozen=True)
class Candidate:
    """A value of the criterion, and the log-bandwidths in spreads that reach it."""

    value: float
    log_bandwidth: Array

    @classmethod
    def at(cls, objective: Objective, log_bandwidth: Array) -> Candidate:
        """Evaluate the criterion."""
        return cls(objective.value(log_bandwidth), log_bandwidth)

    def moved(self, shift: float) -> Candidate:
        """The same at log-bandwidths of other rows."""
        return Candidate(self.value, shifted(self.log_bandwidth, shift))

    def distance(self, other: Candidate) -> float:
        """The largest difference of log-bandwidths, wherever features matter."""
        logs = (np.minimum(c.log_bandwidth, np.log(10.0)) for c in (self, other))
        return float(np.abs(np.subtract(*logs)).max())

    def expand(self, n_features: int) -> Candidate:
        """The same for each feature, from one common log-bandwidth."""
        return Candidate(self.value, np.full(n_features, self.log_bandwidth[0]))


def shifted(log_bandwidths: Array, shift: float) -> Array:
    """Log-bandwidths for other rows; what is smoothed out stays so."""
    return np.where(log_bandwidths < WIDEST, log_bandwidths + shift, WIDEST)


def best(candidates: Sequence[Candidate]) -> Candidate:
    """The candidate of least value, the first of several."""
    return min(candidates, key=lambda candidate: candidate.value)


def ladder(objective: Objective, *, exact: bool) -> tuple[Array, int]:
    """Common bandwidths in spreads, from wide to narrow, and their steps to half the square."""
    sample = objective.coordinates[np.linspace(0, len(objective.coordinates) - 1, 200).astype(int)]
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
    lowest = min(values[minima[0]], _INFINITE)
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
            found = _descend(objective.in_common(), np.array([log]), 1e-6)
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
        return min(objective.value(np.full(d, log_bandwidth)), _INFINITE)

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
    candidates.append(Candidate(_restored(found.fun), np.full(d, found.x)))
    return best(candidates)


def _restored(value: float) -> float:
    return float(value) if value < _INFINITE else np.inf


def curve(objective: Objective, bandwidths: Array, steps_per_octave: int) -> Array:
    """The criterion at each of a ladder of common bandwidths, in spreads."""
    d = objective.coordinates.shape[1]
    if objective.degree > 0 and objective.kernel.has_slope and is_small_enough_to_scout(objective):
        return fleet_of(objective).judge(np.log(bandwidths)[:, None] + np.zeros(d))
    if not objective.kernel.peaks_at_one or objective.degree > 0:
        return np.array([objective.value(np.full(d, np.log(c))) for c in bandwidths])
    means, own_weights = grid_means(
        objective.request(), bandwidths, steps_per_octave, objective.resources
    )
    return objective.judge(means, own_weights)


def search_each(
    objective: Objective, scouts: Objective, pilots: Sequence[Objective], common: Candidate
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
    common : Candidate
        A good common bandwidth, to start from.
    """
    mean = Candidate.at(objective, np.full_like(common.log_bandwidth, np.inf))
    if not objective.kernel.has_slope:
        return best([mean, _coordinate_search(objective, common.log_bandwidth)])
    base = np.minimum(common.log_bandwidth, np.log(4.0))
    # where rows are few or features many, minima are many
    n, d = objective.coordinates.shape
    n_random, n_promising, n_steps = (48, 5, 14) if n <= 250 or d > 3 else (16, 4, 8)
    if objective.degree > 0:  # minima depend more on single rows: choose late
        n_promising = 8
    tolerance = 1e-3 if pilots else 1e-4
    found = _scouted(scouts, objective, _starts(objective, base, n_random), n_steps, tolerance)
    points = [base, *_promising(found, n_promising)]
    for pilot in pilots:
        if is_small_enough_to_scout(pilot):
            found = _scouted(pilot, objective, np.array(points), 20, 1e-3)
        else:
            shift = pilot.shrinkage(objective)
            starts = [shifted(point, -shift) for point in points]
            found = [_descend(pilot.single(), start, 1e-3).moved(shift) for start in starts]
        points = _promising(found, 3)
    return best([mean, _smooth_out(objective, _lowest(objective, points))])


def _scouted(
    few: Objective, objective: Objective, starts: Array, n_steps: int, tolerance: float
) -> list[Candidate]:
    """Where descents on few rows arrive, as log-bandwidths of the objective."""
    shift = few.shrinkage(objective)
    starts = shifted(starts, -shift)
    if is_small_enough_to_scout(few):
        fleet = fleet_of(few)
        if few.degree > 0:
            starts = starts[np.argsort(fleet.judge(starts), kind="stable")[:_MOST_LINES]]
        values, log_bandwidths = scout(fleet, starts, n_steps, tolerance)
        return [
            Candidate(float(value), shifted(log_bandwidth, shift))
            for value, log_bandwidth in zip(values, log_bandwidths, strict=True)
        ]
    else:  # one by one, which takes longer: from the best only
        judge = few.at_most(_JUDGES)
        judged = [judge.value(start) for start in starts]
        starts = starts[np.argsort(judged, kind="stable")[:_MOST_LINES]]
        arrived = [gauss_newton(few.linearize, start, tolerance, n_steps) for start in starts]
        return [candidate.moved(shift) for candidate in arrived]


def _lowest(objective: Objective, points: Sequence[Array]) -> Candidate:
    """The lowest of the minima near some points, most promising first."""
    n_pairs = len(objective.rows) * len(objective.coordinates)
    if n_pairs > _MANY_PAIRS or objective.criterion != "loo":
        points = [best([_descend(objective.single(), p, 1e-4) for p in points]).log_bandwidth]
    found = _descend(objective, points[0], 1e-8)
    for point in points[1:]:
        found = best([found, _descend(objective, point, 1e-8, known=found)])
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
    elsewhere = base + np.random.default_rng(0).uniform(-2.0, 2.0, (n_random, d))
    if objective.degree > 0 and 'LO' in os.environ:
        n_random = int(os.environ.get('NR', n_random))
        elsewhere = np.random.default_rng(0).uniform(float(os.environ['LO']), float(os.environ['HI']), (n_random, d))
        if 'REL' in os.environ: elsewhere += base
    return np.vstack([base, rule, out, alone, elsewhere])


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


def _descend(
    objective: Objective, start: Array, tolerance: float, known: Candidate | None = None
) -> Candidate:
    """A local minimum of the criterion near a start, up to a relative tolerance."""
    start = np.clip(start, -WIDEST, WIDEST)
    if objective.criterion == "loo":
        return gauss_newton(objective.linearize, start, tolerance, known=known)

    def function(theta: Array) -> tuple[float, Array]:
        value, gradient, _ = objective.linearize(theta)
        return min(value, _INFINITE), gradient

    found = minimize(
        function,
        start,
        jac=True,
        method="L-BFGS-B",
        bounds=[(-WIDEST, WIDEST)] * len(start),
        options={"maxiter": 60, "ftol": tolerance},
    )
    return Candidate(_restored(found.fun), found.x)


def gauss_newton(
    linearize: Callable[[Array], tuple[float, Array, Array]],
    start: Array,
    tolerance: float,
    max_iter: int = 60,
    known: Candidate | None = None,
) -> Candidate:
    """Minimise squared errors by damped Gauss-Newton steps (Levenberg and Marquardt).

    What the Gauss-Newton matrix leaves out of the Hessian, which slows the last steps where errors
    stay large, is learned from the gradients by symmetric rank-one updates (in the spirit of
    Dennis, Gay and Welsch, 1981).

    Parameters
    ----------
    linearize : callable
        Returns the value, its gradient and half its Hessian without second derivatives.
    start : ndarray of shape (n_features,)
        Steps stay within plus or minus `WIDEST`.
    tolerance : float
        Stop when a step lowers the value by less than this fraction of it.
    max_iter : int, default=60
    known : Candidate, default=None
        A minimum found already: give up where it is near, or likely to stay the lower one.

    Returns
    -------
    Candidate
        The best point seen.
    """
    bent, damping, longest = bend(start), 1e-2, _LONGEST
    value, gradient, matrix = _bent(linearize, bent)
    rest, is_near = np.zeros_like(matrix), False
    for _ in range(max_iter):
        is_free = free(bent, gradient)
        hessian = matrix + rest if is_near else matrix
        if is_near and not _is_positive(hessian[np.ix_(is_free, is_free)]):
            hessian = matrix
        scale = np.maximum(np.diag(matrix), max(1e-3 * np.diag(matrix).max(), 1e-12))
        step = newton_steps(bent, gradient, hessian + damping * np.diag(scale))
        step = np.clip(step, -longest, longest)
        predicted = -float(gradient @ step + step @ hessian @ step)
        if predicted < 0.0 and damping < 1e8:  # what is left of the step leads up
            damping *= 6.0
            continue
        if predicted <= 0.01 * tolerance * value:
            break
        if known is not None and (
            value - 3.0 * predicted > known.value
            or np.abs(bent - bend(known.log_bandwidth)).max() < 0.1
        ):
            break
        trial = _bent(linearize, bent + step)
        decrease = value - trial[0]
        missed = 0.5 * (trial[1] - gradient) - (trial[2] + rest) @ step
        if abs(missed @ step) > 1e-3 * np.linalg.norm(missed) * np.linalg.norm(step):
            rest = rest + np.outer(missed, missed) / (missed @ step)
        is_near = abs(decrease) < 1e-2 * value
        if decrease > 0.0:
            bent, (value, gradient, matrix) = bent + step, trial
            gain = decrease / max(predicted, 1e-300)
            damping *= 0.2 if gain > 0.75 else 1.0 if gain > 0.25 else 3.0
            damping = max(damping, 1e-10)  # features may be copies of each other
            longest = min(3.0 * longest, _LONGEST)
        else:
            damping *= 6.0
            longest = 0.3 * float(np.abs(step).max())
        if predicted <= tolerance * value or 0.0 < decrease <= tolerance * value or damping > 1e8:
            break
    return Candidate(value, unbend(bent))


def _is_positive(matrix: Array) -> bool:
    return bool((np.linalg.eigvalsh(matrix) > 0.0).all())


def _bent(
    linearize: Callable[[Array], tuple[float, Array, Array]], bent: Array
) -> tuple[float, Array, Array]:
    """A value, its gradient and matrix in the bent variable."""
    log_bandwidth = unbend(bent)
    value, gradient, matrix = linearize(log_bandwidth)
    factor = stretch(log_bandwidth)
    return value, factor * gradient, factor[:, None] * matrix * factor


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
