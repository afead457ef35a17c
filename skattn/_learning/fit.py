"""Learning an ensemble: rows are split, lines may bend, metrics and variants are learned."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch

from skattn._geometry.training_set import TrainingSet
from skattn._learning.design import Design, Problem
from skattn._learning.device import limited_threads
from skattn._learning.ensemble import Ensemble, Learned, LearnedMember, Split
from skattn._learning.leave_one_out import LeaveOneOut
from skattn._learning.losses import Prior
from skattn._learning.plan import Plan
from skattn._learning.stages import (
    Session,
    descend,
    learn_metric,
    learn_variant,
    rough_metric,
)
from skattn._learning.variant_loss import VariantLoss
from skattn._optimize.monitor import Bounds
from skattn._smoother import Component, Mixture
from skattn.solvers import GradientDescent

__all__ = ["learn"]

Notify = Callable[[Callable[[], Component | Mixture]], bool]

# Of more training rows, so many are queries in training.
_MOST_QUERIES = 1000
# The same where validation rows are hidden, since batches are learned from; and the largest share
# of all rows.
_MOST_IN_BATCHES, _LARGEST_SHARE = 8000, 0.9
# Of fewer rows, several threads wait for each other in training more than they compute.
_THREADED_ROWS = 2000
# The share of the rows that are queries of each of several members.
_SHARE_OF_A_MEMBER = 0.6
# So many rows that a rough metric was not learned from say whether lines should bend.
_ENOUGH_TO_CHOOSE = 300


def learn(
    training_set: TrainingSet, plan: Plan, device: torch.device, n_threads: int, notify: Notify
) -> Ensemble:
    """Learn as many models as planned, each from its queries; all rows are keys of all.

    Parameters
    ----------
    training_set : TrainingSet
        The rows.
    plan : Plan
        What is learned, and how.
    device : torch.device
        Where training runs.
    n_threads : int
        Number of threads; fewer of few rows.
    notify : callable
        Receives after each step a function that makes the smoother; returns whether to stop, for
        good.
    """
    design = _design(training_set, plan)
    if design.problem is None:
        return Ensemble([_constant_member(design)] * plan.n_members)
    splits, members = copy.deepcopy(plan.rng), []
    seed = _drawn_seed(plan.rng)
    listener = _Listener(notify)
    is_large = len(design.problem.weights) > _THREADED_ROWS
    with limited_threads(n_threads if is_large else 1):
        while len(members) < plan.n_members and not listener.stopped:
            split = _split(design.problem, plan, splits)
            seed = _drawn_seed(splits) if plan.n_members > 1 else seed
            session = Session(design, split, plan, device, seed, listener)
            members.append(_learn_member(session, listener))
    return Ensemble(members)


class _Listener:
    """Passes notifications on, and remembers whether to stop."""

    def __init__(self, notify: Notify) -> None:
        self.notify, self.stopped = notify, False

    def __call__(self, smoother: Callable[[], Component | Mixture]) -> bool:
        self.stopped = self.notify(smoother) or self.stopped
        return self.stopped


def _drawn_seed(rng: np.random.RandomState) -> int:
    return int(rng.randint(2**31 - 1))


def _design(training_set: TrainingSet, plan: Plan) -> Design:
    if isinstance(plan.metric_solver, GradientDescent):
        return Design.unscaled(training_set, plan.kernel)
    has_ranks = plan.metric.has_ranks
    return Design.standardized(training_set, plan.kernel, plan.degree, has_ranks)


def _split(problem: Problem, plan: Plan, rng: np.random.RandomState) -> Split:
    n, most = len(problem.weights), _MOST_QUERIES
    if plan.variant is not None and plan.variant.hides_validation and n > most:
        most = min(_MOST_IN_BATCHES, int(_LARGEST_SHARE * n))  # some are left to score
    drawn = _SHARE_OF_A_MEMBER if plan.n_members > 1 else 1.0
    return Split.of(problem.excluded, most, plan.validation_fraction, rng, drawn)


def _learn_member(session: Session, listener: _Listener) -> LearnedMember:
    """Learn one model."""
    plan, split, variant = session.plan, session.split, session.plan.variant
    if variant is not None and variant.hides_validation:
        hidden = np.concatenate([split.validation, split.holdout])
        session = replace(session, design=session.design.hiding(hidden))
    if plan.curvature is not False:
        session = _bent(session)
    is_descent = isinstance(plan.metric_solver, GradientDescent)
    learned = descend(session) if is_descent else learn_metric(session)
    if variant is not None and not listener.stopped:
        learned = learn_variant(session, variant, learned)
    smoother = session.design.smoother(learned.model, learned.parts, learned.ridge)
    score = _score(session, session.split.holdout, learned)
    return LearnedMember(session.design, split, learned, score, smoother)


def _constant_member(design: Design) -> LearnedMember:
    """The model of data from which nothing can be learned."""
    learned = Learned.constant(len(design.scaler.features))
    smoother = design.smoother(learned.model, learned.parts, learned.ridge)
    none = np.zeros(0, dtype=np.intp)
    return LearnedMember(design, Split(none, none, none), learned, np.nan, smoother)


def _bent(session: Session) -> Session:
    """The session with lines that bend, unless rows that are left over speak against it."""
    straight, others = rough_metric(session)
    problem = session.design.problem
    assert problem is not None
    bent = replace(session, design=session.design.bent(_leading_axis(straight, problem.n_plain)))
    may_choose = session.plan.curvature is None and len(others) >= _ENOUGH_TO_CHOOSE
    if bent.design is session.design or not may_choose:
        return bent
    curved, _ = rough_metric(bent)
    is_better = _score(bent, others, curved) >= _score(session, others, straight)
    return bent if is_better else session


def _leading_axis(learned: Learned, n_plain: int) -> np.ndarray:
    """The direction in which a metric tells rows apart best, in the features that are no ranks.

    The kernel is narrowest there, where lines fit worst, so that this is where they should bend.
    """
    axis = np.linalg.svd(learned.matrices()[0][:n_plain])[0][:, 0]
    return axis * np.sign(axis[np.argmax(np.abs(axis))])


def _score(session: Session, rows: np.ndarray, learned: Learned) -> float:
    """R squared of leave-one-out predictions of some rows, in double precision; NaN if none."""
    problem = session.design.problem
    if len(rows) == 0 or problem is None:
        return np.nan
    parameters = np.concatenate([part.ravel() for part in learned.parts])
    if session.has_ridge:
        parameters = np.append(parameters, np.log(learned.ridge))
    no_prior = Prior(parameters, np.zeros(len(parameters)), Bounds(parameters, parameters))
    errors = LeaveOneOut(problem, rows, session.device, torch.float64)
    return VariantLoss(errors, no_prior, learned.model).r_squared(parameters)
