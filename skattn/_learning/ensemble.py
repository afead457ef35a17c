"""Models that were learned from some of the rows as queries, and how they are described."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from skattn._attention import Resources
from skattn._geometry.training_set import Exclusion, evenly_spaced
from skattn._learning.design import Design
from skattn._optimize.monitor import Trained
from skattn._smoother import Component, Mixture, mean_of, predict
from skattn.variants import LearnableMetric, Model

__all__ = ["Ensemble", "Learned", "LearnedMember", "Member", "Split"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Rows at most that an out-of-bag score is of.
_MOST_ROWS = 1000


class Split(NamedTuple):
    """Purposes of rows: places among the deduplicated rows.

    Rows that are left out together, such as a group, have the same purpose.
    """

    queries: Indices
    validation: Indices
    holdout: Indices

    @classmethod
    def of(
        cls, excluded: Exclusion, most: int, held: float, rng: np.random.RandomState, drawn: float
    ) -> Split:
        """Split rows, given what leave-one-out excludes for each.

        Up to `most` rows are queries, evenly spaced, so that they do not depend on the order of the
        rows; or, below 1, the share `drawn` of them. The share `held` of the queries is for
        validation. Of the other rows, up to 1000 are held out.
        """
        blocks = np.unique(excluded.start, return_inverse=True)[1]
        n_rows, n_blocks = len(blocks), int(blocks.max()) + 1
        most_blocks = n_blocks if n_rows <= most else max(n_blocks * most // n_rows, 1)
        if drawn < 1.0:
            size = min(max(int(np.ceil(drawn * n_blocks)), min(2, n_blocks)), most_blocks)
            chosen = rng.permutation(n_blocks)[:size]
        else:
            chosen = evenly_spaced(n_blocks, most_blocks)
        validation = chosen[:0]
        if held > 0.0:
            n_held = min(int(np.ceil(held * len(chosen))), len(chosen) - 1)
            validation = rng.permutation(chosen)[:n_held]
        others = np.flatnonzero(~np.isin(blocks, chosen))
        return cls(
            np.flatnonzero(np.isin(blocks, np.setdiff1d(chosen, validation))),
            np.flatnonzero(np.isin(blocks, validation)),
            others[evenly_spaced(len(others), _MOST_ROWS)],
        )


@dataclass(frozen=True)
class Learned:
    """A learned model with its parameters block by block, and how it was learned.

    Losses and validation scores are those of all stages, the score that of the queries; the ridge
    is 0 at degree 0.
    """

    model: Model
    parts: list[Array]
    ridge: float
    losses: list[float]
    validation_scores: list[float]
    has_converged: bool
    score: float

    @classmethod
    def trained(
        cls, trained: Trained, model: Model, parts: list[Array], ridge: float, score: float
    ) -> Learned:
        """The model that training has reached."""
        history = trained.losses, trained.validation_scores, trained.has_converged
        return cls(model, parts, ridge, *history, score)

    @classmethod
    def metric(
        cls, trained: Trained, metric: LearnableMetric, ridge: float, score: float
    ) -> Learned:
        """A metric alone that training has reached."""
        model = Model(metric, [metric.block()])
        return cls.trained(trained, model, model.split(model.start), ridge, score)

    @classmethod
    def constant(cls, n_features: int) -> Learned:
        """The model under which all rows weigh alike: where nothing can be learned."""
        metric = LearnableMetric(np.zeros((n_features, n_features)), n_features, False)
        return cls.metric(Trained(np.zeros(0), [], [], True), metric, 0.0, 0.0)

    def then(self, next_stage: Learned) -> Learned:
        """The model of a further stage, with the history of both."""
        return replace(
            next_stage,
            losses=self.losses + next_stage.losses[1:],
            validation_scores=self.validation_scores + next_stage.validation_scores[1:],
            has_converged=self.has_converged and next_stage.has_converged,
        )

    def matrices(self) -> list[Array]:
        """Metric of each component."""
        return self.model.matrices(self.parts)


@dataclass(frozen=True)
class Member:
    """A learned model of an ensemble, or the only one.

    Attributes
    ----------
    projections : list of ndarray of shape (n_features, n_coordinates)
        Matrix of the features, for each component: weights are functions of distances between the
        results, to which ranks (and an encoder's outputs), where there are any, are added.
    rank_weights : list of ndarray of shape (n_features,)
        The factor of each feature's ranks, standardised, for each component; zeros without ranks.
    shares : ndarray of shape (n_components,)
        Share of each component in predictions, a mean over the training rows.
    ridge : float
        Shrinks the slopes of local lines, in standardised features; 0 at degree 0.
    curvature_axis : ndarray of shape (n_features,)
        The axis a along which lines bend, of length one: the square of ``z @ a``, standardised,
        joins the features of the lines, where z are the standardised features. Beyond the training
        rows, it stays what it is at the last of them. Zeros where lines do not bend.
    sample_factors : ndarray of shape (n_samples,)
        Factor of the weight of each training row, the largest 1; ones unless learned.
    loss_curve, validation_scores : list of float
        Loss and validation score before the first step, and after each.
    loo_score, holdout_score : float
        As those of the estimator.
    """

    projections: list[Array]
    rank_weights: list[Array]
    shares: Array
    ridge: float
    curvature_axis: Array
    sample_factors: Array
    loss_curve: list[float]
    validation_scores: list[float]
    loo_score: float
    holdout_score: float

    def __repr__(self) -> str:
        return f"{type(self).__name__}(n_components={len(self.shares)})"


@dataclass(frozen=True)
class LearnedMember:
    """A learned model, from what and from which rows it was learned, and what predicts."""

    design: Design
    split: Split
    learned: Learned
    holdout_score: float
    smoother: Component | Mixture

    @classmethod
    def of(
        cls, design: Design, split: Split, learned: Learned, holdout_score: float
    ) -> LearnedMember:
        """Apply a learned model to the training rows."""
        smoother = design.smoother(learned.model, learned.parts, learned.ridge)
        return cls(design, split, learned, holdout_score, smoother)

    def member(self) -> Member:
        """The description."""
        design, learned, matrices = self.design, self.learned, self.learned.matrices()
        history = learned.losses, learned.validation_scores, learned.score, self.holdout_score
        return Member(
            [design.projection(matrix) for matrix in matrices],
            [design.rank_weights(matrix) for matrix in matrices],
            self._shares(),
            learned.ridge,
            design.axis(),
            self._sample_factors(),
            *history,
        )

    def _shares(self) -> Array:
        """Share of each component, a mean over the training rows."""
        if isinstance(self.smoother, Component):
            return np.ones(1)
        rows = self.design.training_set.deduplicated
        return np.asarray(rows.weights / rows.weights.sum() @ self.smoother.gate.shares(rows.X))

    def _sample_factors(self) -> Array:
        """Factor of the weight of each training row, as given to `fit`."""
        training_set, component = self.design.training_set, self.smoother.components[0]
        factors = np.ones(len(training_set.order))
        if component.log_factors is not None:
            factors[training_set.order[training_set.keys]] = np.exp(component.log_factors)
        return factors

    def feature_factors(self) -> Array:
        """The factor of each feature, in its unit: how much coordinates change with it.

        A root mean square over components by their shares and, where the metric depends on the
        row, over training rows.
        """
        design, learned = self.design, self.learned
        rows, scaler = design.training_set.deduplicated, design.scaler
        share = rows.weights / rows.weights.sum()
        lengths = []
        for matrix, part in zip(learned.matrices(), self.smoother.components, strict=True):
            length = _lengths(design.projection(matrix))
            if part.query_scale is not None:
                scales = part.query_scale.scales(rows.X, rows.X[:, :0], None)
                length = length * np.sqrt(share @ scales**-2.0)
            lengths.append(length)
        found = _root_mean_square(np.stack(lengths), self._shares())
        few = evenly_spaced(rows.n_keys, _MOST_ROWS)
        x = design.standard.coordinates(rows.X[few])
        squares = learned.model.added_squares(learned.parts, x)
        added = np.zeros_like(found)
        roots = np.sqrt(share[few] @ squares / share[few].sum())
        added[scaler.features] = roots / scaler.bandwidth
        return np.hypot(found, added)


@dataclass(frozen=True)
class Ensemble:
    """Learned models over the same training rows, one at least, whose predictions are averaged."""

    members: Sequence[LearnedMember]

    def smoother(self) -> Component | Mixture:
        """The training rows as keys of all members."""
        return mean_of([member.smoother for member in self.members])

    def feature_factors(self) -> Array:
        """Root mean square over members of the factor of each feature, (n_features,)."""
        factors = np.stack([member.feature_factors() for member in self.members])
        return _root_mean_square(factors, np.full(len(factors), 1.0 / len(factors)))

    def holdout_score(self) -> float:
        """R squared of leave-one-out predictions by the members of which a row was no query.

        Of up to 1000 rows; NaN if all were queries of all members.
        """
        if len(self.members) == 1 or self.members[0].design.problem is None:
            return self.members[0].holdout_score
        training_set = self.members[0].design.training_set
        rows = training_set.deduplicated
        exponent = np.frexp(np.abs(rows.y).max(axis=0))[1]  # squares are not to overflow
        targets = np.ldexp(rows.y, -exponent)
        places = evenly_spaced(rows.n_keys, _MOST_ROWS)
        keys = np.flatnonzero(training_set.first_of_equals())[places]
        total, count = np.zeros((len(keys), targets.shape[1])), np.zeros(len(keys))
        for member in self.members:
            out = ~np.isin(places, np.concatenate(member.split[:2]))
            if out.any():
                total[out] += np.ldexp(_left_out(member.smoother, keys[out]), -exponent)
                count[out] += 1
        if not count.any():
            return np.nan
        seen, share = places[count > 0], rows.weights / rows.weights.sum()
        errors = targets[seen] - total[count > 0] / count[count > 0, None]
        variance = share @ (targets - share @ targets) ** 2
        varies = variance > 0.0
        squares = share[seen] @ errors**2 / share[seen].sum()
        return float(1.0 - np.mean(squares[varies] / variance[varies]))


def _left_out(smoother: Component | Mixture, keys: Indices) -> Array:
    """Leave-one-out predictions of some of the keys, as targets."""
    predictions = predict(smoother.leave_one_out().take(keys), Resources())[0]
    scaling, is_mean = smoother.scaling, smoother.degree == 0
    return scaling.restore_means(predictions) if is_mean else scaling.restore(predictions)


def _root_mean_square(rows: Array, shares: Array) -> Array:
    """Root mean square of rows by their shares, whose squares might overflow."""
    unit = np.where((largest := rows.max(axis=0)) > 0.0, largest, 1.0)
    return np.asarray(unit * np.sqrt(shares @ (rows / unit) ** 2))


def _lengths(projection: Array) -> Array:
    """Lengths of the rows of a matrix, whose squares might overflow."""
    largest = np.abs(projection).max(axis=1)
    unit = np.where(largest > 0.0, largest, 1.0)
    return unit * np.linalg.norm(projection / unit[:, None], axis=1)
