"""Stages of learning: the start, log-factors, the entries of a linear map, and a variant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from skattn._geometry.distances import squared_distances
from skattn._geometry.training_set import evenly_spaced
from skattn._learning.design import Design, Problem
from skattn._learning.ensemble import Learned, Split
from skattn._learning.leave_one_out import LeaveOneOut
from skattn._learning.losses import MetricLoss, Prior
from skattn._learning.metrics import DiagonalMetric, LinearMetric, Metric, ScalarMetric
from skattn._learning.plan import Plan
from skattn._learning.variant_loss import VariantLoss
from skattn._optimize.first_order import lbfgs
from skattn._optimize.monitor import Bounds, Monitor, Task, Trained
from skattn._smoother import Component, Mixture
from skattn.solvers import GaussNewton, Solver
from skattn.variants import Beginning, LearnableMetric, Model, Variant

__all__ = ["Notify", "Session", "common_start", "learn_metric", "learn_variant", "rough_metric"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Smoother = Component | Mixture
Notify = Callable[[Callable[[], Smoother]], bool]

# Standard deviations the prior gives log-scales around the common one, at degree 0 and 1 (and the
# logarithm of the ridge around its start), and entries of a full map around the diagonal one. The
# penalty counts as one query of training does.
_SCALES, _ENTRIES = (1.4, 1.0), 0.1
# The last of a map of fewer coordinates than features, which has to turn.
_FREE_ENTRIES = 1.0
# Training starts with kernels so much wider than the best common one, as a logarithm: from there,
# it finds better optima.
_WIDER = np.log(2.0)
# How far log-scales may go from the common one, and entries of a full map from the diagonal.
_LOWER, _UPPER, _FARTHEST = -6.0, 4.0, 3.0
_RIDGES = np.log([1e-6, 1e3])
# How far the logarithm of the ridge may go beside a variant.
_RIDGE_FARTHEST = 8.0
# From more rows, metrics are learned in single precision: the loss is the same to 1e-5, in half
# the time.
_DOUBLE_ROWS = 500
# Queries on which the start is sought, and rough metrics are learned; steps, and their tolerance.
_START_QUERIES, _ROUGH_STEPS, _ROUGH = 300, 30, 1e-3
# Tolerance of the trials in which candidate models compete.
_TRIAL = 1e-4
# The grid of the start: half-octaves around the scale at which a median distance counts as two
# bandwidths, and ridges; rows whose distances give the median.
_SHIFTS, _GRID_RIDGES, _ROWS = np.arange(-3.0, 2.01, 0.5), (1e-3, 1e-2, 1e-1, 1.0), 300


@dataclass(frozen=True)
class Session:
    """Training of one model: from what, for which rows, how, where.

    The seed is that of batches, first weights and dropout.
    """

    design: Design
    split: Split
    plan: Plan
    device: torch.device
    seed: int
    notify: Notify

    @property
    def problem(self) -> Problem:
        """The keys to learn from."""
        assert self.design.problem is not None
        return self.design.problem

    @property
    def has_ridge(self) -> bool:
        """Whether local lines are fitted."""
        return self.design.basis is not None

    def errors(self, rows: Indices) -> LeaveOneOut:
        """Leave-one-out errors of some rows."""
        is_single = len(self.problem.weights) > _DOUBLE_ROWS
        dtype = torch.float32 if is_single else torch.float64
        return LeaveOneOut(self.problem, rows, self.device, dtype)

    def prior(self, bounds: Bounds, center: Array, spread: Array, n_queries: int) -> Prior:
        """The prior; its penalty counts as one query of training does."""
        return Prior(center, self.plan.alpha / (n_queries * spread**2), bounds)

    def train(
        self,
        solver: Solver,
        loss: MetricLoss | VariantLoss,
        start: Array,
        smoother: Callable[[Array, float], Smoother],
    ) -> Trained:
        """Minimise a loss; `smoother` is what predicts under the model's parameters and a ridge."""

        def notify(parameters: Array) -> bool:
            own, ridge = loss.split(parameters)
            return self.notify(lambda: smoother(own, ridge))

        score = None
        if len(self.split.validation):
            score = loss.of(self.errors(self.split.validation)).r_squared
        monitor = Monitor(score, solver.patience, notify)
        return solver.minimize(Task(loss, start, loss.prior.bounds, monitor, self.seed))

    def score(self, rows: Indices, learned: Learned) -> float:
        """R squared of leave-one-out predictions of some rows, in double precision; NaN if none."""
        if len(rows) == 0:
            return np.nan
        errors = LeaveOneOut(self.problem, rows, self.device, torch.float64)
        parameters = np.concatenate([part.ravel() for part in learned.parts])
        if self.has_ridge:
            parameters = np.append(parameters, np.log(learned.ridge))
        prior = self.prior(Bounds(parameters, parameters), parameters, np.ones(len(parameters)), 1)
        return VariantLoss(errors, prior, learned.model).r_squared(parameters)


def few_of(queries: Indices) -> Indices:
    """Up to 300 of some queries, evenly spaced."""
    return queries[evenly_spaced(len(queries), _START_QUERIES)]


def common_start(errors: LeaveOneOut) -> tuple[float, float]:
    """The log-scale common to all features, and the ridge, of least leave-one-out error.

    All combinations of a grid are tried; at degree 0 the ridge is 1, and means nothing.
    """
    features = errors.problem.features
    some = features[evenly_spaced(len(features), _ROWS)]
    distances = squared_distances(some, some)
    positive = distances[distances > 0.0]
    middle = np.log(28.0 / np.median(positive)) / 2.0 if positive.size else 0.0
    metric = ScalarMetric(features.shape[1])
    ridges = _GRID_RIDGES if errors.regressors is not None else (1.0,)
    tried = []
    for shift in _SHIFTS:
        at = np.array([middle + shift])
        for ridge, left in zip(ridges, errors.errors_at(metric, at, ridges), strict=True):
            error = float(errors.share @ (left**2).mean(axis=1))
            tried.append((error if np.isfinite(error) else np.inf, middle + shift, ridge))
    _, log_scale, ridge = min(tried)
    return log_scale, ridge


def learn_metric(session: Session) -> Learned:
    """Learn a metric from the leave-one-out errors of the queries."""
    stages = _MetricStages(session, *common_start(session.errors(few_of(session.split.queries))))
    name = session.plan.metric.name_for(session.problem.n_plain)
    learned = stages.scales(is_scalar=name == "scalar")
    return stages.entries(learned) if name == "linear" else learned


def rough_metric(session: Session) -> tuple[Learned, Indices]:
    """A metric learned from few of the queries in few steps, and the other queries.

    Features have factors of their own, whatever the plan says, since an axis is to stand out.
    """
    queries, choice = session.split.queries, session.plan.metric
    few, none = few_of(queries), queries[:0]
    name = "auto" if choice.name == "scalar" else choice.name
    metric, solver = (
        replace(choice, name=name, n_components=None),
        GaussNewton(_ROUGH_STEPS, _ROUGH),
    )
    plan = replace(session.plan, metric=metric, metric_solver=solver, start=None)
    split = Split(few, none, none)
    quick = replace(session, split=split, plan=plan, notify=lambda smoother: False)
    return learn_metric(quick), np.setdiff1d(queries, few)


@dataclass(frozen=True)
class _MetricStages:
    """Log-factors first, then the entries of a linear map."""

    session: Session
    log_scale: float
    ridge: float

    def scales(self, *, is_scalar: bool) -> Learned:
        """Learn log-factors, from a common one."""
        n_features = self.session.problem.features.shape[1]
        metric = ScalarMetric(n_features) if is_scalar else DiagonalMetric(n_features)
        center = np.full(metric.n_parameters, self.log_scale)
        spread = _SCALES[self.session.has_ridge]
        prior = self._prior(center, spread, Bounds(center + _LOWER, center + _UPPER))
        start, given = prior.center.copy(), self.session.plan.start
        start[: metric.n_parameters] = self.log_scale - _WIDER if given is None else np.log(given)
        return self._train(metric, prior, start, is_scalar=is_scalar)

    def entries(self, diagonal: Learned) -> Learned:
        """Learn a full map, or one of fewer coordinates, from a diagonal one."""
        problem, n_components = self.session.problem, self.session.plan.metric.n_components
        (base,), n_plain = diagonal.matrices(), problem.n_plain
        scales = np.diag(base)
        if n_components is not None and n_components < len(scales):
            base = base @ _leading(problem.features @ base, problem.weights, n_components)
            metric, spread = LinearMetric(base, scales, n_components), _FREE_ENTRIES
        else:  # ranks keep factors of their own
            metric, spread = LinearMetric(base, scales[:n_plain], n_plain), _ENTRIES
        zeros, farthest = np.zeros(metric.n_parameters), np.full(metric.n_parameters, _FARTHEST)
        prior = self._prior(zeros, spread, Bounds(-farthest, farthest))
        log_ridge = [np.log(diagonal.ridge)] if self.session.has_ridge else []
        return diagonal.then(self._train(metric, prior, np.append(zeros, log_ridge)))

    def _prior(self, center: Array, spread: float, bounds: Bounds) -> Prior:
        spreads = np.full(len(center), spread)
        if self.session.has_ridge:
            center, spreads = np.append(center, np.log(self.ridge)), np.append(spreads, _SCALES[1])
            bounds = Bounds(*(np.append(*pair) for pair in zip(bounds, _RIDGES, strict=True)))
        return self.session.prior(bounds, center, spreads, len(self.session.split.queries))

    def _train(
        self, metric: Metric, prior: Prior, start: Array, *, is_scalar: bool = False
    ) -> Learned:
        session = self.session
        loss = MetricLoss(session.errors(session.split.queries), prior, metric)

        def smoother(parameters: Array, ridge: float) -> Component:
            return session.design.component(metric.matrix(parameters), ridge)

        trained = session.train(session.plan.metric_solver, loss, start, smoother)
        own, ridge = loss.split(trained.parameters)
        learnable = LearnableMetric(metric.matrix(own), session.problem.n_plain, is_scalar)
        ridge = ridge if session.has_ridge else 0.0
        return Learned.metric(trained, learnable, ridge, loss.r_squared(trained.parameters))


def _leading(features: Array, weights: Array, n_components: int) -> Array:
    """The leading principal axes of features, (n_features, n_components)."""
    axes = np.linalg.eigh(np.atleast_2d(np.cov(features, rowvar=False, aweights=weights)))[1]
    return axes[:, : -n_components - 1 : -1]


def learn_variant(session: Session, variant: Variant, learned: Learned) -> Learned:
    """Learn a variant and the log-factors of the features, from a learned metric on."""
    errors = session.errors(session.split.queries)
    model = _best_model(session, variant, learned, errors)
    prior = _variant_prior(session, model, learned, len(errors.queries))
    generator = torch.Generator(session.device).manual_seed(session.seed)
    loss = VariantLoss(errors, prior, model, variant.dropout, generator)

    def smoother(parameters: Array, ridge: float) -> Smoother:
        return session.design.smoother(model, model.split(parameters), ridge)

    trained = session.train(session.plan.variant_solver, loss, prior.center, smoother)
    own, ridge = loss.split(trained.parameters)
    score = loss.of(errors).r_squared(trained.parameters)
    ridge = ridge if session.has_ridge else 0.0
    return learned.then(Learned.trained(trained, model, model.split(own), ridge, score))


def _variant_prior(session: Session, model: Model, learned: Learned, n_queries: int) -> Prior:
    """The prior around where a model starts."""
    (lower, upper), center, spread = model.bounds, model.start, model.spread
    if session.has_ridge:
        log_ridge = np.log(learned.ridge)
        center, spread = np.append(center, log_ridge), np.append(spread, _SCALES[1])
        lower = np.append(lower, log_ridge - _RIDGE_FARTHEST)
        upper = np.append(upper, log_ridge + _RIDGE_FARTHEST)
    return session.prior(Bounds(lower, upper), center, spread, n_queries)


def _best_model(session: Session, variant: Variant, learned: Learned, errors: LeaveOneOut) -> Model:
    """The candidate whose loss at few queries is lowest, after a few steps if it says so."""
    few = errors.at(np.searchsorted(errors.queries, few_of(errors.queries)))
    x = few.problem.features[:, : few.problem.n_plain]
    common_scale = float(np.exp(common_start(few)[0]))
    models = variant.models(Beginning(learned.model.metric, x, common_scale, session.seed))
    reached = []
    for model in models if len(models) > 1 else ():
        prior = _variant_prior(session, model, learned, len(few.queries))
        loss = VariantLoss(few, prior, model)
        if variant.trial_steps == 0:
            reached.append(loss.value(prior.center))
        else:
            task = Task(loss, prior.center, prior.bounds, Monitor())
            reached.append(min(lbfgs(task, _TRIAL, variant.trial_steps).losses))
    return models[int(np.argmin(reached)) if reached else 0]
