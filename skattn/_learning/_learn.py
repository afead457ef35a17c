"""Learning a metric: the prior, the stages, and the textbook's descent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from skattn._geometry import evenly_spaced
from skattn._learning._metric import FeatureMetric, Metric, ProjectionMetric, RawMetric, ScalarMetric
from skattn._learning._objective import LeaveOneOut, Problem
from skattn._learning._start import common_start
from skattn._learning._trainer import (
    Batches,
    Monitor,
    PenalizedLoss,
    Prior,
    adam,
    gauss_newton,
    lbfgs,
)

__all__ = ["Learned", "Settings", "descend", "leading_axis", "learn", "rough", "score"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Notify = Callable[[Array, float], bool]

# Standard deviations the prior gives log-scales around the common one, at degree 0 and 1 (and the
# logarithm of the ridge around its start), and entries of a full metric around the diagonal one.
# The penalty counts as one query of training does.
_SCALES, _ENTRIES = (1.4, 1.0), 0.1
# The same for metrics of fewer coordinates than features, which have to turn.
_FREE_ENTRIES = 1.0
# Training starts with kernels so much wider than the best common one, as a logarithm: from there,
# it finds better optima.
_WIDER = np.log(2.0)
# How far log-scales may go from the common one, and entries of a full metric from the diagonal.
_LOWER, _UPPER, _FARTHEST = -6.0, 4.0, 3.0
_RIDGES = np.log([1e-6, 1e3])
# Queries on which the start is sought, and rough metrics are learned; in how many steps.
_START_QUERIES, _ROUGH_STEPS = 300, 30


@dataclass(frozen=True)
class Settings:
    """How to learn; see `ParametricAttentionRegressor`.

    Attributes
    ----------
    parametrization : {"scalar", "feature", "projection"}
    n_components : int or None
    alpha : float
        Multiplies the penalty.
    solver : {"gauss-newton", "lbfgs", "adam", "sgd"}
    tolerance : float
    max_iter : int
    learning_rate : float or None
    batch_size : int
    patience : int
        Steps without a better validation score.
    start : float or None
        The first scale of all features; None seeks it.
    is_single : bool
        Whether tensors are in single precision.
    seed : int
        Of batches.
    """

    parametrization: str
    n_components: int | None
    alpha: float
    solver: str
    tolerance: float
    max_iter: int
    learning_rate: float | None
    batch_size: int
    patience: int
    start: float | None
    is_single: bool
    seed: int

    @property
    def dtype(self) -> torch.dtype:
        """Of tensors."""
        return torch.float32 if self.is_single else torch.float64


@dataclass(frozen=True)
class Learned:
    """A learned metric.

    Attributes
    ----------
    matrix : ndarray of shape (n_features, n_coordinates)
    ridge : float
        Of local lines; 0 at degree 0.
    parameters : ndarray
        Of the scales: where the next training may start.
    losses : list of float
        Before the first step and after each, of all stages.
    validation_scores : list of float
        Likewise.
    has_converged : bool
    score : float
        R squared of the leave-one-out predictions of the queries.
    """

    matrix: Array
    ridge: float
    parameters: Array
    losses: list[float]
    validation_scores: list[float]
    has_converged: bool
    score: float


def learn(
    problem: Problem,
    queries: Indices,
    validation: Indices,
    settings: Settings,
    device: torch.device,
    before: Array | None,
    notify: Notify,
) -> Learned:
    """Learn a metric from the leave-one-out errors of some keys.

    Parameters
    ----------
    problem : Problem
    queries : ndarray of shape (n_queries,)
        The keys whose errors are minimised.
    validation : ndarray of shape (n_validation,)
        Keys whose errors are watched; may be empty.
    settings : Settings
    device : torch.device
    before : ndarray or None
        Parameters to start at.
    notify : callable
        Is told the matrix and ridge after each step; returns whether to stop.

    Returns
    -------
    Learned
    """

    def errors(rows: Indices) -> LeaveOneOut:
        return LeaveOneOut(problem, rows, device, settings.dtype)

    log_scale, ridge = common_start(errors(few_of(queries)))
    watched = errors(validation) if len(validation) else None
    stage = _Stage(errors(queries), watched, settings, notify, log_scale, ridge)
    n_features = problem.features.shape[1]
    is_scalar = settings.parametrization == "scalar"
    metric: Metric = ScalarMetric(n_features) if is_scalar else FeatureMetric(n_features)
    learned = stage.scales(metric, before)
    return stage.projection(learned) if settings.parametrization == "projection" else learned


def rough(
    problem: Problem, queries: Indices, settings: Settings, device: torch.device
) -> tuple[Learned, Indices]:
    """A metric learned from few of the queries in few steps, and those of the others.

    Parameters
    ----------
    problem, queries, settings, device
        As for `learn`.

    Returns
    -------
    learned : Learned
    others : ndarray of shape (n_others,)
        The queries it was not learned from.
    """
    few = few_of(queries)
    quick = replace(
        settings,
        n_components=None,
        solver="gauss-newton",
        tolerance=1e-3,
        max_iter=_ROUGH_STEPS,
        start=None,
    )
    learned = learn(problem, few, few[:0], quick, device, None, lambda matrix, ridge: False)
    return learned, np.setdiff1d(queries, few)


def leading_axis(learned: Learned, n_plain: int) -> Array:
    """The direction in which a metric tells rows apart best, in the features that are no ranks.

    It is narrowest where lines fit worst, so that this is where they should bend.
    """
    axis = np.linalg.svd(learned.matrix[:n_plain])[0][:, 0]
    return axis * np.sign(axis[np.argmax(np.abs(axis))])


def score(problem: Problem, rows: Indices, learned: Learned, device: torch.device) -> float | None:
    """R squared of leave-one-out predictions of some keys; None if there are none."""
    if len(rows) == 0:
        return None
    errors = LeaveOneOut(problem, rows, device, torch.float64)
    metric = ProjectionMetric(learned.matrix, np.ones(0), 0)
    left = errors.errors(metric, np.zeros(metric.n_parameters), learned.ridge)
    return errors.r_squared(left)


def few_of(queries: Indices) -> Indices:
    """Up to 300 of some queries, evenly spaced."""
    return queries[evenly_spaced(len(queries), _START_QUERIES)]


@dataclass(frozen=True)
class _Stage:
    """What all stages of learning have in common."""

    errors: LeaveOneOut
    watched: LeaveOneOut | None
    settings: Settings
    notify: Notify
    log_scale: float
    ridge: float

    @property
    def has_ridge(self) -> bool:
        """Whether local lines are fitted."""
        return self.errors.problem.line is not None

    def scales(self, metric: Metric, before: Array | None) -> Learned:
        """Learn log-scales, from the common one or from earlier ones."""
        center = np.full(metric.n_parameters, self.log_scale)
        spread = np.full(metric.n_parameters, _SCALES[self.has_ridge])
        prior = self._prior(center, spread, center + _LOWER, center + _UPPER)
        start = prior.center.copy()
        start[: metric.n_parameters] -= _WIDER
        if self.settings.start is not None:
            start[: metric.n_parameters] = np.log(self.settings.start)
        if before is not None and before.shape == start.shape:
            start = before
        return self._train(metric, prior, start, None)

    def projection(self, diagonal: Learned) -> Learned:
        """Learn a full metric, or one of fewer coordinates, from a diagonal one."""
        scales, base = np.diag(diagonal.matrix), diagonal.matrix
        n_components = min(self.settings.n_components or len(scales), len(scales))
        if n_components < len(scales):
            problem = self.errors.problem
            base = base @ _leading(problem.features @ base, problem.weights, n_components)
            metric = ProjectionMetric(base, scales, n_components)
        else:  # ranks keep factors of their own
            n_plain = self.errors.problem.n_plain
            metric = ProjectionMetric(base, scales[:n_plain], n_plain)
        zeros, ones = np.zeros(metric.n_parameters), np.ones(metric.n_parameters)
        spread = _ENTRIES if n_components == len(scales) else _FREE_ENTRIES
        prior = self._prior(zeros, spread * ones, -_FARTHEST * ones, _FARTHEST * ones)
        start = np.append(zeros, np.log(diagonal.ridge)) if self.has_ridge else zeros
        return self._train(metric, prior, start, diagonal)

    def _prior(self, center: Array, spread: Array, lower: Array, upper: Array) -> Prior:
        if self.has_ridge:
            center = np.append(center, np.log(self.ridge))
            spread = np.append(spread, _SCALES[1])
            lower, upper = np.append(lower, _RIDGES[0]), np.append(upper, _RIDGES[1])
        precision = self.settings.alpha / (len(self.errors.queries) * spread**2)
        return Prior(center, precision, lower, upper)

    def _loss(self, errors: LeaveOneOut, metric: Metric, prior: Prior) -> PenalizedLoss:
        return PenalizedLoss(errors, metric, prior, None if self.has_ridge else 1.0)

    def _train(self, metric: Metric, prior: Prior, start: Array, before: Learned | None) -> Learned:
        loss, settings = self._loss(self.errors, metric, prior), self.settings

        def tell(parameters: Array) -> bool:
            scales, ridge = loss.split(parameters)
            return self.notify(metric.matrix(scales), ridge if self.has_ridge else 0.0)

        score = None
        if self.watched is not None:
            score = self._loss(self.watched, metric, prior).r_squared
        monitor = Monitor(score, settings.patience, tell)
        common = start, prior, settings.tolerance, settings.max_iter, monitor
        if settings.solver == "adam":
            n_queries, rate = len(self.errors.queries), settings.learning_rate or 0.05
            size, seed = settings.batch_size, settings.seed
            batches = Batches(n_queries, size, rate, settings.patience, seed)
            trained = adam(
                lambda rows: self._loss(self.errors.at(rows), metric, prior), *common, batches
            )
        else:
            solve = {"gauss-newton": gauss_newton, "lbfgs": lbfgs}[settings.solver]
            trained = solve(loss, *common)
        parameters, ridge = loss.split(trained.parameters)
        scores = trained.validation_scores
        return Learned(
            metric.matrix(parameters),
            ridge if self.has_ridge else 0.0,
            trained.parameters if before is None else before.parameters,
            trained.losses if before is None else before.losses + trained.losses[1:],
            scores if before is None else before.validation_scores + scores[1:],
            trained.has_converged and (before is None or before.has_converged),
            loss.r_squared(trained.parameters),
        )


def _leading(features: Array, weights: Array, n_components: int) -> Array:
    """The leading principal axes of features, (n_features, n_components)."""
    axes = np.linalg.eigh(np.atleast_2d(np.cov(features, rowvar=False, aweights=weights)))[1]
    return axes[:, : -n_components - 1 : -1]


def descend(
    problem: Problem,
    settings: Settings,
    device: torch.device,
    penalty: float,
    notify: Notify,
) -> Learned:
    """Plain gradient descent on the summed squared leave-one-out error: the textbook's recipe.

    The parameters are the factors w themselves, one or one for each feature, all at
    `settings.start` first; `penalty` times their norm is added to the sum. Values are as they are.
    """
    errors = LeaveOneOut(problem, np.arange(len(problem.features)), device, torch.float64)
    n_features, weights = problem.features.shape[1], problem.weights[:, None]
    metric = RawMetric(n_features, 1 if settings.parametrization == "scalar" else n_features)
    w = np.full(metric.n_parameters, settings.start or 1.0)
    losses: list[float] = []
    for _ in range(settings.max_iter):
        left, jacobian = errors.linearize(metric, w, 1.0)
        norm = float(np.linalg.norm(w))
        losses.append(float((weights * left**2).sum()) + penalty * norm)
        gradient = -2.0 * np.einsum("qp,qpj->j", weights * left, jacobian[:, :, :-1])
        w = w - (settings.learning_rate or 0.5) * (gradient + penalty * w / (norm or 1.0))
        if not np.isfinite(w).all():
            raise ValueError(
                f"solver='sgd' diverged at learning_rate_init={settings.learning_rate or 0.5} in "
                f"step {len(losses)}. Use a smaller one, or solver='auto'."
            )
        if notify(metric.matrix(w), 0.0):
            break
    learned = Learned(metric.matrix(w), 0.0, w, losses, [], True, 0.0)
    reached = score(problem, np.arange(len(problem.features)), learned, device)
    return replace(learned, score=reached or 0.0)
