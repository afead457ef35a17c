"""Quantiles and prediction intervals of attention regressors."""

from __future__ import annotations

from numbers import Real

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skattn._geometry.scaling import key_spread
from skattn._geometry.transforms import Scaler
from skattn._smoother import Component, predict
from skattn._uncertainty import (
    interval_rank,
    jackknife_plus,
    residual_scales,
    weighted_quantiles,
)


class UncertaintyMixin:
    """Uncertainty of new targets, read off attention weights and leave-one-out residuals."""

    def predict_quantiles(self, X, quantiles):
        """Predict quantiles of the targets at each query.

        At degree 0 the quantiles of the training targets, weighted by attention; at degree 1 the
        prediction plus the quantiles of the leave-one-out residuals, weighted by the kernel.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or None
            The queries; None stands for the training rows, each without itself.
        quantiles : float or array-like of shape (n_quantiles,)
            Levels, from 0 to 1.

        Returns
        -------
        y : ndarray of shape (n_queries, n_quantiles) or (n_queries, n_quantiles, n_outputs)
            The inverse of the weighted distribution function: the smallest target (residual) at
            which the weights of it and all smaller ones sum to the level. Nothing is interpolated,
            so that quantiles of monotonously transformed targets are the transformed quantiles
            (at degree 0), and they grow with the level.

        Raises
        ------
        ValueError
            If a level is not a number from 0 to 1, or, at degree 1, leave-one-out leaves nothing.

        Notes
        -----
        Time O(n_queries * n_samples * (n_features + n_quantiles)). The weights are those of the
        kernel, which smooth over a bandwidth: the quantiles include how much the mean varies
        there.

        Examples
        --------
        >>> from skattn import NadarayaWatsonRegressor
        >>> X, y = [[-1.0], [0.0], [1.0], [2.0]], [3.0, 1.0, 4.0, 2.0]
        >>> NadarayaWatsonRegressor(1.0).fit(X, y).predict_quantiles([[0.0]], [0.1, 0.5])
        array([[1., 3.]])
        """
        levels = np.atleast_1d(np.asarray(quantiles))
        is_real = levels.ndim == 1 and levels.dtype.kind in "iuf"
        if not (is_real and ((levels >= 0.0) & (levels <= 1.0)).all()):
            raise ValueError(
                f"quantiles must be one number from 0 to 1, or an array; got {quantiles!r}."
            )
        regression, _, dtype = self._regression(X)
        resources, training_set = self._resources(), self._smoother.training_set
        if self._smoother.degree == 0:
            targets = training_set.y[training_set.keys]
            found, outside = weighted_quantiles(regression, resources, targets, levels)
        else:
            residuals = self._left_out().residuals
            found, outside = weighted_quantiles(regression, resources, residuals, levels)
            found = self._restored(predict(regression, resources)[0][:, None] + found)
        return self._finished(found, outside, "quantiles", X, dtype)

    def predict_interval(self, X, coverage=0.9, *, local=False):
        """Predict intervals that hold a new target with a given probability.

        Jackknife+ intervals [1]_ from the leave-one-out residuals of the training rows, with the
        bandwidth held: the errors the estimator made on rows it had not seen, around what it would
        predict without each of them.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            The queries.
        coverage : float, default=0.9
            The share of new targets that fall into their intervals, between 0 and 1. It holds on
            average over queries drawn as the training rows.
        local : bool, default=False
            Whether the width follows the size of the residuals around the query, for targets whose
            noise is not the same everywhere. The scale at a query is an attention-weighted mean
            of absolute residuals, at a multiple of the bandwidth of its own, which predicts the
            left-out ones best; it is shrunk as if one more neighbour had the overall mean. With a
            learned metric, the bandwidths of the features serve.

        Returns
        -------
        interval : ndarray of shape (n_queries, 2) or (n_queries, 2, n_outputs)
            Lower and upper bounds.

        Raises
        ------
        ValueError
            If `coverage` is out of range, or there are too few training rows for it: 9 are needed
            for 0.9, 99 for 0.99.

        Notes
        -----
        Time O((n_queries + n_samples) * n_samples * n_features); at degree 1 with `groups`, whose
        rows are left out together, as many times as there are groups. Up to 2000 training rows,
        predictions without each row are exact. Of more, rows with a weight of less than 0.001 are
        taken not to change a prediction; at degree 0 that moves a bound by 0.001 / 0.999 of the
        range of the targets at most.

        References
        ----------
        .. [1] R. F. Barber, E. J. Candes, A. Ramdas and R. J. Tibshirani (2021). Predictive
           inference with the jackknife+. Annals of Statistics, 49(1), 486-507.

        Examples
        --------
        >>> import numpy as np
        >>> from skattn import NadarayaWatsonRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(size=(200, 1))
        >>> y = np.sin(6 * X[:, 0]) + 0.2 * rng.standard_normal(200)
        >>> interval = NadarayaWatsonRegressor().fit(X, y).predict_interval([[0.25], [0.75]])
        >>> interval.round(1)
        array([[ 0.6,  1.3],
               [-1.2, -0.6]])
        """
        check_is_fitted(self)
        counts = self._smoother.training_set.counts()
        _check_interval(X, coverage, local, counts)
        regression, X, dtype = self._regression(X)
        left_out, resources = self._left_out(), self._resources()
        scales = self._residual_scales(X, left_out) if local else None
        bounds, outside = jackknife_plus(regression, resources, left_out, float(coverage), scales)
        bounds = self._smoother.scaling.restore(bounds)
        return self._finished(bounds, outside, "intervals", X, dtype)

    def _residual_scales(self, X, left_out):
        """Local scales of the residuals, at queries (n_queries, n_features) and keys."""
        training_set, kernel = self._smoother.training_set, self._smoother.kernel
        keys = training_set.keys
        bandwidth = key_spread(training_set)
        if not self._has_relative_bandwidths():
            bandwidth = np.minimum(self.bandwidth_, bandwidth)
        scaler = Scaler.around(training_set.X[keys], bandwidth)
        component = Component.of(training_set, kernel, scaler)
        rows = component.leave_one_out().take(keys)
        return residual_scales(component.at(X), rows, self._resources(), left_out)

    def _has_relative_bandwidths(self):
        """Whether `bandwidth_` only tells how features compare."""
        return getattr(self, "adaptive", None) is not None


def _check_interval(X, coverage, local, counts):
    """Refuse parameters of intervals that are out of range."""
    is_number = isinstance(coverage, Real) and not isinstance(coverage, bool)
    if not (is_number and 0 < coverage < 1):
        raise ValueError(f"coverage must be a number between 0 and 1; got {coverage!r}.")
    if not isinstance(local, bool | np.bool_):
        raise ValueError(f"local must be True or False; got {local!r}.")
    if np.isinf(interval_rank(counts, float(coverage))):
        raise ValueError(
            f"coverage={float(coverage)} needs {int(np.ceil(coverage / (1.0 - coverage) - 1e-9))} "
            f"training rows at least; got n_samples={counts.sum():g}. Ask for less coverage, "
            "or fit on more rows."
        )
    if X is None:
        raise ValueError(
            "predict_interval needs queries X; None, the training rows without themselves, is "
            "not supported: two rows would have to be left out at a time."
        )
