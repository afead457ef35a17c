"""The base of every attention regressor: predictions, and how results are handed back."""

from __future__ import annotations

from numbers import Integral

import numpy as np
from joblib import effective_n_jobs
from sklearn import get_config
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import check_is_fitted

from skattn._attention import Products, Resources, Want
from skattn._attention._plan import ENGINES, choose_engine
from skattn._estimators._explanations import ExplanationMixin
from skattn._estimators._training import warn_user
from skattn._estimators._uncertain import UncertaintyMixin
from skattn._sklearn import Interval, StrOptions, check_rows
from skattn._smoother import predict, prediction_variance
from skattn._uncertainty import leave_one_out_residuals, value_variances

# Pages of the documentation, one a class.
API_PAGES = "https://skattn.github.io/skattn/generated"
# Constraints of the parameters that all attention regressors have.
COMMON_CONSTRAINTS = {
    "extrapolation": [StrOptions({"nearest", "nan", "raise"})],
    "algorithm": [StrOptions({"auto", *ENGINES})],
    "n_jobs": [
        Interval(Integral, None, -1, closed="right"),
        Interval(Integral, 1, None, closed="left"),
        None,
    ],
}


class AttentionRegressor(
    ExplanationMixin, UncertaintyMixin, MultiOutputMixin, RegressorMixin, BaseEstimator
):
    """Predictions and statistics of a fitted attention regressor.

    A subclass has the parameters `kernel`, `extrapolation`, `algorithm` and `n_jobs`, and its `fit`
    calls `_store`.
    """

    # Where scikit-learn's HTML display of an estimator links to.
    _doc_link_module = "skattn"
    _doc_link_template = f"{API_PAGES}/skattn.{{estimator_name}}.html"
    # Splitters take groups too: passing them to a search is no request to pass them on to fit.
    __metadata_request__fit = {"groups": False}

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
        regression, _, dtype = self._regression(X)
        mean, _, outside = predict(regression, self._resources(dtype))
        mean = self._finished(self._restored(mean), outside, "predictions", X, dtype)
        if not return_std:
            return mean
        self._check_left_out()
        resources, scaling = self._resources(), self._smoother.scaling
        variances = value_variances(self._smoother, resources, local=is_local)
        variances = variances / self._smoother.training_set.multiplicity[:, None]
        variance = prediction_variance(regression, resources, variances)
        std = scaling.restore_differences(np.sqrt(variance))
        return mean, self._finished(std, outside, None, X, dtype)

    def _store(self, smoother, training):
        """Store the training rows as keys, and how results are handed back."""
        self._smoother = smoother
        self._single_output, self._dtype = training.single_output, training.dtype
        attention = smoother.components[0].at(training.training_set.X[:1]).attention
        engine = choose_engine(attention, Products(smoother.values), Want.SUMS, self.algorithm)
        self.algorithm_ = engine.name

    def _training_rows(self):
        """Features and targets (n_samples, n_outputs), in the order given to `fit`."""
        check_is_fitted(self)
        training_set = self._smoother.training_set
        order = training_set.callers_order
        return training_set.X[order], training_set.y[order]

    def _regression(self, X):
        """The regression of queries, their features in float64, and the type of the results."""
        check_is_fitted(self)
        if X is None:
            self._check_left_out()
            return self._smoother.leave_one_out(), self._smoother.training_set.X, self._dtype
        X = check_rows(self, X, reset=False)
        dtype = np.result_type(self._dtype, X.dtype)
        return self._smoother.at(X), X.astype(np.float64), dtype

    def _check_left_out(self):
        """Refuse to leave everything out."""
        training_set = self._smoother.training_set
        alone = training_set.leave_one_out().covers(training_set.n_keys)
        if alone.any():
            raise ValueError(
                "Leave-one-out predictions need a training row that is not left out, but "
                f"{alone.sum()} of {len(alone)} rows leave none (n_samples={training_set.n_keys} "
                "rows of positive weight; a group is left out together and, with sample weights "
                "that are no whole numbers, all rows of the same features). Fit on more distinct "
                "rows or groups."
            )

    def _left_out(self):
        """Leave-one-out residuals of the keys."""
        self._check_left_out()
        return leave_one_out_residuals(self._smoother, self._resources())

    def _resources(self, dtype=np.float64):
        """Threads as asked for, fewer where their blocks would not fit in the working memory."""
        allowed = int(get_config()["working_memory"] * 2**20)
        block_bytes = max(1, min(Resources.block_bytes, allowed))
        n_threads = min(effective_n_jobs(self.n_jobs), max(1, allowed // block_bytes))
        return Resources(n_threads, block_bytes, np.dtype(dtype), algorithm=self.algorithm)

    def _restored(self, predictions):
        """Predictions of values as predictions of targets; means stay within the targets' range."""
        scaling = self._smoother.scaling
        is_mean = self._smoother.degree == 0
        return scaling.restore_means(predictions) if is_mean else scaling.restore(predictions)

    def _finished(self, results, outside, what, X, dtype):
        """Results of each query by the policy outside the support, as the caller expects them."""
        results = self._extrapolated(results, outside, what)
        results = self._in_callers_order(results, X).astype(dtype)
        return results[..., 0] if self._single_output else results

    def _extrapolated(self, results, outside, what, repeats=1):
        """Apply the policy for queries outside the support to the results of each query.

        The warning names `what` they are; None where it has been given.
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
        warn_user(f"{count}; their {what} are NaN (extrapolation='nan').")
        return results

    def _in_callers_order(self, results, X):
        """Undo the canonical order where the queries were the training rows."""
        return results if X is not None else results[self._smoother.training_set.callers_order]
