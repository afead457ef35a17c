"""Damped Gauss-Newton steps (Levenberg and Marquardt) from one start or many, within bounds.

What the Gauss-Newton matrix leaves out of the Hessian, which slows the last steps where residuals
stay large, is learned from the gradients (Dennis, Gay and Welsch, 1981): a secant correction.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from skattn._optimize.monitor import Monitor
from skattn._optimize.newton_steps import (
    bounded_steps,
    corrected,
    free_variables,
    secant_update,
)

__all__ = ["EarlyAbandonment", "LevenbergMarquardt", "Minima"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Mask = NDArray[np.bool_]
# From points (n_points, d) to values (n_points,), gradients (n_points, d) and approximate Hessians
# (n_points, d, d), positive semidefinite.
Linearize = Callable[[Array], tuple[Array, Array, Array]]

# Damping of the first step, and its range.
_FIRST_DAMPING, _LEAST_DAMPING, _MOST_DAMPING = 1e-2, 1e-10, 1e8
# Parameters that hardly matter are damped as if they mattered this share of the others, or this.
_LEAST_SHARE, _LEAST_SCALE = 1e-3, 1e-12
# Shortest limit on the length of a step.
_SHORTEST = 1e-3


@dataclass(frozen=True)
class EarlyAbandonment:
    """When starts are given up.

    Attributes
    ----------
    distance : float
        Starts closer than this, in every parameter, to a better one.
    hope : float, default=1e100
        Starts that would not reach the lowest value by so many times the gain predicted.
    n_free_steps : int, default=0
        Steps before hope counts.
    """

    distance: float
    hope: float = 1e100
    n_free_steps: int = 0

    def meets_better(self, points: Array, values: Array) -> Mask:
        """Starts (n_starts, d) that are close to a better one, of lower value or rank."""
        is_close = np.asarray((np.abs(points[:, None] - points) < self.distance).all(axis=2))
        rank = np.argsort(np.argsort(values, kind="stable"))
        return np.asarray((is_close & (rank < rank[:, None])).any(axis=1))

    def is_hopeless(self, values: Array, predicted: Array, lowest: float) -> Mask:
        """Starts whose values are too far above the lowest, given the gains predicted."""
        return np.asarray(values - lowest > self.hope * np.maximum(predicted, 0.0))


@dataclass(frozen=True)
class Minima:
    """Points that the starts reached, abandoned ones included.

    Attributes
    ----------
    points : ndarray of shape (n_starts, d)
        Points of lowest value seen.
    values : ndarray of shape (n_starts,)
        Values there; inf where the start itself could not be evaluated.
    is_merged : ndarray of shape (n_starts,) of bool
        Starts that met a better one, and would have arrived where that did.
    has_converged : bool
        Whether all others met the tolerance, or the monitor stopped them.
    history : list of float
        Lowest value of all starts, before the first step and after each that lowered it.
    """

    points: Array
    values: Array
    is_merged: Mask
    has_converged: bool
    history: list[float]

    @property
    def best(self) -> Array:
        """Point of lowest value, (d,)."""
        return self.points[np.argmin(self.values)]


@dataclass(frozen=True)
class LevenbergMarquardt:
    """Settings of a minimisation.

    Attributes
    ----------
    tolerance : float
        A start has converged when a step gains, or is predicted to gain, no more than this.
    max_iter : int
        Largest number of steps, bad ones included.
    is_relative : bool, default=False
        Whether gains are in units of the absolute value, instead of units of their own.
    longest : float, default=1.0
        Longest step in any parameter.
    near : float, default=0.05
        Gain, in the units of the tolerance, below which the secant correction is used; 0 for never.
    """

    tolerance: float
    max_iter: int
    is_relative: bool = False
    longest: float = 1.0
    near: float = 0.05

    def minimize(
        self,
        linearize: Linearize,
        starts: Array,
        bounds: tuple[Array, Array],
        abandonment: EarlyAbandonment | None = None,
        monitor: Monitor | None = None,
    ) -> Minima:
        """Follow all starts downhill.

        Parameters
        ----------
        linearize : callable
            Values, gradients and approximate Hessians at points (n_points, d). Numbers that are not
            finite and ``LinAlgError`` make a bad step.
        starts : ndarray of shape (n_starts, d)
            Clipped at the bounds.
        bounds : tuple of two ndarray of shape (d,)
            Lower and upper bounds of the parameters.
        abandonment : EarlyAbandonment or None
            When starts are given up; None for never.
        monitor : Monitor or None
            Called with the lowest point before the first step, and after each that lowered it.

        Returns
        -------
        Minima
        """
        descents = _Descents(self, linearize, starts, bounds)
        is_stopped = monitor is not None and monitor.stops(descents.best)
        for n_done in range(self.max_iter):
            if is_stopped or not descents.active.size:
                break
            is_better = descents.step(abandonment, n_done)
            is_stopped = is_better and monitor is not None and monitor.stops(descents.best)
        is_over = is_stopped or not descents.active.size
        has_converged = is_over and bool(np.isfinite(descents.history[0]))
        return Minima(
            descents.points,
            descents.values,
            descents.is_merged,
            has_converged,
            descents.history,
        )


class _Descents:
    """Descents from all starts, in progress."""

    def __init__(
        self,
        settings: LevenbergMarquardt,
        linearize: Linearize,
        starts: Array,
        bounds: tuple[Array, Array],
    ) -> None:
        self.settings, self.linearize, self.bounds = settings, linearize, bounds
        n_starts, d = starts.shape
        self.points = np.clip(starts, *bounds)
        self.values, self.gradients, self.matrices = evaluate(linearize, self.points)
        self.rests = np.zeros((n_starts, d, d))
        self.damping = np.full(n_starts, _FIRST_DAMPING)
        self.longest = np.full(n_starts, settings.longest)
        self.is_near = np.zeros(n_starts, dtype=bool)
        self.is_merged = np.zeros(n_starts, dtype=bool)
        self.active = np.flatnonzero(np.isfinite(self.values))
        self.history = [float(self.values.min())]

    @property
    def best(self) -> Array:
        """Point of lowest value."""
        return self.points[np.argmin(self.values)]

    def step(self, abandonment: EarlyAbandonment | None, n_done: int) -> bool:
        """Try a step of each active start; whether the lowest value of all is lower than before."""
        if abandonment is not None:
            met = abandonment.meets_better(self.points, self.values)
            self.is_merged[self.active] = met[self.active]
            self.active = self.active[~met[self.active]]
        steps, predicted = self._steps()
        goes_on = np.logical_not(self._is_small(predicted)) | (predicted < 0.0)
        if abandonment is not None and n_done >= abandonment.n_free_steps:
            lowest = float(self.values.min())
            goes_on &= ~abandonment.is_hopeless(self.values[self.active], predicted, lowest)
        self.active = self.active[goes_on]
        gained = self._move(steps[goes_on], predicted[goes_on])
        settled = (gained > 0.0) & self._is_small(gained)
        self.active = self.active[~settled & (self.damping[self.active] <= _MOST_DAMPING)]
        lowest = float(self.values.min())
        if lowest >= self.history[-1]:
            return False
        self.history.append(lowest)
        return True

    def _is_small(self, gains: Array, limit: float | None = None) -> Mask:
        """Whether gains of the active starts are within the tolerance, or another limit."""
        limit = self.settings.tolerance if limit is None else limit
        size = np.abs(self.values[self.active]) if self.settings.is_relative else 1.0
        return np.asarray(gains <= limit * size)

    def _steps(self) -> tuple[Array, Array]:
        """Steps of the active starts, and the gains predicted."""
        active = self.active
        points, gradients, matrices = (
            each[active] for each in (self.points, self.gradients, self.matrices)
        )
        is_free = free_variables(points, gradients, self.bounds)
        hessians, near = matrices, np.flatnonzero(self.is_near[active])
        if near.size:
            hessians = matrices.copy()
            hessians[near] = corrected(matrices[near], self.rests[active[near]], is_free[near])
        sizes = np.einsum("sjj->sj", matrices)
        largest = sizes.max(axis=1, keepdims=True)
        scales = np.maximum(sizes, np.maximum(_LEAST_SHARE * largest, _LEAST_SCALE))
        damped = hessians + np.eye(sizes.shape[1]) * (self.damping[active, None] * scales)[:, None]
        try:
            steps = bounded_steps(points, gradients, damped, self.bounds)
        except np.linalg.LinAlgError:  # bad steps: more damping helps
            return np.zeros_like(points), np.full(len(points), -np.inf)
        longest = self.longest[active, None]
        steps = np.minimum(np.maximum(steps, -longest), longest)
        curvature = (hessians @ steps[:, :, None])[:, :, 0]
        return steps, -((gradients + 0.5 * curvature) * steps).sum(axis=1)

    def _move(self, steps: Array, predicted: Array) -> Array:
        """Evaluate steps of the active starts, take those that gain, and return the gains."""
        active, gained = self.active, np.full(len(steps), -np.inf)
        tried = np.flatnonzero(predicted >= 0.0)  # what bounds leave of others leads up
        if tried.size:
            some = active[tried]
            trial = evaluate(self.linearize, self.points[some] + steps[tried])
            gained[tried] = self.values[some] - trial[0]
            if self.settings.near > 0.0:
                self._learn(some, steps[tried], trial)
            better = gained[tried] > 0.0
            moved = some[better]
            self.points[moved] += steps[tried][better]
            for mine, new in zip((self.values, self.gradients, self.matrices), trial, strict=True):
                mine[moved] = new[better]
        self._adapt(steps, gained, gained / np.maximum(predicted, 1e-300))
        return gained

    def _adapt(self, steps: Array, gained: Array, ratio: Array) -> None:
        """Choose damping and longest step by what steps gained of what was predicted."""
        active, lengths = self.active, np.abs(steps).max(axis=1)
        better = gained > 0.0
        factor = np.where(ratio > 0.75, 0.2, np.where(ratio > 0.25, 1.0, 3.0))
        damping = self.damping[active] * np.where(better, factor, 6.0)
        self.damping[active] = np.maximum(damping, _LEAST_DAMPING)
        shorter = np.where(better, np.maximum(0.5 * lengths, _SHORTEST), 0.3 * lengths)
        self.longest[active] = np.where(ratio > 0.25, self.settings.longest, shorter)

    def _learn(self, some: Indices, steps: Array, trial: tuple[Array, Array, Array]) -> None:
        """Update what the matrices leave out of the Hessians by the change of the gradients."""
        gained = self.values[some] - trial[0]
        size = np.abs(self.values[some]) if self.settings.is_relative else 1.0
        self.is_near[some] = np.abs(gained) < self.settings.near * size
        told = np.flatnonzero(gained > 0.0)
        if told.size:
            change = trial[1][told] - self.gradients[some[told]]
            steps = steps[told]
            explained = (trial[2][told] @ steps[:, :, None])[:, :, 0]
            self.rests[some[told]] = secant_update(self.rests[some[told]], change, explained, steps)


def evaluate(linearize: Linearize, points: Array) -> tuple[Array, Array, Array]:
    """Values, gradients and matrices; infinite values and zeros where they are no numbers."""
    try:
        values, gradients, matrices = linearize(points)
    except np.linalg.LinAlgError:
        if len(points) > 1:
            parts = [evaluate(linearize, point[None]) for point in points]
            return tuple(np.concatenate(part) for part in zip(*parts, strict=True))  # type: ignore
        d = points.shape[1]
        return np.full(1, np.inf), np.zeros((1, d)), np.zeros((1, d, d))
    numbers = np.isfinite(values)
    numbers &= np.isfinite(gradients).all(axis=1) & np.isfinite(matrices).all(axis=(1, 2))
    if numbers.all():
        return values, gradients, matrices
    some = np.where(numbers[:, None], gradients, 0.0)
    return np.where(numbers, values, np.inf), some, np.where(numbers[:, None, None], matrices, 0.0)
