"""Local lines: weighted least squares around each query.

With attention weights w_i of a query q, in coordinates of order one,

    center = sum_i w_i k_i,   level = sum_i w_i v_i,
    C = sum_i w_i (k_i - center)(k_i - center)',   c = sum_i w_i (k_i - center)(v_i - level)',
    slope = C^-1 c,   arm = C^-1 (q - center),
    f(q) = level + (q - center)' slope = sum_i w_i (1 + (k_i - center)' arm) v_i,

so that the factors 1 + (k_i - center)' arm turn attention weights into rows of the smoother matrix.

Eigenvalues x of C are inverted as x**3 / (x**4 + FLAT**4): as 1 / x, to 1e-8 from a hundred times
FLAT on, but tending to 0 with x, so that a line is flat in a direction in which its keys do not
differ. Rounding is multiplied by 1 / FLAT at most, where a tiny ridge would multiply it by the
inverse of that. With a ridge that is meant, C + ridge takes the place of C.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from skattn.attention import Line, Rows, slices

Array = NDArray[np.float64]

# Variances of the keys, in units of the squared bandwidth or of the largest of them if that is
# more, below which a direction counts as one in which they do not differ: the line is flat in it.
FLAT = 1e-8
# Errors of a prediction, values being of order one, and of a slope, relative to its size, from
# which a line is computed from differences.
_TOLERANCE, _SLOPE_TOLERANCE = 1e-12, 1e-9
# So many differences at once.
_EXACT_ENTRIES = 50_000


@dataclass(frozen=True)
class Lines:
    """Local lines of a block of queries.

    Attributes
    ----------
    center : ndarray of shape (n_rows, n_directions)
        Weighted mean of the keys.
    level : ndarray of shape (n_rows, n_outputs)
        Weighted mean of the values.
    slope : ndarray of shape (n_rows, n_directions, n_outputs)
    arm : ndarray of shape (n_rows, n_directions)
    mean : ndarray of shape (n_rows, n_outputs)
        f(q), the lines at the queries they are fitted for.
    reach : ndarray of shape (n_rows,)
        (q - center)' arm: how far the query is from its keys.
    variances : ndarray of shape (n_rows, n_directions)
        Eigenvalues of C; where lines are flat, 0, or inf with a ridge.
    axes : ndarray of shape (n_rows, n_directions, n_directions)
        Its eigenvectors.
    cross : ndarray of shape (n_rows, n_directions, n_outputs)
        c.
    ridge : float
    """

    center: Array
    level: Array
    slope: Array
    arm: Array
    mean: Array
    reach: Array
    variances: Array
    axes: Array
    cross: Array
    ridge: float

    def smoother(self, weights: Array, keys: Array) -> Array:
        """Rows of the smoother matrix: attention weights (n_rows, n_keys) times their factors."""
        rows = weights * self.factors(keys)
        largest = np.linalg.norm(self.arm, axis=1) * np.abs(keys).max(initial=0.0)
        for row in np.flatnonzero(largest * np.finfo(float).eps > _TOLERANCE):
            rows[row] = weights[row] * (1.0 + (keys - self.center[row]) @ self.arm[row])
        rows -= weights * (rows.sum(axis=1, keepdims=True) - 1.0)
        return rows

    def factors(self, keys: Array) -> Array:
        """1 + (k - center)' arm of all keys, (n_rows, n_keys)."""
        return self.arm @ keys.T + (1.0 - np.einsum("qj,qj->q", self.arm, self.center))[:, None]

    def without(
        self, query: int, distance: Array, keys: Array, values: Array, shares: Array
    ) -> tuple[Array, Array]:
        """Predictions of one query without some of the keys, each in turn.

        Without a share p of the weight, at u from the center and v from the level,

            C becomes (C - q u u') / (1 - p),   c becomes (c - q u v') / (1 - p),   q = p / (1 - p),

        and the inverse of C, plus the ridge, follows by the formula of Sherman and Morrison.

        Parameters
        ----------
        query : int
        distance : ndarray of shape (n_directions,)
            Query less center.
        keys : ndarray of shape (n_left_out, n_directions)
        values : ndarray of shape (n_left_out, n_outputs)
        shares : ndarray of shape (n_left_out,)
            Below 1.

        Returns
        -------
        predictions : ndarray of shape (n_left_out, n_outputs)
        leverages : ndarray of shape (n_left_out,)
            What share of the local fit was left out.
        """
        axes, odds = self.axes[query], (shares / (1.0 - shares))[:, None]
        away, apart = (keys - self.center[query]) @ axes, values - self.level[query]
        inverse = inverse_variances(self.variances[query], self.ridge * (1.0 - shares)[:, None])
        cross = (axes.T @ self.cross[query]) - (odds * away)[:, :, None] * apart[:, None, :]
        lengths = np.einsum("kj,kj,kj->k", away, inverse, away)
        left = 1.0 - odds[:, 0] * lengths
        slope = inverse[:, :, None] * cross
        pulled = (
            np.einsum("kj,kjp->kp", away, slope) * odds / np.where(left > 0.0, left, 1.0)[:, None]
        )
        slope += (inverse * away)[:, :, None] * pulled[:, None, :]
        reach = distance @ axes + odds * away
        predictions = self.level[query] - odds * apart + np.einsum("kj,kjp->kp", reach, slope)
        return predictions, np.where(left > 0.0, shares * (1.0 + lengths), np.inf)

    def values(self, keys: Array, output: int) -> Array:
        """The lines of one output at all keys, (n_rows, n_keys)."""
        slope = self.slope[:, :, output]
        constant = self.level[:, output] - np.einsum("qj,qj->q", slope, self.center)
        return slope @ keys.T + constant[:, None]


def fit_lines(block: Rows, line: Line, values: Array) -> Lines:
    """Fit local lines.

    Parameters
    ----------
    block : Rows
        The attention weights of a block of queries. Those outside the support get flat lines.
    line : Line
        Coordinates of all queries and keys.
    values : ndarray of shape (n_keys, n_outputs)
        Of order one.

    Returns
    -------
    Lines
    """
    queries, weights = line.queries[block.queries], block.weights
    pivot = weights.mean(axis=0) @ line.keys
    shifted = line.keys - pivot
    moments = _Moments.of(weights, shifted, values)
    fitted, narrowest = _solve(moments, queries - pivot, line.ridge, flat=block.outside)
    spoilt = _spoilt(moments, fitted, narrowest)
    if spoilt.size:
        exact = _Moments.exactly(weights[spoilt], shifted, values)
        redone, _ = _solve(exact, (queries - pivot)[spoilt], line.ridge, flat=block.outside[spoilt])
        for name in (
            "center",
            "level",
            "slope",
            "arm",
            "mean",
            "reach",
            "variances",
            "axes",
            "cross",
        ):
            getattr(fitted, name)[spoilt] = getattr(redone, name)
    return replace(fitted, center=fitted.center + pivot)


@dataclass(frozen=True)
class _Moments:
    """Weighted moments: of the keys (first, covariance, mean square), the values, and both."""

    center: Array
    covariance: Array
    square: Array
    level: Array
    cross: Array

    @classmethod
    def of(cls, weights: Array, keys: Array, values: Array) -> _Moments:
        """Moments of each row of weights, from one matrix product."""
        n_directions, n_outputs = keys.shape[1], values.shape[1]
        first, second = np.triu_indices(n_directions)
        columns = [
            keys,
            values,
            keys[:, first] * keys[:, second],
            (keys[:, :, None] * values[:, None, :]).reshape(len(keys), n_directions * n_outputs),
        ]
        product = weights @ np.hstack(columns)
        splits = np.cumsum([n_directions, n_outputs, len(first)])
        center, level, pairs, cross = np.split(product, splits, axis=1)
        raw = np.empty((len(weights), n_directions, n_directions))
        raw[:, first, second] = raw[:, second, first] = pairs
        return cls(
            center,
            raw - center[:, :, None] * center[:, None, :],
            np.einsum("qjj->q", raw),
            level,
            cross.reshape(len(weights), n_directions, n_outputs)
            - center[:, :, None] * level[:, None, :],
        )

    @classmethod
    def exactly(cls, weights: Array, keys: Array, values: Array) -> _Moments:
        """Moments of each row of weights, from differences to its means."""
        step = max(1, _EXACT_ENTRIES // keys.size)
        parts = [cls._of_rows(weights[rows], keys, values) for rows in slices(len(weights), step)]
        return cls(*(np.concatenate(moments) for moments in zip(*parts, strict=True)))

    @staticmethod
    def _of_rows(weights: Array, keys: Array, values: Array) -> tuple[Array, ...]:
        present = np.flatnonzero(weights.any(axis=0))
        weights, keys, values = weights[:, present], keys[present], values[present]
        near = weights @ keys
        away = keys - near[:, None]
        center, level = near + (weights[:, None] @ away)[:, 0], weights @ values
        np.subtract(keys, center[:, None], out=away)
        if len(weights) > 1:  # what is no key of a row must not overflow
            away[weights == 0.0] = 0.0
        weighted = (weights[:, :, None] * away).transpose(0, 2, 1)
        cross = weighted @ (values - level[:, None])
        return center, weighted @ away, np.zeros(len(weights)), level, cross


def _solve(
    moments: _Moments, queries: Array, ridge: float, flat: NDArray[np.bool_]
) -> tuple[Lines, Array]:
    """The lines, and the smallest eigenvalues of what is inverted."""
    distance = queries - moments.center
    variances, axes = np.linalg.eigh(moments.covariance)
    variances = np.maximum(variances, 0.0)
    narrowest = variances[:, 0] + ridge
    variances[flat] = np.inf if ridge > 0.0 else 0.0  # whose inverse is zero, as of no direction
    inverse = inverse_variances(variances, ridge)
    precision = (axes * inverse[:, None, :]) @ axes.transpose(0, 2, 1)
    arm = np.einsum("qij,qj->qi", precision, distance)
    reach = np.einsum("qj,qj->q", distance, arm)
    slope = precision @ moments.cross
    mean = moments.level + np.einsum("qj,qjp->qp", arm, moments.cross)
    center, level, cross = (part.copy() for part in (moments.center, moments.level, moments.cross))
    return Lines(center, level, slope, arm, mean, reach, variances, axes, cross, ridge), narrowest


def inverse_variances(variances: Array, ridge: float | Array = 0.0) -> Array:
    """Of eigenvalues of C + ridge; those that are as good as zero, without a ridge, by zero."""
    if np.any(ridge > 0.0):
        return np.asarray(1.0 / (variances + ridge))
    unit = np.maximum(variances[..., -1:], 1.0)
    relative = variances / unit + np.zeros_like(ridge)
    return relative**3 / (relative**4 + FLAT**4) / unit


def _spoilt(moments: _Moments, lines: Lines, narrowest: Array) -> NDArray[np.intp]:
    """Rows in which what cancels in the covariance shows in the prediction or the slope."""
    rounding = 4.0 * np.finfo(float).eps * moments.square
    arm = np.linalg.norm(lines.arm, axis=1)
    steepest = np.abs(lines.slope).max(axis=(1, 2), initial=0.0)
    error = rounding * arm * steepest + np.sqrt(np.finfo(float).eps * rounding) * arm
    return np.flatnonzero((error > _TOLERANCE) | (rounding > _SLOPE_TOLERANCE * narrowest))
