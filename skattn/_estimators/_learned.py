"""Statistics that only learned attention has, and its twin in closed form."""

from __future__ import annotations

import numpy as np
from sklearn.utils import Bunch
from sklearn.utils.validation import check_is_fitted

from skattn._estimators.nadaraya_watson import NadarayaWatsonRegressor
from skattn._geometry.transforms import FeatureMap
from skattn._sklearn import check_rows
from skattn._smoother import component_weights


class LearnedMixin:
    """Components, query factors and the closed form of a fitted learned regressor."""

    def attention_by_component(self, X):
        """Attention weights of each component, and the shares in which they are mixed.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or None
            The queries; None stands for the training rows, each without itself.

        Returns
        -------
        components : :class:`sklearn.utils.Bunch`
            With `weights` of shape (n_components, n_queries, n_samples), those of the kernel, and
            `gates` (n_queries, n_components). Rows of both sum to 1. At degree 0,
            ``sum_h gates[:, h] * weights[h]`` are the `attention_weights`. Components of all
            members stand side by side.
        """
        regression, _, _ = self._regression(X)
        training_set = self._smoother.training_set
        found, gates, outside = component_weights(regression, self._resources())
        weights = np.zeros((found.shape[1], len(found), len(training_set.order)))
        weights[:, :, training_set.order[training_set.keys]] = found.swapaxes(0, 1)
        weights = self._extrapolated(weights, outside, "weights")
        weights, gates = (self._in_callers_order(each, X) for each in (weights, gates.T))
        return Bunch(weights=weights.swapaxes(0, 1), gates=gates)

    def query_factors(self, X):
        """Factor of the whole metric at each query.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            The queries.

        Returns
        -------
        factors : ndarray of shape (n_queries,)
            Above 1 where fewer rows get weight than elsewhere. 1 unless `variant` is `QueryScale`
            or `RegionScale`; geometric means over members.
        """
        check_is_fitted(self)
        X = check_rows(self, X, reset=False).astype(np.float64)
        scales = [component.query_scale for component in self._smoother.components]
        one = np.ones(len(X))
        divisors = [one if each is None else each.scales(X, X, None) for each in scales]
        return np.exp(-np.mean(np.log(divisors), axis=0))

    def to_nadaraya_watson(self):
        """Convert to the same model as a :class:`NadarayaWatsonRegressor`, where there is one.

        Returns
        -------
        model : NadarayaWatsonRegressor
            Fitted on the same rows, with `bandwidth_` as its bandwidth. There is none with
            ``degree=1``, ranks, a linear map, a variant, or several estimators.
        """
        check_is_fitted(self)
        component, *others = self._smoother.components
        is_plain = not others and component.degree == 0 and component.query_scale is None
        is_plain = is_plain and component.log_factors is None
        transform = component.transform
        if not (is_plain and isinstance(transform, FeatureMap) and _is_diagonal(transform)):
            raise ValueError(
                "to_nadaraya_watson needs a model fitted with metric='scalar' or 'diagonal', "
                f"degree=0, variant=None and n_estimators=1; got metric={self.metric!r}, "
                f"degree={self.degree}, variant={self.variant!r}, "
                f"n_estimators={self.n_estimators}. Fit such a model first."
            )
        training_set = self._smoother.training_set
        model = NadarayaWatsonRegressor(
            self.bandwidth_,
            kernel=component.kernel.name,
            extrapolation=self.extrapolation,
            algorithm=self.algorithm,
            n_jobs=self.n_jobs,
        )
        (X, y), order = self._training_rows(), training_set.callers_order
        y = y[:, 0] if self._single_output else y
        groups = None if training_set.groups is None else training_set.groups[order]
        return model.fit(X, y, sample_weight=training_set.weights[order], groups=groups)


def _is_diagonal(transform):
    """Whether features are multiplied with a number each, and nothing joins them."""
    counts = [np.count_nonzero(transform.matrix, axis=axis).max() for axis in (0, 1)]
    return transform.ranks is None and max(counts) <= 1
