"""Losses, bounds, and when to stop: what all optimisers share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["Bounds", "Loss", "Monitor", "Task", "Trained", "is_finite"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]
Evaluation = tuple[float, Array, Array]


class Loss(Protocol):
    """A function of parameters, a mean over queries."""

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        ...

    def __call__(self, parameters: Array) -> Evaluation:
        """Value, gradient and approximate Hessian, positive semidefinite; empty if there is none.

        Not finite where the loss cannot be evaluated.
        """
        ...

    def value(self, parameters: Array) -> float:
        """Value alone; inf where the loss cannot be evaluated."""
        ...

    def at(self, positions: Indices) -> Loss:
        """The loss of some of the queries."""
        ...


class Bounds(NamedTuple):
    """Lower and upper bounds of parameters, each of shape (n_parameters,)."""

    lower: Array
    upper: Array

    def clip(self, parameters: Array) -> Array:
        """The nearest parameters within the bounds."""
        return np.clip(parameters, self.lower, self.upper)


@dataclass(frozen=True)
class Trained:
    """Parameters, and how they were reached.

    Losses and validation scores are those before the first step, and after each; there are no
    scores without validation rows. Training that was stopped on purpose has converged.
    """

    parameters: Array
    losses: list[float]
    validation_scores: list[float]
    has_converged: bool


@dataclass
class Monitor:
    """Observer of the parameters after each step, which says when to stop.

    Attributes
    ----------
    score : callable or None
        Score of parameters at validation rows; higher is better.
    patience : int
        Steps without a better score before training stops.
    notify : callable
        Receives the parameters after each step; returns whether to stop.
    """

    score: Callable[[Array], float] | None = None
    patience: int = 10
    notify: Callable[[Array], bool] = lambda parameters: False
    scores: list[float] = field(default_factory=list)
    best: Array | None = None

    def stops(self, parameters: Array) -> bool:
        """Look at new parameters; return whether to stop."""
        wants_stop = self.notify(parameters)
        if self.score is None:
            return wants_stop
        self.scores.append(self.score(parameters))
        best = int(np.argmax(np.nan_to_num(self.scores, nan=-np.inf)))
        if best == len(self.scores) - 1:
            self.best = parameters.copy()
        return wants_stop or len(self.scores) - 1 - best >= self.patience

    def trained(self, parameters: Array, losses: list[float], *, converged: bool) -> Trained:
        """The best parameters that were seen."""
        best = parameters if self.best is None else self.best
        return Trained(best, losses, self.scores, converged)


class Task(NamedTuple):
    """A loss to minimise, from a start, within bounds; the seed is for what is drawn."""

    loss: Loss
    start: Array
    bounds: Bounds
    monitor: Monitor
    seed: int = 0


def is_finite(evaluation: Evaluation) -> bool:
    """Whether a loss could be evaluated: a trial step to where it could not is a bad step."""
    return all(np.isfinite(part).all() for part in evaluation)
