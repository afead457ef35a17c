"""What was learned from some of the rows as queries, and what it says about the rows."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from skattn._attention import Resources
from skattn._geometry.feature_maps import EncodedEmbedding
from skattn._estimators._design import Design
from skattn._geometry import evenly_spaced
from skattn.modifiers import ConstantGates, Modification
from skattn._smoother import EqualGates, Keys, smooth

# Rows at most that an out-of-bag score is of.
_MOST_ROWS = 1000


class Division(NamedTuple):
    """What rows are for: places in the table of merged rows.

    What is left out together, such as a group, is divided as one.
    """

    queries: np.ndarray
    validation: np.ndarray
    honest: np.ndarray

    @classmethod
    def of(cls, own, most, held, rng, *, drawn=None):
        """Divide the rows that `own` tells how to leave out.

        Up to `most` rows are queries, evenly spaced, so that they do not depend on the order of the
        rows; or the share `drawn` of them, at most so many, drawn by `rng`. The share `held` of the
        queries is for validation. Of the other rows, up to 1000 are for the honest score.
        """
        units = np.unique(own.start, return_inverse=True)[1]
        n_rows, n_units = len(units), units.max() + 1
        most_units = n_units if n_rows <= most else max(n_units * most // n_rows, 1)
        if drawn is None:
            chosen = evenly_spaced(n_units, most_units)
        else:
            size = min(max(int(np.ceil(drawn * n_units)), min(2, n_units)), most_units)
            chosen = rng.permutation(n_units)[:size]
        watched = chosen[:0]
        if held > 0.0:
            n_held = min(int(np.ceil(held * len(chosen))), len(chosen) - 1)
            watched = rng.permutation(chosen)[:n_held]
        others = np.flatnonzero(~np.isin(units, chosen))
        queries = np.flatnonzero(np.isin(units, np.setdiff1d(chosen, watched)))
        return cls(
            queries,
            np.flatnonzero(np.isin(units, watched)),
            others[evenly_spaced(len(others), _MOST_ROWS)],
        )


@dataclass(frozen=True)
class Member:
    """A learned metric, or what depends on the rows with it.

    Attributes
    ----------
    design : Design
    rows : Division
    learned : learning.Learned
        The metric alone, from which training may start again.
    modification : Modification
    ridge : float
    losses, validation_scores : list of float
    has_converged : bool
    score, honest_score : float or None
    """

    design: Design
    rows: Division
    learned: Any
    modification: Modification
    ridge: float
    losses: list
    validation_scores: list
    has_converged: bool
    score: float
    honest_score: float | None

    @classmethod
    def plain(cls, design, rows, learned, honest_score):
        """A metric alone."""
        modification = Modification((learned.matrix,))
        told = learned.losses, learned.validation_scores, learned.has_converged, learned.score
        return cls(design, rows, learned, modification, learned.ridge, *told, honest_score)

    @classmethod
    def modified(cls, design, rows, learned, modified):
        """A metric and what depends on the rows."""
        told = modified.losses, modified.validation_scores, modified.has_converged, modified.score
        found = modified.modification, modified.ridge
        return cls(design, rows, learned, *found, *told, modified.honest_score)

    @cached_property
    def keys(self):
        """The training rows as keys."""
        return self.design.keys_of(self.modification, self.ridge)

    def projection(self):
        """What rows are multiplied with; a list of those of all heads, where there are several."""
        found = [self.design.projection(matrix) for matrix in self.modification.matrices]
        return found[0] if len(found) == 1 else found

    def rank_factors(self):
        """The factors of ranks; a list, where there are several heads."""
        found = [self.design.rank_factors(matrix) for matrix in self.modification.matrices]
        return found[0] if len(found) == 1 else found

    def factors(self):
        """The factor of each feature, in its unit: how much coordinates change with it.

        A mean over heads by their shares at the training rows; with an encoder or query factors,
        over training rows. Means are those of squares, and their roots.
        """
        projections = [self.design.projection(m) for m in self.modification.matrices]
        lengths, keys = np.stack([_lengths(p) for p in projections]), self.keys
        merged = self.design.table.merged()
        share = merged.weights / merged.weights.sum()
        if keys.gates is not None:
            return _root_mean_square(lengths, share @ keys.gates.shares(merged.X))
        if keys.scales is not None:
            return lengths[0] * np.sqrt(share @ keys.scales.factors(merged.X) ** 2)
        if not isinstance(keys.frame, EncodedEmbedding):
            return lengths[0]
        standard, few = keys.frame.standard, evenly_spaced(merged.n_keys, _MOST_ROWS)
        squares = (keys.frame.encoder.jacobian(standard.of(merged.X[few])) ** 2).sum(axis=2)
        encoded = np.zeros_like(lengths[0])
        roots = np.sqrt(share[few] @ squares / share[few].sum())
        encoded[standard.frame.features] = roots / standard.frame.bandwidth
        return np.hypot(lengths[0], encoded)

    def axis(self):
        """Along which lines bend."""
        return self.design.axis()

    def sample_factors(self):
        """What multiplies the weight of each training row, as given to `fit`."""
        table, log_factors = self.design.table, self.modification.log_factors
        factors = np.ones(len(table.rows))
        if log_factors is None:  # training was stopped before
            return factors
        factors[table.rows[: table.n_keys]] = np.exp(log_factors[table.places_when_merged()])
        return factors

    def mixture_weight(self):
        """The share of the learned weights in a mixture."""
        gates = self.modification.gates
        return float(gates.constant[0]) if isinstance(gates, ConstantGates) else 1.0


def is_one_metric(keys):
    """Whether weights are those of one linear metric, the same for all rows."""
    depends = keys.heads or keys.scales is not None or keys.log_factors is not None
    return not depends and not isinstance(keys.frame, EncodedEmbedding)


def mixed_keys(members):
    """The training rows as keys of all members, of which predictions are means."""
    keys = [member.keys for member in members]
    return keys[0] if len(keys) == 1 else Keys.mixed(keys, EqualGates(len(keys)))


def out_of_bag(members):
    """R squared of leave-one-out predictions by the members of which a row was no query.

    Of up to 1000 rows; None if all were queries of all members.
    """
    table = members[0].design.table
    merged = table.merged()
    exponent = np.frexp(np.abs(merged.y).max(axis=0))[1]  # squares are not to overflow
    targets = np.ldexp(merged.y, -exponent)
    places = evenly_spaced(merged.n_keys, _MOST_ROWS)
    rows = np.flatnonzero(table.first_of_equals())[places]
    total, count = np.zeros((len(rows), table.y.shape[1])), np.zeros(len(rows))
    for member in members:
        out = ~np.isin(places, np.concatenate(member.rows[:2]))
        if out.any():
            keys = member.keys
            request = keys.leave_one_out().take(rows[out])
            mean = smooth(request, Resources()).mean
            mean = keys.unit.restore(mean, is_mean=keys.directions is None)
            total[out] += np.ldexp(mean, -exponent)
            count[out] += 1
    if not count.any():
        return None
    seen, weights = count > 0, merged.weights / merged.weights.sum()
    share = merged.weights[places[seen]] / merged.weights[places[seen]].sum()
    variance = weights @ (targets - weights @ targets) ** 2
    errors = targets[places[seen]] - total[seen] / count[seen, None]
    varies = variance > 0.0
    return float(1.0 - np.mean((share @ errors**2)[varies] / variance[varies]))


def mean_factors(members):
    """Root mean squares over members of the factor of each feature, (n_features,)."""
    factors = np.stack([member.factors() for member in members])
    return _root_mean_square(factors, np.full(len(members), 1.0 / len(members)))


def _root_mean_square(rows, shares):
    """Of some rows, whose squares might overflow, by their shares."""
    unit = np.where((largest := rows.max(axis=0)) > 0.0, largest, 1.0)
    return unit * np.sqrt(shares @ (rows / unit) ** 2)


def _lengths(projection):
    """Lengths of the rows of a matrix, whose squares might overflow."""
    largest = np.abs(projection).max(axis=1)
    unit = np.where(largest > 0.0, largest, 1.0)
    return unit * np.linalg.norm(projection / unit[:, None], axis=1)
