"""Stages of learning: the start, log-factors, the entries of a linear map, and a variant."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from skattn._geometry.training_set import evenly_spaced
from skattn._learning.design import Design
from skattn._learning.ensemble import Learned, Split
from skattn._learning.leave_one_out import LeaveOneOut
from skattn._learning.losses import MetricLoss, PenalizedLoss, Prior, SquaredErrors
from skattn._learning.metrics import (
    DiagonalMetric,
    FactorMetric,
    LinearMetric,
    Metric,
    ScalarMetric,
)
from skattn._learning.plan import Plan
from skattn._learning.variant_loss import VariantLoss
from skattn._optimize.first_order import lbfgs
from skattn._optimize.monitor import Bounds, Monitor, Trained
from skattn._smoother import Component, Mixture
from skattn.solvers import GaussNewton, Solver
from skattn.variants import Beginning, Model, Variant
from skattn.variants._model import LearnableMetric

__all__ = ["Session", "common_start", "descend", "learn_metric", "learn_variant", "rough_metric"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

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
# How far the logarithm of the ridge may go beside a variant, and its standard deviation.
_RIDGE_FARTHEST, _RIDGE_SPREAD = 8.0, 1.0
# Queries on which the start is sought, and rough metrics are learned; steps, and their tolerance.
_START_QUERIES, _ROUGH_STEPS, _ROUGH = 300, 30, 1e-3
# The grid of the start: half-octaves around the scale at which a median distance counts as two
# bandwidths, and ridges; rows whose distances give the median.
_SHIFTS, _GRID_RIDGES, _ROWS = np.arange(-3.0, 2.01, 0.5), (1e-3, 1e-2, 1e-1, 1.0), 300


@dataclass(frozen=True)
class Session:
    """What all stages of learning one model have in common.

    Attributes
    ----------
    design : Design
        What is learned from; it has a problem.
    split : Split
        What each row is for.
    plan : Plan
        What is learned, and how.
    device : torch.device
        Where tensors live.
    seed : int
        Seed of batches, first weights and dropout.
    notify : callable
        Receives after each step a function that makes the smoother; returns whether to stop.
    """

    design: Design
    split: Split
    plan: Plan
    device: torch.device
    seed: int
    notify: Callable[[Callable[[], Component | Mixture]], bool]

    @property
    def has_ridge(self) -> bool:
        """Whether local lines are fitted."""
        return self.design.basis is not None

    def errors(self, rows: Indices) -> LeaveOneOut:
        """Leave-one-out errors of some rows, in single precision if there are many rows.

        The loss is then the same to 1e-5, in half the time.
        """
        problem = self.design.problem
        assert problem is not None
        is_single = len(problem.weights) > 500
        dtype = torch.float32 if is_single else torch.float64
        return LeaveOneOut(problem, rows, self.device, dtype)

    def minimize(
        self,
        solver: Solver,
        loss: MetricLoss | VariantLoss,
        start: Array,
        smoother: Callable[[Array, float], Component | Mixture],
    ) -> Trained:
        """Minimise a loss; `smoother` is what predicts under the model's parameters and a ridge."""

        def notify(parameters: Array) -> bool:
            own, ridge = loss.split(parameters)
            return self.notify(lambda: smoother(own, ridge))

        score = None
        if len(self.split.validation):
            score = loss.of(self.errors(self.split.validation)).r_squared
        monitor = Monitor(score, solver.patience, notify)
        return solver.minimize(loss, start, loss.prior.bounds, monitor, self.seed)

    def learned(
        self, loss: PenalizedLoss, trained: Trained, model: Model, parts: list[Array]
    ) -> Learned:
        """What was learned in a stage."""
        ridge = loss.split(trained.parameters)[1]
        return Learned(
            model,
            parts,
            ridge if self.has_ridge else 0.0,
            trained.losses,
            trained.validation_scores,
            trained.has_converged,
            loss.r_squared(trained.parameters),
        )


def few_of(queries: Indices) -> Indices:
    """Up to 300 of some queries, evenly spaced."""
    return queries[evenly_spaced(len(queries), _START_QUERIES)]


def common_start(errors: LeaveOneOut) -> tuple[float, float]:
    """The log-scale common to all features, and the ridge, of least leave-one-out error.

    Parameters
    ----------
    errors : LeaveOneOut
        At few queries: all combinations of a grid are tried.

    Returns
    -------
    log_scale : float
        Logarithm of the factor of all features.
    ridge : float
        1 at degree 0, where there is none.
    """
    features = errors.problem.features
    distances = pdist(features[evenly_spaced(len(features), _ROWS)], "sqeuclidean")
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
    problem = session.design.problem
    assert problem is not None
    stages = _MetricStages(session, *common_start(session.errors(few_of(session.split.queries))))
    choice = session.plan.metric.resolved(problem.n_plain)
    learned = stages.scales(is_scalar=choice.name == "scalar")
    return stages.entries(learned, choice.n_components) if choice.name == "linear" else learned


def rough_metric(session: Session) -> tuple[Learned, Indices]:
    """A metric learned from few of the queries in few steps, and the other queries.

    It has factors of its own for the features, whatever the plan says, since an axis is to stand
    out.
    """
    queries, choice = session.split.queries, session.plan.metric
    few, none = few_of(queries), queries[:0]
    name = "auto" if choice.name == "scalar" else choice.name
    quick = replace(
        session.plan,
        metric=replace(choice, name=name, n_components=None),
        metric_solver=GaussNewton(_ROUGH_STEPS, _ROUGH),
        start=None,
    )
    silent = replace(
        session, split=Split(few, none, none), plan=quick, notify=lambda smoother: False
    )
    return learn_metric(silent), np.setdiff1d(queries, few)


@dataclass(frozen=True)
class _MetricStages:
    """Log-factors first, then the entries of a linear map."""

    session: Session
    log_scale: float
    ridge: float

    def scales(self, *, is_scalar: bool) -> Learned:
        """Learn log-factors, from a common one."""
        problem = self.session.design.problem
        assert problem is not None
        n_features = problem.features.shape[1]
        metric = ScalarMetric(n_features) if is_scalar else DiagonalMetric(n_features)
        center = np.full(metric.n_parameters, self.log_scale)
        spread = _SCALES[self.session.has_ridge]
        prior = self._prior(center, spread, Bounds(center + _LOWER, center + _UPPER))
        start, given = prior.center.copy(), self.session.plan.start
        first = self.log_scale - _WIDER if given is None else np.log(given)
        start[: metric.n_parameters] = first
        return self._train(metric, prior, start, is_scalar=is_scalar)

    def entries(self, diagonal: Learned, n_components: int | None) -> Learned:
        """Learn a full map, or one of fewer coordinates, from a diagonal one."""
        problem = self.session.design.problem
        assert problem is not None
        (base,) = diagonal.matrices()
        scales = np.diag(base)
        if n_components is not None and n_components < len(scales):
            base = base @ _leading(problem.features @ base, problem.weights, n_components)
            metric, spread = LinearMetric(base, scales, n_components), _FREE_ENTRIES
        else:  # ranks keep factors of their own
            n_plain = problem.n_plain
            metric, spread = LinearMetric(base, scales[:n_plain], n_plain), _ENTRIES
        zeros, farthest = np.zeros(metric.n_parameters), np.full(metric.n_parameters, _FARTHEST)
        prior = self._prior(zeros, spread, Bounds(-farthest, farthest))
        has_ridge = self.session.has_ridge
        start = np.append(zeros, np.log(diagonal.ridge)) if has_ridge else zeros
        return diagonal.then(self._train(metric, prior, start))

    def _prior(self, center: Array, spread: float, bounds: Bounds) -> Prior:
        spreads = np.full(len(center), spread)
        if self.session.has_ridge:
            center, spreads = np.append(center, np.log(self.ridge)), np.append(spreads, _SCALES[1])
            bounds = Bounds(*(np.append(*pair) for pair in zip(bounds, _RIDGES, strict=True)))
        n_queries = len(self.session.split.queries)
        return Prior(center, self.session.plan.alpha / (n_queries * spreads**2), bounds)

    def _train(
        self, metric: Metric, prior: Prior, start: Array, *, is_scalar: bool = False
    ) -> Learned:
        session = self.session
        problem = session.design.problem
        assert problem is not None
        loss = MetricLoss(session.errors(session.split.queries), prior, metric)

        def smoother(parameters: Array, ridge: float) -> Component:
            return session.design.component(metric.matrix(parameters), ridge)

        trained = session.minimize(session.plan.metric_solver, loss, start, smoother)
        matrix = metric.matrix(loss.split(trained.parameters)[0])
        model = _alone(LearnableMetric(matrix, problem.n_plain, is_scalar))
        return session.learned(loss, trained, model, model.split(model.start))


def _alone(metric: LearnableMetric) -> Model:
    """The model of a metric that depends on nothing."""
    return Model(metric, [metric.block()])


def _leading(features: Array, weights: Array, n_components: int) -> Array:
    """The leading principal axes of features, (n_features, n_components)."""
    axes = np.linalg.eigh(np.atleast_2d(np.cov(features, rowvar=False, aweights=weights)))[1]
    return axes[:, : -n_components - 1 : -1]


def descend(session: Session) -> Learned:
    """Learn factors w by plain gradient descent: the textbook's recipe."""
    problem, plan = session.design.problem, session.plan
    assert problem is not None
    assert plan.start is not None
    n_features = problem.features.shape[1]
    metric = FactorMetric(n_features, 1 if plan.metric.name == "scalar" else n_features)
    every = np.arange(len(problem.weights))
    errors = LeaveOneOut(problem, every, session.device, torch.float64)
    loss = SquaredErrors(errors, metric, plan.alpha)
    start = np.full(metric.n_parameters, plan.start)

    def notify(w: Array) -> bool:
        return session.notify(lambda: session.design.component(metric.matrix(w), 0.0))

    unbounded = Bounds(np.full_like(start, -np.inf), np.full_like(start, np.inf))
    trained = plan.metric_solver.minimize(loss, start, unbounded, Monitor(notify=notify), 0)
    if not np.isfinite([*trained.losses, *trained.parameters]).all():
        raise ValueError(
            f"solver={plan.metric_solver!r} diverged in step {len(trained.losses) - 1}. Use a "
            "smaller learning_rate, or solver='auto'."
        )
    matrix = metric.matrix(trained.parameters)
    model = _alone(LearnableMetric(matrix, problem.n_plain, plan.metric.name == "scalar"))
    score = errors.r_squared(errors.errors(metric, trained.parameters, 1.0))
    return Learned(model, model.split(model.start), 0.0, trained.losses, [], True, score)


def learn_variant(session: Session, variant: Variant, learned: Learned) -> Learned:
    """Learn a variant and the log-factors of the features, from a learned metric on."""
    errors = session.errors(session.split.queries)
    model = _best_model(session, variant, learned, errors)
    prior = _variant_prior(session, model, learned, len(errors.queries))
    generator = torch.Generator(session.device).manual_seed(session.seed)
    loss = VariantLoss(errors, prior, model, variant.dropout, generator)

    def smoother(parameters: Array, ridge: float) -> Component | Mixture:
        return session.design.smoother(model, model.split(parameters), ridge)

    trained = session.minimize(session.plan.variant_solver, loss, prior.center, smoother)
    parts, exact = model.split(loss.split(trained.parameters)[0]), loss.of(errors)
    return learned.then(session.learned(exact, trained, model, parts))


def _variant_prior(session: Session, model: Model, learned: Learned, n_queries: int) -> Prior:
    """The prior around where a model starts."""
    (lower, upper), center, spread = model.bounds, model.start, model.spread
    if session.has_ridge:
        log_ridge = np.log(learned.ridge)
        center, spread = np.append(center, log_ridge), np.append(spread, _RIDGE_SPREAD)
        lower = np.append(lower, log_ridge - _RIDGE_FARTHEST)
        upper = np.append(upper, log_ridge + _RIDGE_FARTHEST)
    return Prior(center, session.plan.alpha / (n_queries * spread**2), Bounds(lower, upper))


def _best_model(
    session: Session, variant: Variant, learned: Learned, errors: LeaveOneOut
) -> Model:
    """The candidate whose loss at few queries is lowest, after a few steps if it says so."""
    few = errors.at(np.searchsorted(errors.queries, few_of(errors.queries)))
    problem, metric = few.problem, learned.model.metric
    x = problem.features[:, : problem.n_plain]
    common_scale = float(np.exp(common_start(few)[0]))
    models = variant.models(Beginning(metric, x, common_scale, session.seed))
    if len(models) == 1:
        return models[0]
    reached = []
    for model in models:
        prior = _variant_prior(session, model, learned, len(few.queries))
        loss = VariantLoss(few, prior, model)
        if variant.trial_steps == 0:
            reached.append(loss.value(prior.center))
            continue
        common = prior.center, prior.bounds, 1e-4, variant.trial_steps
        reached.append(min(lbfgs(loss, *common, Monitor()).losses))
    return models[int(np.argmin(reached))]
