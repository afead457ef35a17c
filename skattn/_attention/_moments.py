"""Moments: what every engine returns, and how moments over disjoint sets of keys are merged."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import Flag, auto
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skattn._attention._attention import Products
from skattn._attention._resources import slices

__all__ = ["Moments", "Want", "merge", "row_moments", "row_moments_exactly"]

Array = NDArray[np.float64]

# So many differences are formed at once.
_EXACT_ENTRIES = 50_000
# Squared distances as close as this are ties.
_TIE = 1.0 + 1e-12


class Want(Flag):
    """Sums that are asked of an engine, besides the first powers of the weights.

    ``SUMS`` are always there; ``SQUARES`` are sums of squared weights times values, ``SLOPES``
    derivatives of the sums in the logarithms of the bandwidths.
    """

    SUMS = 0
    SQUARES = auto()
    SLOPES = auto()


@dataclass(frozen=True)
class Moments:
    """Sums over keys of exp(log_weight - log_shift) times columns, one row a query.

    Attributes
    ----------
    log_shift : ndarray of shape (n_queries,)
        Subtracted from the log-weights before exponentiating.
    total : ndarray of shape (n_queries,)
        Sum of weights.
    sums : ndarray of shape (n_queries, n_columns)
        Sums of weights times `Products.columns`, regressors centred at `center`.
    own : ndarray of shape (n_queries,)
        Weight of the excluded keys, as far as it is retained.
    outside : ndarray of shape (n_queries,) of bool
        Queries without a key in the support: total and sums run over the nearest keys, weighted by
        sample weight alone.
    nearest : ndarray of shape (n_queries,)
        Squared distance of the nearest key where `outside`, inf elsewhere.
    center : ndarray of shape (n_queries, n_directions) or None
        None at degree 0.
    squares : ndarray of shape (n_queries, n_outputs) or None
        Sums of squared weights times values.
    slopes : ndarray of shape (n_queries, 1 + n_outputs, n_features) or None
        Derivatives of the total, then of the sums of values, in log-bandwidths, while the shift
        changes by `shift_slopes`.
    shift_slopes : ndarray of shape (n_queries, n_features) or None
        Derivatives of the shift in log-bandwidths; far away, those of differences to it are small.
    error : ndarray of shape (n_queries,) or None
        Bound on the relative error of the sums; None where they are as exact as rounding allows.
    """

    log_shift: Array
    total: Array
    sums: Array
    own: Array
    outside: NDArray[np.bool_]
    nearest: Array
    center: Array | None = None
    squares: Array | None = None
    slopes: Array | None = None
    shift_slopes: Array | None = None
    error: Array | None = None

    def take(self, queries: slice | NDArray[np.intp]) -> Moments:
        """Moments of some of the queries."""
        return Moments(*(None if part is None else part[queries] for part in self.parts()))  # type: ignore[arg-type]

    def write(self, queries: slice | NDArray[np.intp], other: Moments) -> None:
        """Overwrite the rows of some queries."""
        for mine, theirs in zip(self.parts(), other.parts(), strict=True):
            if mine is not None:
                mine[queries] = 0.0 if theirs is None else theirs

    def recentered(self, center: Array) -> Moments:
        """Moments with regressors centred elsewhere, (n_queries, n_directions)."""
        if self.center is None or np.array_equal(self.center, center):
            return self
        move, total = self.center - center, self.total[:, None]
        d = move.shape[1]
        n_outputs = (self.sums.shape[1] - d - d * (d + 1) // 2) // (d + 1)
        first, second = np.triu_indices(d)
        ends = np.cumsum([n_outputs, d, len(first)])
        values, once, twice, cross = np.split(self.sums, ends, axis=1)
        twice = twice + move[:, first] * once[:, second] + once[:, first] * move[:, second]
        twice += move[:, first] * move[:, second] * total
        cross = cross + (move[:, :, None] * values[:, None, :]).reshape(cross.shape)
        sums = np.hstack([values, once + move * total, twice, cross])
        return replace(self, sums=sums, center=center + np.zeros_like(move))

    def with_shift_slopes(self, slopes: Array) -> Moments:
        """Moments with other derivatives of the shift, (n_queries, n_features)."""
        if self.shift_slopes is None or np.array_equal(self.shift_slopes, slopes):
            return self
        assert self.slopes is not None
        sums = np.column_stack([self.total, self.sums])
        moved = self.slopes + sums[:, :, None] * (self.shift_slopes - slopes)[:, None]
        return replace(self, slopes=moved, shift_slopes=slopes)

    def parts(self) -> list[Any]:
        """All arrays, None where one was not asked for."""
        return [getattr(self, field.name) for field in fields(self)]


def merge(one: Moments, other: Moments) -> Moments:
    """Moments over the union of two disjoint sets of keys.

    Associative and commutative up to rounding: both sides are brought to the larger shift, and to
    the same centre. A key in the support beats all keys outside; where both sides are outside, the
    nearer keys are kept, and ties add.

    Parameters
    ----------
    one, other : Moments
        Moments of the same queries.

    Returns
    -------
    Moments
        Joint moments.
    """
    if one.center is not None:
        other = other.recentered(one.center)
    if one.shift_slopes is not None and other.shift_slopes is not None:
        counts_more = (other.outside | (one.log_shift >= other.log_shift)) & ~one.outside
        reference = np.where(counts_more[:, None], one.shift_slopes, other.shift_slopes)
        one, other = one.with_shift_slopes(reference), other.with_shift_slopes(reference)
    left: Array | None = None
    right: Array | None = None
    shift, outside, nearest = one.log_shift, one.outside, one.nearest
    if outside.any() or other.outside.any() or not np.array_equal(shift, other.log_shift):
        left, right, shift = _factors(one, other)
        outside = outside & other.outside
        nearest = np.where(outside, np.minimum(nearest, other.nearest), np.inf)

    def added(a: Array | None, b: Array | None, power: int = 1) -> Any:
        if a is None or b is None:
            return None
        if left is None or right is None:
            return a + b
        shape = (-1,) + (1,) * (a.ndim - 1)
        return (left**power).reshape(shape) * a + (right**power).reshape(shape) * b

    known = [each.error for each in (one, other) if each.error is not None]
    return Moments(
        shift,
        added(one.total, other.total),
        added(one.sums, other.sums),
        added(one.own, other.own),
        outside,
        nearest,
        one.center,
        added(one.squares, other.squares, 2),
        added(one.slopes, other.slopes),
        one.shift_slopes,
        np.max(known, axis=0) if known else None,
    )


def _factors(one: Moments, other: Moments) -> tuple[Array, Array, Array]:
    """Factors that bring both sides to a common shift, and the shift."""
    counts_one = ~one.outside | (other.outside & (one.nearest <= other.nearest * _TIE))
    counts_other = ~other.outside | (one.outside & (other.nearest <= one.nearest * _TIE))
    lowest = np.full_like(one.log_shift, -np.inf)
    first = np.where(counts_one & (one.total > 0.0), one.log_shift, lowest)
    second = np.where(counts_other & (other.total > 0.0), other.log_shift, lowest)
    shift = np.maximum(first, second)
    reference = np.where(np.isneginf(shift), 0.0, shift)
    return np.exp(first - reference), np.exp(second - reference), shift


def row_moments(weights: Array, products: Products) -> tuple[Array, Array | None]:
    """Sums (n_queries, n_columns) under rows of weights that sum to 1, and their centre.

    Regressors are centred at the mean over the block of queries, so that little cancels.
    """
    if products.regressors is None:
        return weights @ products.values, None
    center = weights.mean(axis=0) @ products.regressors
    return weights @ products.columns(center), np.tile(center, (len(weights), 1))


def row_moments_exactly(weights: Array, products: Products) -> tuple[Array, Array | None]:
    """Sums as by `row_moments`, with regressors centred at each query's mean, from differences."""
    if products.regressors is None:
        return weights @ products.values, None
    step = max(1, _EXACT_ENTRIES // products.regressors.size)
    parts = [_about_means(weights[rows], products) for rows in slices(len(weights), step)]
    sums, centers = zip(*parts, strict=True)
    return np.vstack(sums), np.vstack(centers)


def _about_means(weights: Array, products: Products) -> tuple[Array, Array]:
    assert products.regressors is not None
    present = np.flatnonzero(weights.any(axis=0))
    weights, values = weights[:, present], products.values[present]
    regressors = products.regressors[present]
    near = weights @ regressors
    away = regressors - near[:, None]
    center = near + (weights[:, None] @ away)[:, 0]
    level = weights @ values
    np.subtract(regressors, center[:, None], out=away)
    if len(weights) > 1:  # what is no key of a query must not overflow
        away[weights == 0.0] = 0.0
    weighted = (weights[:, :, None] * away).transpose(0, 2, 1)
    first, second = np.triu_indices(regressors.shape[1])
    twice = (weighted @ away)[:, first, second]
    cross = (weighted @ (values - level[:, None])).reshape(len(weights), -1)
    return np.hstack([level, np.zeros_like(center), twice, cross]), center
