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
from skattn.attention import Resources, attend, attend_weights
from skattn.geometry import Frame, Unit
from skattn.smoother import effective_neighbors, leverage


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


class AttentionRegressor(MultiOutputMixin, RegressorMixin, BaseEstimator):
    """Predictions and statistics of a fitted attention regressor.

    A subclass has the parameters `kernel`, `extrapolation` and `n_jobs`, resolves the bandwidth
    in `fit` and calls `_set_keys`. Whatever is added here is read off the attention weights.
    """

    def predict(self, X):
        """Predict targets: the attention-weighted mean of the training targets.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or None
            The queries. None gives the leave-one-out predictions of the training rows, in their
            order: row i predicted without itself (one unit of its weight, when the sample weights
            are whole numbers; otherwise without any row of the same features; with `groups`,
            without its group).

        Returns
        -------
        y : ndarray of shape (n_queries,) or (n_queries, n_outputs)
            The predictions, in the shape of the training targets. Queries outside the support
            of a compact kernel follow `extrapolation`.

        Notes
        -----
        Time O(n_queries * n_samples * n_features), memory O((n_queries + n_samples) * n_features)
        and about 2 MiB a thread.
        """
        queries, own, dtype = self._queries(X)
        attended = self._attend(queries, own, dtype)
        mean = self._unit.restore(attended.mean)
        mean = self._extrapolated(mean, attended.outside, "predictions")
        mean = self._in_callers_order(mean, X).astype(dtype)
        return mean[:, 0] if self._single_output else mean

    def attention_weights(self, X, top_k=None):
        """Attention weights of the training rows: who made each prediction.

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
            Non-negative; columns are the training rows in the order given to `fit`. Rows sum to
            1. With `top_k`, a sparse array that stores at most `top_k` positive weights a row,
            largest first and not renormalised: their sum tells how much of the prediction they
            explain.

        Raises
        ------
        ValueError
            If `top_k` is not a whole number from 1 to the number of training rows.

        Notes
        -----
        Memory O(n_queries * n_samples), with `top_k` O(n_queries * top_k).
        """
        check_is_fitted(self)
        n_rows, n_keys = len(self._table.rows), self._table.n_keys
        if top_k is not None and not (_is_whole(top_k) and 1 <= top_k <= n_rows):
            raise ValueError(
                f"top_k must be a whole number from 1 to the number of training rows ({n_rows}), "
                f"or None for all weights; got {top_k!r}."
            )
        queries, own, _ = self._queries(X)
        weights: Any
        weights, outside = attend_weights(
            queries,
            self._coordinates[:n_keys],
            self._kernel,
            self._log_weights,
            own=own,
            top_k=None if top_k is None else min(top_k, n_keys),
            resources=self._resources(np.dtype(np.float64)),
        )
        if top_k is None:
            in_rows = np.zeros((len(queries), n_rows))
            in_rows[:, self._table.rows[:n_keys]] = self._extrapolated(weights, outside, "weights")
        else:
            pointers, columns = weights.indptr, self._table.rows[weights.indices]
            entries = self._extrapolated(weights.data, outside, "weights", np.diff(pointers))
            in_rows = csr_array((entries, columns, pointers), shape=(len(queries), n_rows))
        return self._in_callers_order(in_rows, X)

    def effective_neighbors(self, X):
        """Effective number of neighbours: 1 / (sum of squared attention weights).

        So many training rows, weighted equally, would average as much noise out. Near 1, a
        prediction repeats a single training row; near n, it is the global mean. A whole-number
        sample weight counts as so many rows.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or None
            The queries; None for the leave-one-out predictions of the training rows.

        Returns
        -------
        n_neighbors : ndarray of shape (n_queries,)
            Between 1 and the number of training rows.
        """
        queries, own, dtype = self._queries(X)
        attended = self._attend(queries, own, dtype, repeats=self._repeats)
        number = effective_neighbors(attended.squares)
        number = self._extrapolated(number, attended.outside, "numbers of neighbors")
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
        diagonal = leverage(
            self._coordinates,
            self._coordinates[: self._table.n_keys],
            self._kernel,
            self._log_weights,
            self._table.itself(),
            self._resources(np.dtype(np.float64)),
        )
        return self._in_callers_order(diagonal, None)

    @property
    def effective_dof_(self):
        """Trace of the smoother matrix, computed on access in O(n_samples ** 2) time."""
        return float(self.leverage().sum())

    def __dir__(self):
        # scikit-learn's HTML display and dir() read every attribute, and must not pay for this one
        names = object.__dir__(self)
        return [name for name in names if name != "effective_dof_" and hasattr(self, name)]

    def _set_keys(self, table, bandwidth, kernel, single_output, dtype):
        """Store the training rows, with a bandwidth for each feature.

        `dtype` is that of results for queries of the same type.
        """
        keys = slice(0, table.n_keys)
        self.bandwidth_ = bandwidth
        self._table, self._kernel = table, kernel
        self._frame = Frame.around(table.X[keys], bandwidth)
        self._coordinates = self._frame.coordinates(table.X)
        self._unit, self._values = Unit.of(table.y[keys])
        self._log_weights = np.log(table.weights[keys])
        self._repeats = table.repeats()
        self._single_output, self._dtype = single_output, dtype

    def _queries(self, X):
        """Coordinates, own keys and type of the results; None stands for the training rows."""
        check_is_fitted(self)
        if X is not None:
            X = check_rows(self, X, reset=False)
            return self._frame.coordinates(X), None, np.result_type(self._dtype, X.dtype)
        own = self._table.own()
        if (alone := own.covers(self._table.n_keys)).any():
            raise ValueError(
                "Leave-one-out predictions need a training row that is not left out, but "
                f"{alone.sum()} of {len(alone)} rows leave none (n_samples={self._table.n_keys} "
                "rows of positive weight; a group is left out together and, with sample weights "
                "that are no whole numbers, all rows of the same features). Fit on more distinct "
                "rows or groups."
            )
        return self._coordinates, own, self._dtype

    def _attend(self, queries, own, dtype, repeats=None):
        return attend(
            queries,
            self._coordinates[: self._table.n_keys],
            self._values,
            self._kernel,
            self._log_weights,
            own=own,
            repeats=repeats,
            resources=self._resources(dtype),
        )

    def _resources(self, dtype):
        """Threads as asked for, fewer where their blocks would not fit in the working memory."""
        allowed = int(get_config()["working_memory"] * 2**20)
        block_bytes = max(1, min(Resources.block_bytes, allowed))
        n_threads = min(effective_n_jobs(self.n_jobs), max(1, allowed // block_bytes))
        return Resources(n_threads, block_bytes, np.dtype(dtype))

    def _extrapolated(self, results, outside, what, repeats=1):
        """Apply the policy for queries outside the support to the results of each query."""
        if self.extrapolation == "nearest" or not outside.any():
            return results
        where = f"the support of kernel={self.kernel!r}"
        count = f"{outside.sum():,} of {outside.size:,} queries have no training row within {where}"
        if self.extrapolation != "nan":
            raise ValueError(
                f"{count} (extrapolation={self.extrapolation!r}). Use a larger bandwidth, a kernel "
                "of unbounded support such as 'gaussian', or extrapolation='nearest' or 'nan'."
            )
        warnings.warn(
            f"{count}; their {what} are NaN (extrapolation='nan').", UserWarning, stacklevel=3
        )
        results[np.repeat(outside, repeats)] = np.nan
        return results

    def _in_callers_order(self, results, X):
        """Undo the canonical order where the queries were the training rows."""
        return results if X is not None else results[np.argsort(self._table.rows)]


def _is_whole(number):
    return isinstance(number, Integral) and not isinstance(number, bool)
