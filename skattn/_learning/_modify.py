"""Learning what makes a metric depend on the rows, from where a plain metric is best."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2

from skattn._learning._learn import Learned, Settings, few_of
from skattn._learning._models import (
    Base,
    DynamicModel,
    EncoderModel,
    HeadsModel,
    HierarchicalModel,
    MixtureModel,
    PlainModel,
    SampleModel,
)
from skattn._learning._objective import LeaveOneOut, Problem
from skattn._learning._rowwise import RowwiseLoss
from skattn._learning._start import common_start
from skattn._learning._trainer import Batches, Monitor, Prior, Trained, adam, lbfgs
from skattn.modifiers import Modification, RegionScale

__all__ = ["Modified", "Modifier", "modify"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Units of the network of the query, and regions at most, with rows of each at least.
_HIDDEN, _REGIONS, _ROWS_OF_A_REGION = 8, 8, 25
# Features along which heads are tried to be parted, and steps of a trial.
_MOST_TRIALS, _TRIAL_STEPS = 6, 10
# Shares of the learned weights in a mixture, and factors of its metric, that are tried.
_SHARES, _FACTORS = (0.25, 0.5, 0.75, 0.95), (1.0, 2.0, 4.0)
# Steps without a Hessian lower a loss by less, and there are more of them.
_STRICTER, _MORE = 0.1, 3
# Parameters stay within this of where they start.
_FARTHEST = 8.0


@dataclass(frozen=True)
class Modifier:
    """What to learn besides the metric.

    Attributes
    ----------
    kind : {"sample", "dynamic", "hierarchical", "heads", "mixture", "encoder", "none"}
    n_heads : int
    hidden_layer_sizes : tuple of int
    dropout : float
        The probability with which a query misses a key in a step of training.
    seed : int
        Of what is drawn.
    """

    kind: str
    n_heads: int
    hidden_layer_sizes: tuple[int, ...]
    dropout: float
    seed: int


@dataclass(frozen=True)
class Modified:
    """A metric and what depends on the rows, and how they were learned; see `Learned`."""

    modification: Modification
    ridge: float
    losses: list[float]
    validation_scores: list[float]
    has_converged: bool
    score: float
    honest_score: float | None


def modify(
    problem: Problem,
    learned: Learned,
    rows: tuple[Indices, Indices, Indices],
    modifier: Modifier,
    settings: Settings,
    device: torch.device,
    notify: Callable[[Callable[[], tuple[Modification, float]]], bool],
) -> Modified:
    """Learn from a metric on.

    Parameters
    ----------
    problem : Problem
    learned : Learned
        The metric to begin with.
    rows : three ndarray
        Queries of training, those that are watched, and others, of the honest score.
    modifier : Modifier
    settings : Settings
    device : torch.device
    notify : callable
        Is told after each step how to get the modification and ridge; returns whether to stop.

    Returns
    -------
    Modified
    """
    queries, validation, honest = rows
    errors = LeaveOneOut(problem, queries, device, settings.dtype)
    model = _model(problem, learned, errors, settings, modifier)
    prior, start = _prior(model, learned, errors, settings)
    generator = torch.Generator(device).manual_seed(modifier.seed) if modifier.dropout else None
    loss = RowwiseLoss(errors, model, prior, modifier.dropout, generator)

    def tell(parameters: Array) -> bool:
        own, ridge = loss.split(parameters)
        return notify(lambda: (model.modification(own), ridge))

    score = None
    if len(validation):
        score = loss.of(LeaveOneOut(problem, validation, device, settings.dtype)).r_squared
    monitor = Monitor(score, settings.patience, tell)
    trained = _trained(loss, start, prior, settings, modifier, monitor)
    own, ridge = loss.split(trained.parameters)
    others = None
    if len(honest):
        exact = LeaveOneOut(problem, honest, device, torch.float64)
        others = loss.of(exact).r_squared(trained.parameters)
    return Modified(
        model.modification(own),
        ridge if problem.line is not None else 0.0,
        learned.losses + trained.losses[1:],
        learned.validation_scores + trained.validation_scores[1:],
        learned.has_converged and trained.has_converged,
        loss.of(errors).r_squared(trained.parameters),
        others,
    )


def _trained(
    loss: RowwiseLoss,
    start: Array,
    prior: Prior,
    settings: Settings,
    modifier: Modifier,
    monitor: Monitor,
) -> Trained:
    """Minimise the loss: a batch at a time where there are many parameters, or dropout."""
    if settings.solver != "adam" and modifier.kind != "encoder" and not modifier.dropout:
        # so that a step in which little happens is not the last one; factors of keys could be
        # followed for long, from where they help on
        strictness = 1.0 if modifier.kind == "sample" else _STRICTER
        tolerance = strictness * settings.tolerance
        return lbfgs(loss, start, prior, tolerance, _MORE * settings.max_iter, monitor)
    rate = settings.learning_rate or (0.003 if modifier.kind == "encoder" else 0.05)
    n_queries, size = len(loss.errors.queries), settings.batch_size
    batches = Batches(n_queries, size, rate, settings.patience, modifier.seed)
    common = start, prior, settings.tolerance, settings.max_iter, monitor
    return adam(loss.at, *common, batches, whole=loss.sampled)


def _prior(
    model: Any, learned: Learned, errors: LeaveOneOut, settings: Settings
) -> tuple[Prior, Array]:
    """Around where the metric is; and the start."""
    start, spread = model.start(), model.spread()
    if errors.line is not None:
        start, spread = np.append(start, np.log(learned.ridge)), np.append(spread, 1.0)
    precision = settings.alpha / (len(errors.queries) * spread**2)
    return Prior(start.copy(), precision, start - _FARTHEST, start + _FARTHEST), start


def _model(
    problem: Problem,
    learned: Learned,
    errors: LeaveOneOut,
    settings: Settings,
    modifier: Modifier,
) -> Any:
    base = Base(learned.matrix, problem.n_plain, settings.parametrization == "scalar")
    if modifier.kind == "sample":
        return SampleModel(base, len(problem.weights))
    if modifier.kind == "dynamic":
        return DynamicModel(base, _HIDDEN, modifier.seed)
    if modifier.kind == "hierarchical":
        n_regions = int(np.clip(len(problem.weights) // _ROWS_OF_A_REGION, 2, _REGIONS))
        regions = _regions(_plain(problem), n_regions)
        return HierarchicalModel(base, regions, regions.memberships(_plain(problem)))
    if modifier.kind == "heads":
        return _heads(problem, base, learned, errors, settings, modifier)
    if modifier.kind == "mixture":
        few = errors.at(np.searchsorted(errors.queries, few_of(errors.queries)))
        log_scale, _ = common_start(few)
        fixed = np.exp(log_scale) * np.eye(problem.features.shape[1])
        return _mixture(base, fixed, learned, few, settings)
    if modifier.kind == "encoder":
        return EncoderModel(base, modifier.hidden_layer_sizes, modifier.seed)
    return PlainModel(base)


def _plain(problem: Problem) -> Array:
    return problem.features[:, : problem.n_plain]


def _regions(x: Array, n_regions: int) -> RegionScale:
    """Means of clusters, which start along the direction in which rows differ most.

    Of fewer distinct rows, there are fewer.
    """
    distinct = np.unique(x, axis=0)
    away = distinct - x.mean(axis=0)
    along = away @ np.linalg.eigh(away.T @ away)[1][:, -1]
    places = ((np.arange(n_regions) + 0.5) * len(distinct) / n_regions).astype(np.intp)
    starts = distinct[np.argsort(along, kind="stable")[np.unique(places)]]
    with warnings.catch_warnings():  # of empty clusters, which are dropped
        warnings.simplefilter("ignore", UserWarning)
        centers, members = kmeans2(x, starts, minit="matrix")
    distances = np.linalg.norm(x - centers[members], axis=1)
    width = float(np.sqrt(np.mean(distances**2))) or 1.0
    centers = centers[np.unique(members)]
    return RegionScale(centers, width, np.zeros(len(centers)))


def _heads(
    problem: Problem,
    base: Base,
    learned: Learned,
    errors: LeaveOneOut,
    settings: Settings,
    modifier: Modifier,
) -> HeadsModel:
    """Heads parted where a few steps from there lower the loss at few queries most.

    Tried are clusters, and parts of the features that the metric tells apart best.
    """
    x, n_heads = _plain(problem), modifier.n_heads
    few = errors.at(np.searchsorted(errors.queries, few_of(errors.queries)))
    regions = _regions(x, n_heads)
    places = np.arange(n_heads) % len(regions.centers)  # of few distinct rows, heads share them
    trials = [_gates(regions.centers[places], regions.width)]
    lengths = np.linalg.norm(base.matrix[: base.n_plain], axis=1)
    for feature in np.argsort(-lengths, kind="stable")[:_MOST_TRIALS]:
        levels = np.quantile(x[:, feature], (np.arange(n_heads) + 0.5) / n_heads)
        centers = np.zeros((n_heads, x.shape[1]))
        centers[:, feature] = levels
        width = max(float(np.ptp(levels)) / n_heads, 0.1)
        trials.append(_gates(centers, width))
    found = []
    for matrix, offset in trials:
        model = HeadsModel(base, matrix, offset)
        prior, start = _prior(model, learned, few, settings)
        watch = Monitor(None, 1, lambda parameters: False)
        loss = RowwiseLoss(few, model, prior)
        trained = lbfgs(loss, start, prior, settings.tolerance, _TRIAL_STEPS, watch)
        found.append(min(trained.losses))
    return HeadsModel(base, *trials[int(np.argmin(found))])


def _mixture(
    base: Base, fixed: Array, learned: Learned, few: LeaveOneOut, settings: Settings
) -> MixtureModel:
    """A mixture that starts at the best of some shares and common factors of the learned metric."""
    found = []
    for share, factor in product(_SHARES, _FACTORS):
        model = MixtureModel(base, fixed, share, factor)
        prior, start = _prior(model, learned, few, settings)
        found.append((RowwiseLoss(few, model, prior).value(start), share, factor))
    return MixtureModel(base, fixed, *min(found)[1:])


def _gates(centers: Array, width: float) -> tuple[Array, Array]:
    """Gates by squared distances from centres: a matrix and an offset."""
    return centers.T / width**2, -0.5 * (centers**2).sum(axis=1) / width**2
