"""Sums over keys, and how sums over disjoint sets of keys are joined."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.floating]


@dataclass(frozen=True)
class Sums:
    """Sums over keys of exp(log_weight - log_shift), one row a query.

    Attributes
    ----------
    log_shift : ndarray of shape (n_queries,)
        Subtracted from the log-weights before exponentiating; -inf where no key counted.
    numerator : ndarray of shape (n_queries, n_outputs)
        Sum of weights times values.
    denominator : ndarray of shape (n_queries,)
        Sum of weights.
    squares : ndarray of shape (n_queries,)
        Sum over rows of squared weights; zero where it was not asked for.
    own : ndarray of shape (n_queries,)
        Weight of the query's own keys; zero where it has none.
    """

    log_shift: Array
    numerator: Array
    denominator: Array
    squares: Array
    own: Array

    @classmethod
    def empty(cls, n_queries: int, n_outputs: int) -> Sums:
        """Sums over no key."""
        numerator = np.zeros((n_queries, n_outputs))
        return cls(np.full(n_queries, -np.inf), numerator, *np.zeros((3, n_queries)))

    def write(self, queries: slice | NDArray[np.intp], other: Sums) -> None:
        """Overwrite the rows of some queries."""
        for name in ("log_shift", "numerator", "denominator", "squares", "own"):
            getattr(self, name)[queries] = getattr(other, name)


def merge(one: Sums, other: Sums) -> Sums:
    """Sums over the union of two disjoint sets of keys.

    Associative and commutative up to rounding: both sides are brought to the larger shift.

    Parameters
    ----------
    one, other : Sums
        Sums of the same queries.

    Returns
    -------
    Sums
        The joint sums.
    """
    shift = np.maximum(one.log_shift, other.log_shift)
    reference = np.where(np.isneginf(shift), 0.0, shift)
    left, right = np.exp(one.log_shift - reference), np.exp(other.log_shift - reference)
    return Sums(
        shift,
        left[:, None] * one.numerator + right[:, None] * other.numerator,
        left * one.denominator + right * other.denominator,
        left**2 * one.squares + right**2 * other.squares,
        left * one.own + right * other.own,
    )
