"""Nadaraya-Watson regression in closed form."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np

from skattn._sklearn import Interval, StrOptions, check_rows, check_weights, fit_context
from skattn.bandwidth import RULES, rule_of_thumb
from skattn.estimators._base import AttentionRegressor, all_or_nothing
from skattn.kernels import KERNELS, get_kernel


class NadarayaWatsonRegressor(AttentionRegressor):
    r"""Kernel regression as attention over the training rows.

    The prediction at a query :math:`q` is the attention-weighted mean of the training targets
    :math:`v_i`, with the training rows :math:`k_i` as keys and sample weights :math:`s_i`:

    .. math::

        f(q) = \sum_i w_i(q)\, v_i, \qquad
        w_i(q) = \frac{s_i\, K(\|(q - k_i) / h\|)}{\sum_j s_j\, K(\|(q - k_j) / h\|)} .

    With the Gaussian kernel the weights are :math:`\mathrm{softmax}_i(-\|(q - k_i)/h\|^2 / 2)`.
    Fitting stores the training rows and resolves the bandwidth :math:`h`; the work is done at
    prediction, in cache-sized blocks whose weights are computed in the log domain wherever they
    underflow, so that predictions are finite however far a query is from the training rows.

    Parameters
    ----------
    bandwidth : {"scott", "silverman"}, float or array-like of shape (n_features,), default="scott"
        The scale :math:`h` of the kernel, in the units of the features.

        - A positive number is used for every feature, an array holds one for each. Infinity
          smooths a feature out: it no longer matters.
        - "scott" is :math:`1.06\, \hat\sigma_j\, n^{-1/(d+4)}` and "silverman"
          :math:`0.9\, \hat\sigma_j\, n^{-1/(d+4)}` for each of the :math:`d` features, with
          :math:`\hat\sigma_j` the smallest positive of the standard deviation and the
          interquartile range / 1.349 of the feature, multiplied by the kernel's canonical
          bandwidth relative to the Gaussian's. Unlike in
          :class:`sklearn.neighbors.KernelDensity`, the rules follow the units of the data.
          Constant features get infinity.
    kernel : str or callable, default="gaussian"
        The profile :math:`K(u)`. "gaussian", "laplace" and "student" are positive everywhere;
        "epanechnikov", "biweight", "triweight", "tricube", "triangular", "uniform" and "cosine"
        vanish beyond :math:`u = 1`. A callable takes an array of squared scaled distances
        :math:`u^2` and returns log-weights of the same shape, -inf for no weight; it must be
        picklable if the estimator is to be.
    extrapolation : {"nearest", "nan", "raise"}, default="nearest"
        What happens to queries outside every support of a compact kernel. "nearest" gives their
        weight to the nearest training row, shared among ties: the limit of vanishing tails.
        "nan" gives NaN and one warning with the count, "raise" raises ValueError.
    algorithm : {"auto", "dense"}, default="auto"
        How the sums over training rows are computed; all give the same numbers. "dense" visits
        every pair of query and training row. "auto" chooses the fastest available.
    n_jobs : int, default=None
        Number of threads over blocks of queries. None means 1 unless in a
        :obj:`joblib.parallel_config` context, -1 means all processors. Results do not depend on
        it.

    Attributes
    ----------
    bandwidth_ : ndarray of shape (n_features,)
        The bandwidth of each feature, in its units; inf for features that are smoothed out.
    effective_dof_ : float
        Effective degrees of freedom, the trace of the smoother matrix. Computed on access.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, when X has names that are all strings.

    See Also
    --------
    sklearn.neighbors.KNeighborsRegressor : Averages a fixed number of neighbours.
    sklearn.gaussian_process.GaussianProcessRegressor : Kernel weights that may be negative, at
        O(n_samples ** 3).

    Notes
    -----
    Features of different units need different bandwidths, or a
    :class:`sklearn.preprocessing.StandardScaler` before.

    Far from all training rows, predictions tend to the target of the nearest row (Gaussian and
    compact kernels), an exponentially weighted mean of the nearest edge of the data (Laplace) or
    the weighted mean of all targets (Student).

    A whole-number sample weight m counts as m copies of the row, 0 as an absent row. Other
    weights are importances: only their ratios matter.

    When X and y are float32, and so are the queries, results are float32 and single precision is
    used where it is accurate. Anything else is computed in float64.

    Complexity: `fit` O(n log n * d), prediction O(n_queries * n * d) time with memory
    O((n + n_queries) * d) and a few megabytes a thread.

    References
    ----------
    .. [1] E. A. Nadaraya (1964). On estimating regression. Theory of Probability and its
       Applications, 9(1), 141-142.
    .. [2] G. S. Watson (1964). Smooth regression analysis. Sankhya A, 26(4), 359-372.
    .. [3] D. W. Scott (1992). Multivariate density estimation. Wiley.
    .. [4] J. S. Marron and D. Nolan (1988). Canonical kernels for density estimation.
       Statistics & Probability Letters, 7(3), 195-199.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn import NadarayaWatsonRegressor
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> y = np.array([0.0, 1.0, 4.0, 9.0])
    >>> model = NadarayaWatsonRegressor(bandwidth=0.5).fit(X, y)
    >>> model.predict([[1.5], [100.0]]).round(3)
    array([2.536, 9.   ])
    >>> model.attention_weights([[1.5]]).round(3)
    array([[0.009, 0.491, 0.491, 0.009]])
    >>> model.effective_neighbors([[1.5]]).round(2)
    array([2.07])
    """

    _parameter_constraints = {
        "bandwidth": [
            Interval(Real, 0, None, closed="right"),
            "array-like",
            StrOptions(set(RULES)),
        ],
        "kernel": [StrOptions(set(KERNELS)), callable],
        "extrapolation": [StrOptions({"nearest", "nan", "raise"})],
        "algorithm": [StrOptions({"auto", "dense"})],
        "n_jobs": [
            Interval(Integral, None, -1, closed="right"),
            Interval(Integral, 1, None, closed="left"),
            None,
        ],
    }

    def __init__(
        self,
        bandwidth="scott",
        *,
        kernel="gaussian",
        extrapolation="nearest",
        algorithm="auto",
        n_jobs=None,
    ):
        self.bandwidth = bandwidth
        self.kernel = kernel
        self.extrapolation = extrapolation
        self.algorithm = algorithm
        self.n_jobs = n_jobs

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None):
        """Store the training rows and resolve the bandwidth.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The training rows: finite numbers. Data frames are taken by position; their column
            names are remembered.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets: finite numbers.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            Non-negative, not all zero. Whole numbers are multiplicities: weight 2 is the row
            twice, 0 no row at all. Other weights are importances. None is one for each row.

        Returns
        -------
        self : NadarayaWatsonRegressor
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or the data are out of range; the message names which and the rule.
        """
        with all_or_nothing(self):
            X, y = check_rows(self, X, y, reset=True)
            weights = check_weights(sample_weight, X)
            self._set_keys(X, y, weights, self._resolve_bandwidth(X, weights))
        return self

    def _resolve_bandwidth(self, X, weights):
        if isinstance(self.bandwidth, str):
            present = weights > 0.0
            rows = X[present].astype(np.float64)
            return rule_of_thumb(self.bandwidth, rows, weights[present], get_kernel(self.kernel))
        return _given_bandwidth(self.bandwidth, X.shape[1])


def _given_bandwidth(bandwidth, n_features):
    """A bandwidth for each feature from the numbers a user gave."""
    rule = "must be one positive number, or one for each feature (inf smooths a feature out)"
    try:
        given = np.asarray(bandwidth)
    except ValueError as error:  # lists of unequal lengths
        raise ValueError(f"bandwidth {rule}; got {bandwidth!r}.") from error
    if given.dtype.kind not in "iuf":
        raise ValueError(f"bandwidth {rule}; got {bandwidth!r} of type {given.dtype}.")
    numbers = given.astype(np.float64)
    if numbers.ndim > 1 or (numbers.ndim == 1 and numbers.size != n_features):
        raise ValueError(
            f"bandwidth {rule}; got an array of shape {numbers.shape} for n_features={n_features}."
        )
    if not (numbers > 0.0).all():
        raise ValueError(f"bandwidth {rule}; got {bandwidth!r}.")
    return np.full(n_features, 1.0) * numbers
