"""Which training rows determine a prediction: weights, leverages, slopes and explanations."""

from __future__ import annotations

from numbers import Integral

import numpy as np
from scipy.sparse import csr_array
from sklearn.utils import Bunch
from sklearn.utils.validation import check_is_fitted

from skattn._geometry.training_set import Exclusion
from skattn._smoother import effective_neighbors, gradient, predict, smoother_matrix


class ExplanationMixin:
    """Statistics of the smoother matrix of a fitted attention regressor."""

    def attention_weights(self, X, top_k=None):
        """Weights of the training rows: which of them determine each prediction.

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
        training_set = self._smoother.training_set
        order, n_keys = training_set.order, training_set.n_keys
        if top_k is not None and not (is_whole(top_k) and 1 <= top_k <= len(order)):
            raise ValueError(
                "top_k must be a whole number from 1 to the number of training rows "
                f"({len(order)}), or None for all weights; got {top_k!r}."
            )
        regression, _, _ = self._regression(X)
        most = None if top_k is None else min(top_k, n_keys)
        weights, outside = smoother_matrix(regression, self._resources(), most)
        if top_k is None:
            found = np.zeros((len(weights), len(order)))
            found[:, order[:n_keys]] = self._extrapolated(weights, outside, "weights")
        else:
            pointers, columns = weights.indptr, order[weights.indices]
            entries = self._extrapolated(weights.data, outside, "weights", np.diff(pointers))
            found = csr_array((entries, columns, pointers), shape=(len(outside), len(order)))
        return self._in_callers_order(found, X)

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
        regression, _, dtype = self._regression(X)
        multiplicity = self._smoother.training_set.multiplicity
        number, outside = effective_neighbors(regression, self._resources(dtype), multiplicity)
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
        diagonal = predict(self._smoother.in_sample(), self._resources())[1]
        return self._in_callers_order(diagonal, None)

    @property
    def effective_dof_(self):
        """Trace of the smoother matrix, computed on access in O(n_samples ** 2) time."""
        return float(self.leverage().sum())

    def __dir__(self):
        # scikit-learn's HTML display and dir() read every attribute, and must not pay for this one
        names = object.__dir__(self)
        return [name for name in names if name != "effective_dof_" and hasattr(self, name)]

    def predict_gradient(self, X):
        """Derivatives of the prediction in each feature.

        At degree 1 the slopes of the local lines, the usual estimate of the derivatives; at degree
        0 the derivatives of the predicted mean itself. Bandwidths that vary, and the gates of a
        mixture, are held fixed.

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
        regression, queries, dtype = self._regression(X)
        if self._smoother.degree == 0 and not self._smoother.kernel.has_slope:
            raise ValueError(
                f"predict_gradient needs a kernel with a derivative, or degree=1; got "
                f"kernel={self.kernel!r} with degree=0."
            )
        slopes, outside = gradient(regression, queries, self._resources())
        slopes = self._smoother.scaling.restore_differences(slopes)
        return self._finished(slopes, outside, "gradients", X, dtype)

    def explain(self, X, top_k=5):
        """Tell which training rows determine each prediction.

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
                The predictions that are explained.
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
        >>> explanation = model.explain([[0.6]], top_k=2)
        >>> explanation.rows, explanation.weights.round(2), explanation.differences[:, :, 0]
        (array([[1, 0]]), array([[0.51, 0.46]]), array([[ 0.4, -0.6]]))
        """
        if not (is_whole(top_k) and top_k >= 1):
            raise ValueError(f"top_k must be a positive whole number; got {top_k!r}.")
        regression, queries, _ = self._regression(X)
        training_set, resources = self._smoother.training_set, self._resources()
        most = min(top_k, training_set.n_keys)
        top, outside = smoother_matrix(regression, resources, most)
        weights, keys, found = _columns_of(top, most)
        arrays = {
            "rows": np.where(found, training_set.order[keys], -1),
            "weights": self._extrapolated(weights, outside, "weights"),
            "targets": np.where(found[:, :, None], training_set.y[keys], np.nan),
            "differences": self._differences(training_set.X[keys], queries, found),
            "predictions": self._restored(predict(regression, resources)[0]),
        }
        self._extrapolated(arrays["predictions"], outside, None)
        arrays = {name: self._in_callers_order(array, X) for name, array in arrays.items()}
        if self._single_output:
            arrays |= {name: arrays[name][..., 0] for name in ("targets", "predictions")}
        names = getattr(self, "feature_names_in_", None)
        names = [f"x{j}" for j in range(self.n_features_in_)] if names is None else list(names)
        return Explanation(**arrays, feature_names=names)

    def _differences(self, keys, queries, found):
        """Keys (n_queries, n_keys, n_features) less queries in bandwidths; NaN where not found."""
        with np.errstate(over="ignore"):
            differences = (keys - queries[:, None, :]) / self.bandwidth_
        largest = np.finfo(np.float64).max
        differences = np.clip(differences, -largest, largest)
        differences[~found] = np.nan
        return differences

    def _effects(self, X, rows):
        """Predictions, less those without each of some training rows, the metric held.

        `rows` (n_queries, n_rows) are positions in the data given to `fit`.
        """
        regression, _, dtype = self._regression(X)
        training_set, resources = self._smoother.training_set, self._resources()
        if training_set.n_keys == 1:
            raise ValueError(
                "Predictions without a training row need another one; got one row of positive "
                "weight (n_samples=1). Fit on more rows."
            )
        keys = training_set.callers_order[rows.ravel()]
        excluded = Exclusion(keys, keys + 1, np.zeros(keys.size))
        pairs = regression.take(np.repeat(np.arange(len(rows)), rows.shape[1]))
        whole, _, outside = predict(regression, resources)
        without = predict(pairs.excluding(excluded), resources)[0].reshape(*rows.shape, -1)
        effects = self._smoother.scaling.restore_differences(whole[:, None] - without)
        return self._finished(effects, outside, "effects", X, dtype)


class Explanation(Bunch):
    """Training rows that made predictions, as arrays; see `explain`."""

    def to_frame(self):
        """All of it as a data frame.

        Returns
        -------
        frame : pandas.DataFrame
            A line for each query and training row, rows of a query by weight, with columns
            "query", "row", "weight", "target" (or "target_0", ... for several outputs) and
            "difference_" followed by the name of each feature.

        Raises
        ------
        ImportError
            If pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError as error:
            raise ImportError(
                "explain(...).to_frame() needs pandas, which is not installed: "
                "pip install pandas. The arrays of the explanation are there without it."
            ) from error
        queries, ranks = np.nonzero(self.rows >= 0)
        columns = {
            "query": queries,
            "row": self.rows[queries, ranks],
            "weight": self.weights[queries, ranks],
        }
        targets = self.targets[queries, ranks]
        if targets.ndim == 1:
            columns["target"] = targets
        else:
            columns |= {f"target_{k}": target for k, target in enumerate(targets.T)}
        for j, name in enumerate(self.feature_names):
            columns[f"difference_{name}"] = self.differences[queries, ranks, j]
        return pd.DataFrame(columns)


def is_whole(number):
    """Whether a number is an integer and no truth value."""
    return isinstance(number, Integral) and not isinstance(number, bool)


def _columns_of(matrix, most):
    """Entries and columns of a sparse array's rows side by side, and which there are."""
    found = np.arange(most) < np.diff(matrix.indptr)[:, None]
    weights, keys = np.zeros(found.shape), np.zeros(found.shape, dtype=np.intp)
    weights[found], keys[found] = matrix.data, matrix.indices
    return weights, keys, found
