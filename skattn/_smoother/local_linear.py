"""Local lines: weighted least squares around each query.

With attention weights w_i of a query q, regressors k_i and values v_i,

    k̄ = sum_i w_i k_i,   v̄ = sum_i w_i v_i,
    C = sum_i w_i (k_i - k̄)(k_i - k̄)',   c = sum_i w_i (k_i - k̄)(v_i - v̄)',
    slope = C^-1 c,   dual = C^-1 (q - k̄),
    f(q) = v̄ + (q - k̄)' slope = sum_i w_i (1 + (k_i - k̄)' dual) v_i,

so that the factors 1 + (k_i - k̄)' dual turn attention weights into rows of the smoother matrix.

Without a ridge, eigenvalues x of C are inverted as x**3 / (x**4 + FLAT**4): as 1 / x, to 1e-8
from a hundred times FLAT on, but tending to 0 with x, so that a line is flat in a direction in
which its keys do not differ. Rounding is multiplied by 1 / FLAT at most, where a tiny ridge would
multiply it by the inverse of that. With a ridge that is meant, C + ridge takes the place of C.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from skattn._attention import Moments
from skattn._smoother.local_fit import Fit

__all__ = ["FLAT", "LineFit", "LocalLinear", "central_moments", "inverse_variances", "pair_places"]

Array = NDArray[np.float64]
ArrayOrTensor = TypeVar("ArrayOrTensor", Array, Any)

# Variances of the keys, in units of the squared bandwidth or of the largest of them if that is
# more, below which a direction counts as one in which they do not differ: the line is flat in it.
FLAT = 1e-8
# Errors of a prediction, values being of order one, and of a slope, relative to its size, from
# which a line is computed from differences.
_TOLERANCE, _SLOPE_TOLERANCE = 1e-12, 1e-9


@dataclass(frozen=True)
class LineFit(Fit):
    """Local lines of some queries.

    Attributes
    ----------
    center : ndarray of shape (n_queries, n_directions)
        Weighted mean of the keys.
    mean_value : ndarray of shape (n_queries, n_outputs)
        Weighted mean of the values.
    slope : ndarray of shape (n_queries, n_directions, n_outputs)
        Slopes of the lines.
    dual : ndarray of shape (n_queries, n_directions)
        C^-1 (q - k̄).
    variances : ndarray of shape (n_queries, n_directions)
        Eigenvalues of C; where lines are flat, 0, or inf with a ridge.
    axes : ndarray of shape (n_queries, n_directions, n_directions)
        Eigenvectors of C.
    cross_covariance : ndarray of shape (n_queries, n_directions, n_outputs)
        c.
    is_spoilt : ndarray of shape (n_queries,) of bool
        Queries in which what cancels in C shows in the prediction or the slope.
    ridge : float
        Added to C.
    """

    center: Array
    mean_value: Array
    slope: Array
    dual: Array
    variances: Array
    axes: Array
    cross_covariance: Array
    is_spoilt: NDArray[np.bool_]
    ridge: float

    @property
    def ill_conditioned(self) -> NDArray[np.bool_]:
        """Queries to be computed again from differences."""
        return self.is_spoilt

    def factors(self, keys: Array) -> Array:
        """Factors 1 + (k - k̄)' dual of all keys, (n_queries, n_keys)."""
        constant = 1.0 - np.einsum("qj,qj->q", self.dual, self.center)
        return self.dual @ keys.T + constant[:, None]

    def lines(self, keys: Array, output: int) -> Array:
        """Values of the lines of one output at all keys, (n_queries, n_keys)."""
        slope = self.slope[:, :, output]
        constant = self.mean_value[:, output] - np.einsum("qj,qj->q", slope, self.center)
        return slope @ keys.T + constant[:, None]

    def without(
        self, query: int, distance: Array, keys: Array, values: Array, shares: Array
    ) -> tuple[Array, Array]:
        """Predictions of one query without some of the keys, each in turn.

        Without a share p of the weight, at u from k̄ and v from v̄,

            C becomes (C - q u u') / (1 - p),   c becomes (c - q u v') / (1 - p),   q = p / (1 - p),

        and the inverse of C, plus the ridge, follows by the formula of Sherman and Morrison.

        Parameters
        ----------
        query : int
            Position of the query.
        distance : ndarray of shape (n_directions,)
            Query less k̄.
        keys : ndarray of shape (n_left_out, n_directions)
            Regressors of the keys that are left out.
        values : ndarray of shape (n_left_out, n_outputs)
            Their values.
        shares : ndarray of shape (n_left_out,)
            Their attention weights, below 1.

        Returns
        -------
        predictions : ndarray of shape (n_left_out, n_outputs)
            Predictions without each key.
        leverages : ndarray of shape (n_left_out,)
            The share of the local fit that was left out.
        """
        axes, odds = self.axes[query], (shares / (1.0 - shares))[:, None]
        away, apart = (keys - self.center[query]) @ axes, values - self.mean_value[query]
        inverse = inverse_variances(self.variances[query], self.ridge * (1.0 - shares)[:, None])
        cross = axes.T @ self.cross_covariance[query]
        cross = cross - (odds * away)[:, :, None] * apart[:, None, :]
        lengths = np.einsum("kj,kj,kj->k", away, inverse, away)
        left = 1.0 - odds[:, 0] * lengths
        slope = inverse[:, :, None] * cross
        gain = odds / np.where(left > 0.0, left, 1.0)[:, None]
        corrected = np.einsum("kj,kjp->kp", away, slope) * gain
        slope += (inverse * away)[:, :, None] * corrected[:, None, :]
        moved = distance @ axes + odds * away
        predictions = self.mean_value[query] - odds * apart
        predictions += np.einsum("kj,kjp->kp", moved, slope)
        return predictions, np.where(left > 0.0, shares * (1.0 + lengths), np.inf)


@dataclass(frozen=True)
class LocalLinear:
    """The line that fits the values around each query best.

    Attributes
    ----------
    ridge : float
        Added to the variances of the keys in every direction; it shrinks slopes.
    """

    ridge: float = 0.0
    degree: int = 1

    def read(self, moments: Moments, queries: Array | None) -> LineFit:
        """Lines at the queries; flat outside every support."""
        assert queries is not None
        assert moments.center is not None
        sums = moments.sums / moments.total[:, None]
        d = queries.shape[1]
        mean_value, first, covariance, cross = central_moments(sums, d, pair_places(d))
        square = np.einsum("qjj->q", covariance) + np.einsum("qj,qj->q", first, first)
        distance = queries - moments.center - first
        variances, axes = np.linalg.eigh(covariance)
        variances = np.maximum(variances, 0.0)
        narrowest = variances[:, 0] + self.ridge
        # whose inverse is zero, as that of no direction
        variances[moments.outside] = np.inf if self.ridge > 0.0 else 0.0
        inverse = inverse_variances(variances, self.ridge)
        precision = (axes * inverse[:, None, :]) @ axes.transpose(0, 2, 1)
        dual = np.einsum("qij,qj->qi", precision, distance)
        slope = precision @ cross
        prediction = mean_value + np.einsum("qj,qjp->qp", dual, cross)
        leverage = moments.own / moments.total * (1.0 + np.einsum("qj,qj->q", distance, dual))
        spoilt = _spoilt(square, dual, slope, narrowest)
        known = moments.center + first, mean_value, slope, dual, variances, axes, cross
        return LineFit(prediction, leverage, *known, spoilt, self.ridge)

    def smoother_rows(self, fit: LineFit, weights: Array, regressors: Array | None) -> Array:
        """Attention weights times their factors; rows sum to 1."""
        assert regressors is not None
        rows = weights * fit.factors(regressors)
        largest = np.linalg.norm(fit.dual, axis=1) * np.abs(regressors).max(initial=0.0)
        for row in np.flatnonzero(largest * np.finfo(float).eps > _TOLERANCE):
            away = regressors - fit.center[row]
            rows[row] = weights[row] * (1.0 + away @ fit.dual[row])
        rows -= weights * (rows.sum(axis=1, keepdims=True) - 1.0)
        return rows


@functools.cache
def pair_places(n_directions: int) -> NDArray[np.intp]:
    """Columns of the products of each pair of regressors among those of all pairs, flat."""
    rows, columns = np.triu_indices(n_directions)
    places = np.empty((n_directions, n_directions), dtype=np.intp)
    places[rows, columns] = places[columns, rows] = np.arange(len(rows))
    return places.ravel()


def central_moments(
    sums: ArrayOrTensor, n_directions: int, places: Any
) -> tuple[ArrayOrTensor, ArrayOrTensor, ArrayOrTensor, ArrayOrTensor]:
    """Means and central moments from normalised sums of the products of degree 1.

    Parameters
    ----------
    sums : ndarray or Tensor of shape (n_queries, n_columns)
        Weighted means of v, r, r r' and r v', regressors r centred anywhere.
    n_directions : int
        Number of regressors.
    places : ndarray or Tensor of shape (n_directions**2,)
        `pair_places` of them.

    Returns
    -------
    mean_value : of shape (n_queries, n_outputs)
    first : of shape (n_queries, n_directions)
        Mean of the regressors.
    covariance : of shape (n_queries, n_directions, n_directions)
    cross_covariance : of shape (n_queries, n_directions, n_outputs)
    """
    d = n_directions
    n_pairs = d * (d + 1) // 2
    n_outputs = (sums.shape[1] - d - n_pairs) // (d + 1)
    mean_value, first = sums[:, :n_outputs], sums[:, n_outputs : n_outputs + d]
    pairs = sums[:, n_outputs + d : n_outputs + d + n_pairs]
    cross = sums[:, n_outputs + d + n_pairs :].reshape(len(sums), d, n_outputs)
    covariance = pairs[:, places].reshape(len(sums), d, d)
    covariance -= first[:, :, None] * first[:, None, :]
    return mean_value, first, covariance, cross - first[:, :, None] * mean_value[:, None, :]


def inverse_variances(variances: Array, ridge: float | Array = 0.0) -> Array:
    """Inverse eigenvalues of C + ridge.

    Without a ridge, eigenvalues below `FLAT` are treated as zero and get inverse 0, smoothly.
    """
    if np.any(ridge > 0.0):
        return np.asarray(1.0 / (variances + ridge))
    unit = np.maximum(variances[..., -1:], 1.0)
    relative = variances / unit + np.zeros_like(ridge)
    return relative**3 / (relative**4 + FLAT**4) / unit


def _spoilt(square: Array, dual: Array, slope: Array, narrowest: Array) -> NDArray[np.bool_]:
    """Queries in which what cancels in the covariance shows in the prediction or the slope."""
    rounding = 4.0 * np.finfo(float).eps * square
    length = np.linalg.norm(dual, axis=1)
    steepest = np.abs(slope).max(axis=(1, 2), initial=0.0)
    error = rounding * length * steepest + np.sqrt(np.finfo(float).eps * rounding) * length
    spoilt: NDArray[np.bool_] = (error > _TOLERANCE) | (rounding > _SLOPE_TOLERANCE * narrowest)
    return spoilt
