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
from skattn._learning.plan import Plan
from skattn._learning.stages import Notify, Session, learn_metric, learn_variant, rough_metric
from skattn._learning.textbook import descend
from skattn.solvers import GradientDescent

__all__ = ["learn"]

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
    training_set: TrainingSet,
    plan: Plan,
    device: torch.device,
    n_threads: int,
    notify: Notify,
    is_stopped: Callable[[], bool],
) -> Ensemble:
    """Learn as many models as planned, each from its queries; all rows are keys of all.

    After each step, `notify` receives a function that makes the smoother, and returns whether to
    stop; `is_stopped` tells whether it ever did. Few rows are learned from by one thread.
    """
    design = _design(training_set, plan)
    if design.problem is None:
        return Ensemble([_constant(design)] * plan.n_members)
    splits = copy.deepcopy(plan.rng)
    members: list[LearnedMember] = []
    seed = _drawn_seed(plan.rng)
    with limited_threads(n_threads if len(design.problem.weights) > _THREADED_ROWS else 1):
        while len(members) < plan.n_members and not is_stopped():
            split = _split(design.problem, plan, splits)
            seed = _drawn_seed(splits) if plan.n_members > 1 else seed
            members.append(_member(Session(design, split, plan, device, seed, notify), is_stopped))
    return Ensemble(members)


def _drawn_seed(rng: np.random.RandomState) -> int:
    return int(rng.randint(2**31 - 1))


def _design(training_set: TrainingSet, plan: Plan) -> Design:
    if isinstance(plan.metric_solver, GradientDescent):
        return Design.unscaled(training_set, plan.kernel)
    return Design.standardized(training_set, plan.kernel, plan.degree, plan.metric.has_ranks)


def _split(problem: Problem, plan: Plan, rng: np.random.RandomState) -> Split:
    n, most = len(problem.weights), _MOST_QUERIES
    if plan.variant is not None and plan.variant.hides_validation and n > most:
        most = min(_MOST_IN_BATCHES, int(_LARGEST_SHARE * n))  # some are left to score
    drawn = _SHARE_OF_A_MEMBER if plan.n_members > 1 else 1.0
    return Split.of(problem.excluded, most, plan.validation_fraction, rng, drawn)


def _member(session: Session, is_stopped: Callable[[], bool]) -> LearnedMember:
    """Learn one model."""
    plan, split, variant = session.plan, session.split, session.plan.variant
    if variant is not None and variant.hides_validation:
        hidden = np.concatenate([split.validation, split.holdout])
        session = replace(session, design=session.design.hiding(hidden))
    if plan.curvature is not False:
        session = _bent(session)
    is_descent = isinstance(plan.metric_solver, GradientDescent)
    learned = descend(session) if is_descent else learn_metric(session)
    if variant is not None and not is_stopped():
        learned = learn_variant(session, variant, learned)
    score = session.score(split.holdout, learned)
    return LearnedMember.of(session.design, split, learned, score)


def _constant(design: Design) -> LearnedMember:
    """The model of data from which nothing can be learned."""
    none = np.zeros(0, dtype=np.intp)
    learned = Learned.constant(len(design.scaler.features))
    return LearnedMember.of(design, Split(none, none, none), learned, np.nan)


def _bent(session: Session) -> Session:
    """The session with lines that bend, unless rows that are left over speak against it.

    They bend along the direction in which a rough metric tells rows apart best: the kernel is
    narrowest there, where lines fit worst.
    """
    straight, others = rough_metric(session)
    axis = np.linalg.svd(straight.matrices()[0][: session.problem.n_plain])[0][:, 0]
    axis = axis * np.sign(axis[np.argmax(np.abs(axis))])
    bent = replace(session, design=session.design.bent(axis))
    may_choose = session.plan.curvature is None and len(others) >= _ENOUGH_TO_CHOOSE
    if bent.design is session.design or not may_choose:
        return bent
    curved, _ = rough_metric(bent)
    return bent if bent.score(others, curved) >= session.score(others, straight) else session
