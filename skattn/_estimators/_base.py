"""What every attention regressor offers: statistics read off the same weights."""

from __future__ import annotations

import warnings
from contextlib import contextmanager
from numbers import Integral
from typing import Any

import numpy as np
from joblib import effective_n_jobs
from scipy.sparse import csr_array
from sklearn import get_config
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from skattn._sklearn import check_rows
from skattn._attention import Resources
from skattn._bandwidth import share_of_copies
from skattn._smoother import Keys, effective_neighbors, prediction_variance, smooth, smoother_matrix
from skattn._uncertainty.intervals import LeftOut, local_means

# Of the documentation, by class.
API_PAGES = "https://skattn.github.io/skattn/generated"
# The share of copied rows from which leave-one-out is likely to see them.
_MANY_COPIES = 0.2


@contextmanager
def all_or_nothing(estimator):
    """Give an estimator its former state back if fitting fails or is interrupted."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def warn_of_copies(table, stacklevel):
    """Warn of rows that leave-one-out predicts from their twins, unless groups tell of them."""
    copies = 0.0 if table.groups is not None else share_of_copies(table)
    if copies > _MANY_COPIES:
        warnings.warn(
            f"{copies:.0%} of the training rows, by weight, are copies of others, features and "
            "targets alike. Leave-one-out predicts a copy from its twins and chooses too small a "
            "bandwidth; pass fit(..., groups=labels) to leave copies out together.",
            UserWarning,
            stacklevel=stacklevel,
        )


class AttentionRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Predictions and statistics of a fitted attention regressor.

    A subclass has the parameters `kernel`, `extrapolation` and `n_jobs`, resolves the bandwidth
    in `fit` and calls `_set_keys`. Whatever is added here is read off the attention weights.
    """

    # Where scikit-learn's HTML display of an estimator links to.
    _doc_link_module = "skattn"
    _doc_link_template = f"{API_PAGES}/skattn.{{estimator_name}}.html"

    def predict(self, X, return_std=False):
        """Predict targets: the attention-weighted mean of the training targets, or a local line.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or None
            The queries. None gives the leave-one-out predictions of the training rows, in their
            order: row i predicted without itself (one unit of its weight, when the sample weights
            are whole numbers; otherwise without any row of the same features; with `groups`,
            without its group).
        return_std : bool or "local", default=False
            Whether to return standard errors of the predictions, the uncertainty of the fitted
            mean (for that of a new target, see `predict_interval`). True takes the noise to have
            the same variance everywhere, "local" the variance around each training row.

        Returns
        -------
        y : ndarray of shape (n_queries,) or (n_queries, n_outputs)
            The predictions, in the shape of the training targets. Queries outside the support
            of a compact kernel follow `extrapolation`.
        std : ndarray of the same shape
            Their standard errors. Only returned if `return_std` is not False.

        Raises
        ------
        ValueError
            If `return_std` is none of these, or leave-one-out, which it needs, leaves nothing.

        Notes
        -----
        With S the smoother matrix, a standard error is the square root of
        ``sum_i S_i**2 variance_i``. Variances are weighted means of squared leave-one-out
        residuals: over all training rows, or by the attention of training row i. Bias is not
        part of it.

        Time O(n_queries * n_samples * n_features), memory O((n_queries + n_samples) * n_features)
        and about 2 MiB a thread, for local lines about 8 MiB and O(n_samples * n_features ** 2);
        standard errors take O(n_samples ** 2 * n_features) more time.
        """
        is_local = isinstance(return_std, str) and return_std == "local"
        if not (isinstance(return_std, bool | np.bool_) or is_local):
            raise ValueError(f"return_std must be True, False or 'local'; got {return_std!r}.")
        request, dtype = self._request(X)
        smoothed = smooth(request, self._resources(dtype))
        mean = self._extrapolated(self._restored(smoothed.mean), smoothed.outside, "predictions")
        mean = self._finished(mean, X, dtype)
        if not return_std:
            return mean
        variances = self._variances(local=is_local)
        variance = prediction_variance(request, self._resources(np.float64), variances)
        std = self._keys.unit.scale(np.sqrt(variance))
        std = self._extrapolated(std, smoothed.outside, None)
        return mean, self._finished(std, X, dtype)

    def attention_weights(self, X, top_k=None):
        """Weights of the training rows: who made each prediction.

        ``attention_weights(X) @ y`` equals ``predict(X)``.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or None
            The queries. None gives the weights of the leave-one-out predictions.
        top_k : int, default=None
            Return only the `top_k` largest weights of each query, between 1 and the number of
            training rows. None returns all.

        Returns
        -------
        weights : ndarray or scipy.sparse.csr_array of shape (n_queries, n_samples)
            Rows of the smoother matrix, which sum to 1; columns are the training rows in the
            order given to `fit`. Non-negative at degree 0. At degree 1 the equivalent weights of
            the local lines, which may be negative. With `top_k`, a sparse array that stores at
            most `top_k` weights a row, largest absolute value first and not renormalised: their
            sum tells how much of the prediction they explain.

        Raises
        ------
        ValueError
            If `top_k` is not a whole number from 1 to the number of training rows.

        Notes
        -----
        Memory O(n_queries * n_samples), with `top_k` O(n_queries * top_k).
        """
        check_is_fitted(self)
        n_rows, n_keys = len(self._keys.table.rows), self._keys.table.n_keys
        if top_k is not None and not (is_whole(top_k) and 1 <= top_k <= n_rows):
            raise ValueError(
                f"top_k must be a whole number from 1 to the number of training rows ({n_rows}), "
                f"or None for all weights; got {top_k!r}."
            )
        request, _ = self._request(X)
        weights: Any
        weights, outside = smoother_matrix(
            request, self._resources(np.float64), None if top_k is None else min(top_k, n_keys)
        )
        rows = self._keys.table.rows
        if top_k is None:
            in_rows = np.zeros((len(weights), n_rows))
            in_rows[:, rows[:n_keys]] = self._extrapolated(weights, outside, "weights")
        else:
            pointers, columns = weights.indptr, rows[weights.indices]
            entries = self._extrapolated(weights.data, outside, "weights", np.diff(pointers))
            in_rows = csr_array((entries, columns, pointers), shape=(weights.shape[0], n_rows))
        return self._in_callers_order(in_rows, X)

    def effective_neighbors(self, X):
        """Effective number of neighbours: 1 / (sum of squared attention weights).

        So many training rows, weighted equally, would average as much noise out. Near 1, a
        prediction repeats a single training row; near n, it is the global mean. A whole-number
        sample weight counts as so many rows. At degree 1 the weights are those of the kernel, not
        the equivalent weights of the lines.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or None
            The queries; None for the leave-one-out predictions of the training rows.

        Returns
        -------
        n_neighbors : ndarray of shape (n_queries,)
            Between 1 and the number of training rows.
        """
        request, dtype = self._request(X)
        number, outside = effective_neighbors(request, self._resources(dtype))
        number = self._extrapolated(number, outside, "numbers of neighbors")
        return self._in_callers_order(number, X)

    def leverage(self):
        """Leverage of the training rows: the weight each has in its own prediction.

        The diagonal of the smoother matrix S of ``y_hat = S @ y``. Its sum is `effective_dof_`.

        Returns
        -------
        leverage : ndarray of shape (n_samples,)
            Between 0 and 1, in the order given to `fit`; 0 for rows of zero sample weight.

        Notes
        -----
        Time O(n_samples ** 2 * n_features).
        """
        check_is_fitted(self)
        diagonal = smooth(self._keys.rows(), self._resources(np.float64)).leverage
        return self._in_callers_order(diagonal, None)

    @property
    def effective_dof_(self):
        """Trace of the smoother matrix, computed on access in O(n_samples ** 2) time."""
        return float(self.leverage().sum())

    def __dir__(self):
        # scikit-learn's HTML display and dir() read every attribute, and must not pay for this one
        names = object.__dir__(self)
        return [name for name in names if name != "effective_dof_" and hasattr(self, name)]

    def _set_keys(self, keys: Keys, bandwidth, single_output, dtype):
        """Store the training rows, with a bandwidth for each feature.

        `dtype` is that of results for queries of the same type.
        """
        self.bandwidth_ = bandwidth
        self._keys = keys
        self._single_output, self._dtype = single_output, dtype

    def _training_rows(self):
        """Features and targets (n_samples, n_outputs), in the order given to `fit`."""
        check_is_fitted(self)
        table = self._keys.table
        order = np.argsort(table.rows)
        return table.X[order], table.y[order]

    def _request(self, X):
        """What is asked of the keys, and the type of the results; None stands for the rows."""
        check_is_fitted(self)
        if X is not None:
            X = check_rows(self, X, reset=False)
            return self._keys.at(X), np.result_type(self._dtype, X.dtype)
        self._check_left_out()
        return self._keys.leave_one_out(), self._dtype

    def _check_left_out(self):
        """Refuse to leave everything out."""
        table = self._keys.table
        if (alone := table.own().covers(table.n_keys)).any():
            raise ValueError(
                "Leave-one-out predictions need a training row that is not left out, but "
                f"{alone.sum()} of {len(alone)} rows leave none (n_samples={table.n_keys} "
                "rows of positive weight; a group is left out together and, with sample weights "
                "that are no whole numbers, all rows of the same features). Fit on more distinct "
                "rows or groups."
            )

    def _left_out(self):
        """Leave-one-out residuals of the keys, in the unit of their values."""
        keys = slice(0, self._keys.table.n_keys)
        request = self._request(None)[0].take(keys)
        mean = smooth(request, self._resources(np.float64)).mean
        return LeftOut(self._keys.values - mean, self._keys.table.counts(), request.own)

    def _variances(self, *, local):
        """Variances of the keys' values around the mean, in their unit."""
        left_out = self._left_out()
        squares = left_out.residuals**2
        if not local:
            variance = left_out.counts @ squares / left_out.counts.sum()
            return np.broadcast_to(variance, squares.shape)
        request = self._keys.rows().take(slice(0, self._keys.table.n_keys))
        return local_means(request, self._resources(np.float64), squares)

    def _restored(self, mean):
        """Predictions in the unit of the values as predictions of targets."""
        return self._keys.unit.restore(mean, is_mean=self._keys.directions is None)

    def _finished(self, results, X, dtype):
        """Results of each query in the caller's order, type and number of outputs."""
        results = self._in_callers_order(results, X).astype(dtype)
        return results[..., 0] if self._single_output else results

    def _resources(self, dtype):
        """Threads as asked for, fewer where their blocks would not fit in the working memory."""
        allowed = int(get_config()["working_memory"] * 2**20)
        block_bytes = max(1, min(Resources.block_bytes, allowed))
        n_threads = min(effective_n_jobs(self.n_jobs), max(1, allowed // block_bytes))
        return Resources(n_threads, block_bytes, np.dtype(dtype))

    def _extrapolated(self, results, outside, what, repeats=1):
        """Apply the policy for queries outside the support to the results of each query.

        `what` they are says the warning; None where it has been said.
        """
        if self.extrapolation == "nearest" or not outside.any():
            return results
        where = f"the support of kernel={self.kernel!r}"
        count = f"{outside.sum():,} of {outside.size:,} queries have no training row within {where}"
        results[np.repeat(outside, repeats)] = np.nan
        if what is None:
            return results
        if self.extrapolation != "nan":
            raise ValueError(
                f"{count} (extrapolation={self.extrapolation!r}). Use a larger bandwidth, a kernel "
                "of unbounded support such as 'gaussian', or extrapolation='nearest' or 'nan'."
            )
        warnings.warn(
            f"{count}; their {what} are NaN (extrapolation='nan').", UserWarning, stacklevel=3
        )
        return results

    def _in_callers_order(self, results, X):
        """Undo the canonical order where the queries were the training rows."""
        return results if X is not None else results[np.argsort(self._keys.table.rows)]


def is_whole(number):
    """Whether a number is an integer and no truth value."""
    return isinstance(number, Integral) and not isinstance(number, bool)
