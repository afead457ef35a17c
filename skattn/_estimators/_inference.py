"""Quantiles, intervals, gradients and explanations, read off the same weights as predictions."""

from __future__ import annotations

from numbers import Real

import numpy as np
from sklearn.utils.validation import check_is_fitted

from skattn._sklearn import check_rows
from skattn._attention import outside_of_mixed
from skattn._bandwidth import spread
from skattn._estimators._base import AttentionRegressor, is_whole
from skattn._estimators._explanation import Explanation
from skattn._geometry import Own
from skattn._smoother import Keys, smooth, smooth_gradient, smoother_matrix
from skattn._uncertainty.intervals import interval_rank, jackknife_plus, residual_scales, weighted_quantiles


class AttentionInference(AttentionRegressor):
    """What a fitted attention regressor can tell besides its predictions."""

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
        if levels.ndim != 1 or levels.dtype.kind not in "iuf" or not _all_within_unit(levels):
            raise ValueError(
                f"quantiles must be one number from 0 to 1, or an array; got {quantiles!r}."
            )
        request, dtype = self._request(X)
        resources, keys = self._resources(np.float64), self._keys
        if keys.directions is None:
            found, outside = weighted_quantiles(
                request, resources, keys.table.y[: keys.table.n_keys], levels
            )
        else:
            residuals = self._left_out().residuals
            found, outside = weighted_quantiles(request, resources, residuals, levels)
            found = self._restored(smooth(request, resources).mean[:, None] + found)
        found = self._extrapolated(found, outside, "quantiles")
        return self._finished(found, X, dtype)

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
            left-out ones best; it is shrunk as if one more neighbour had the overall mean. Of a
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
        if isinstance(coverage, bool) or not isinstance(coverage, Real) or not 0 < coverage < 1:  # type: ignore[operator]
            raise ValueError(f"coverage must be a number between 0 and 1; got {coverage!r}.")
        coverage = float(coverage)
        if not isinstance(local, bool | np.bool_):
            raise ValueError(f"local must be True or False; got {local!r}.")
        counts = self._keys.table.counts()
        if np.isinf(interval_rank(counts, coverage)):
            raise ValueError(
                f"coverage={coverage} needs {int(np.ceil(coverage / (1.0 - coverage) - 1e-9))} "
                f"training rows at least; got n_samples={counts.sum():g}. Ask for less coverage, "
                "or fit on more rows."
            )
        if X is None:
            raise ValueError(
                "predict_interval needs queries X; None, the training rows without themselves, is "
                "not supported: two rows would have to be left out at a time."
            )
        request, dtype = self._request(X)
        left_out, resources = self._left_out(), self._resources(np.float64)
        scales = self._residual_scales(X, left_out) if local else None
        bounds, outside = jackknife_plus(request, resources, left_out, coverage, scales)
        bounds = self._keys.unit.restore(bounds, is_mean=False)
        bounds = self._extrapolated(bounds, outside, "intervals")
        return self._finished(bounds, X, dtype)

    def _residual_scales(self, X, left_out):
        """Local scales of the residuals, at queries and keys."""
        table, rows = self._keys.table, slice(0, self._keys.table.n_keys)
        bandwidth = spread(table.X[rows], table.weights[rows])
        if self._keys.adaptive is None:
            bandwidth = np.minimum(self.bandwidth_, bandwidth)
        keys = Keys.of(table, self._keys.kernel, bandwidth, None, None)
        return residual_scales(
            keys.at(check_rows(self, X, reset=False)),
            keys.leave_one_out().take(rows),
            self._resources(np.float64),
            left_out,
        )

    def _effects(self, X, rows):
        """Predictions, less those without each of some training rows, the metric held.

        `rows` (n_queries, n_rows) are positions in the data given to `fit`.
        """
        request, dtype = self._request(X)
        table, resources = self._keys.table, self._resources(np.float64)
        if table.n_keys == 1:
            raise ValueError(
                "Predictions without a training row need another one; got one row of positive "
                "weight (n_samples=1). Fit on more rows."
            )
        keys = np.argsort(table.rows)[rows.ravel()]
        own = Own(keys, keys + 1, np.zeros(keys.size))
        pairs = request.take(np.repeat(np.arange(len(rows)), rows.shape[1]))
        whole = smooth(request, resources)
        without = smooth(pairs.leaving_out(own), resources).mean.reshape(*rows.shape, -1)
        effects = self._keys.unit.scale(whole.mean[:, None] - without)
        effects = self._extrapolated(effects, whole.outside, "effects")
        return self._finished(effects, X, dtype)

    def predict_gradient(self, X):
        """Derivatives of the prediction in each feature.

        At degree 1 the slopes of the local lines, the usual estimate of the derivatives; at degree
        0 the derivatives of the predicted mean itself. With `adaptive`, those at a radius held
        fixed; with several heads or a `modifier`, those with gates and factors held fixed.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or None
            The queries; None stands for the training rows, each without itself.

        Returns
        -------
        gradient : ndarray of shape (n_queries, n_features) or (n_queries, n_features, n_outputs)
            In units of the target per unit of each feature; 0 for constant features, at degree 0
            for features that are smoothed out. Queries outside the support of a compact kernel
            follow `extrapolation`; next to "nearest", predictions are constant.

        Raises
        ------
        ValueError
            If the degree is 0 and the kernel has no derivative: "uniform" and callables.

        Notes
        -----
        Time O(n_queries * n_samples * n_features * n_outputs).
        """
        request, dtype = self._request(X)
        keys = self._keys
        if keys.directions is None and not keys.kernel.has_slope:
            raise ValueError(
                f"predict_gradient needs a kernel with a derivative, or degree=1; got "
                f"kernel={self.kernel!r} with degree=0."
            )
        rows = keys.table.X if X is None else check_rows(self, X, reset=False)
        gradient, outside = self._gradient(keys, request, rows.astype(np.float64))
        gradient = self._extrapolated(gradient, outside, "gradients")
        return self._finished(gradient, X, dtype)

    def _gradient(self, keys, request, rows):
        """Derivatives in all features, (n_queries, n_features, n_outputs), and who is outside."""
        if request.heads:
            parts = [
                self._gradient(part, head.request, rows)
                for part, head in zip(keys.heads, request.heads, strict=True)
            ]
            gates = [head.gate for head in request.heads]
            gradient = np.einsum("hq,hqjp->qjp", gates, [gradient for gradient, _ in parts])
            return gradient, outside_of_mixed(gates, [outside for _, outside in parts])
        slopes, outside = smooth_gradient(request, self._resources(np.float64))
        chart = keys.frame if keys.directions is None else keys.directions
        features, slopes = chart.gradient(slopes, rows)
        gradient = np.zeros((len(slopes), self.n_features_in_, slopes.shape[2]))
        gradient[:, features] = keys.unit.scale(slopes)
        return gradient, outside

    def explain(self, X, top_k=5):
        """Tell which training rows made each prediction.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or None
            The queries; None stands for the training rows, each without itself.
        top_k : int, default=5
            How many training rows of each query to tell, those of largest absolute weight; no more
            than there are.

        Returns
        -------
        explanation : :class:`sklearn.utils.Bunch`
            With attributes

            rows : ndarray of shape (n_queries, top_k)
                Positions of the training rows, by weight; -1 where there are fewer with a weight.
            weights : ndarray of shape (n_queries, top_k)
                Their weights, as in `attention_weights`; 0 where there is no row.
            targets : ndarray of shape (n_queries, top_k) or (n_queries, top_k, n_outputs)
                Their targets; NaN where there is no row.
            differences : ndarray of shape (n_queries, top_k, n_features)
                Row minus query, in units of each feature's `bandwidth_`; 0 for a feature that is
                smoothed out, NaN where there is no row.
            predictions : ndarray of shape (n_queries,) or (n_queries, n_outputs)
                What was explained.
            feature_names : list of str
                Names of the features, or x0, x1, ...
            to_frame : callable
                Returns all of it as a pandas data frame, a line for each query and row.

        Raises
        ------
        ValueError
            If `top_k` is not a positive whole number.

        Notes
        -----
        A large weight says that a row was near and counted for the prediction, not that its
        features caused the target.

        Time O(n_queries * n_samples * n_features), memory O(n_queries * top_k * n_features).

        Examples
        --------
        >>> from skattn import NadarayaWatsonRegressor
        >>> model = NadarayaWatsonRegressor(1.0).fit([[0.0], [1.0], [3.0]], [1.0, 2.0, 5.0])
        >>> told = model.explain([[0.6]], top_k=2)
        >>> told.rows, told.weights.round(2), told.differences[:, :, 0]
        (array([[1, 0]]), array([[0.51, 0.46]]), array([[ 0.4, -0.6]]))
        """
        if not (is_whole(top_k) and top_k >= 1):
            raise ValueError(f"top_k must be a positive whole number; got {top_k!r}.")
        request, _ = self._request(X)
        table, n_keys = self._keys.table, self._keys.table.n_keys
        top, outside = smoother_matrix(request, self._resources(np.float64), min(top_k, n_keys))
        weights, keys, found = _in_columns(top, min(top_k, n_keys))
        rows = np.where(found, table.rows[keys], -1)
        targets = np.where(found[:, :, None], table.y[keys], np.nan)
        queries = table.X if X is None else check_rows(self, X, reset=False).astype(np.float64)
        with np.errstate(over="ignore"):
            differences = (table.X[keys] - queries[:, None, :]) / self.bandwidth_
        largest = np.finfo(np.float64).max
        differences = np.clip(differences, -largest, largest)
        differences[~found] = np.nan
        predictions = self._restored(smooth(request, self._resources(np.float64)).mean)
        weights = self._extrapolated(weights, outside, "weights")
        predictions = self._extrapolated(predictions, outside, None)
        rows, weights, targets, differences, predictions = (
            self._in_callers_order(array, X)
            for array in (rows, weights, targets, differences, predictions)
        )
        if self._single_output:
            targets, predictions = targets[..., 0], predictions[..., 0]
        return Explanation(
            rows=rows,
            weights=weights,
            targets=targets,
            differences=differences,
            predictions=predictions,
            feature_names=self._names_of_features(),
        )

    def _names_of_features(self):
        names = getattr(self, "feature_names_in_", None)
        return [f"x{j}" for j in range(self.n_features_in_)] if names is None else list(names)


def _all_within_unit(levels):
    return bool(((levels >= 0.0) & (levels <= 1.0)).all())


def _in_columns(matrix, most):
    """Entries and columns of a sparse array's rows side by side, and which there are."""
    found = np.arange(most) < np.diff(matrix.indptr)[:, None]
    weights, keys = np.zeros(found.shape), np.zeros(found.shape, dtype=np.intp)
    weights[found], keys[found] = matrix.data, matrix.indices
    return weights, keys, found
