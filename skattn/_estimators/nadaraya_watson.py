"""Nadaraya-Watson regression in closed form."""

from __future__ import annotations

from numbers import Integral, Real

from sklearn.utils.validation import check_is_fitted

from skattn._bandwidth import (
    CRITERIA,
    RULES,
    SelectionSettings,
    criterion_curve,
    neighbors_curve,
    rule_of_thumb,
    select_bandwidth,
    select_neighbors,
)
from skattn._estimators._bandwidths import (
    check_applicable,
    check_neighbors,
    check_selectable,
    given_bandwidth,
    given_bandwidths,
    given_numbers,
    warn_of_unfinished_search,
)
from skattn._estimators._regressor import COMMON_CONSTRAINTS, AttentionRegressor
from skattn._estimators._training import all_or_nothing, read_training_data
from skattn._geometry.scaling import key_spread
from skattn._geometry.transforms import LocalBasis, Scaler
from skattn._sklearn import Interval, Options, StrOptions, fit_context
from skattn._smoother import Component, LocalLinear
from skattn.kernels import KERNELS, get_kernel


class NadarayaWatsonRegressor(AttentionRegressor):
    r"""Kernel regression as attention over the training rows.

    The prediction at a query :math:`q` is the attention-weighted mean of the training targets
    :math:`v_i`, with the training rows :math:`k_i` as keys and sample weights :math:`s_i`:

    .. math::

        f(q) = \sum_i w_i(q)\, v_i, \qquad
        w_i(q) = \frac{s_i\, K(\|(q - k_i) / h\|)}{\sum_j s_j\, K(\|(q - k_j) / h\|)} ,

    or, with ``degree=1``, the value at :math:`q` of the line that fits the targets best under these
    weights. With the Gaussian kernel they are :math:`\mathrm{softmax}_i(-\|(q - k_i)/h\|^2 / 2)`.
    Fitting stores the training rows and chooses the bandwidth :math:`h`, by default one for each
    feature that minimises the leave-one-out error, in Gauss-Newton steps from many starts. Weights
    are computed in the log domain wherever they underflow, so that predictions are finite however
    far a query is from the training rows.

    Parameters
    ----------
    bandwidth : str, float or array-like of shape (n_features,), default="loo"
        The scale :math:`h` of the kernel, in the units of the features.

        - "loo" minimises the mean squared leave-one-out error (R np's "cv.ls", statsmodels'
          "cv_ls"), "gcv" generalised cross-validation and "aicc" the corrected Akaike criterion
          (R np's "cv.aic"). See `anisotropic`, `max_queries`, and `sample_weight` and `groups` of
          `fit`.
        - A positive number is used for every feature, an array holds one for each. Infinity
          smooths a feature out: it no longer matters (with ``degree=1``, it matters linearly).
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
        picklable if the estimator is to be. Some 1e8 bandwidths from the data, where squared
        distances to all training rows round to the same number, it weights them alike.
    degree : {0, 1}, default=0
        Degree of the polynomial that is fitted around each query. 0 is the weighted mean. 1 is the
        local line: without the bias of the mean at the boundary of the data and where they are
        denser on one side, and exact for linear targets; it extrapolates beyond the data, and its
        `attention_weights` may be negative. More than 30 features have slopes along their 30
        leading principal components only.
    anisotropic : bool, default=True
        Whether a bandwidth that is selected is sought for each feature. False seeks one multiple
        of the features' spreads, as the rules of thumb do; only for a `bandwidth` that is selected.
    adaptive : {"query", "key"}, default=None
        Whether bandwidths follow the density of the data, by the distance to the `n_neighbors`-th
        nearest training row. With it, `bandwidth` only says how features compare: distances are
        in units of it. "query" divides the distances of each query by the query's own radius (R
        np's "generalized_nn", the span of loess), "key" those of each training row by the row's,
        with weights :math:`K(u) / r_i^d` (R np's "adaptive_nn"). None does not.
    n_neighbors : int, default=None
        The number of neighbours that `adaptive` bandwidths reach. A training row is not its own
        neighbour. None selects it by the criterion `bandwidth` names, or else by "loo". Only with
        `adaptive`.
    extrapolation : {"nearest", "nan", "raise"}, default="nearest"
        What happens to queries outside every support of a compact kernel. "nearest" gives their
        weight to the nearest training row, shared among ties: the limit of vanishing tails.
        "nan" gives NaN and one warning with the count, "raise" raises ValueError.
    algorithm : {"auto", "dense", "exact"}, default="auto"
        How the sums over training rows are computed; all give the same numbers. "dense" visits
        every pair of query and training row, and what underflows again in the log domain. "exact"
        computes all of it there, some five times slower. "auto" chooses what is fastest.
    max_queries : int, default=4000
        Number of training rows at most at which the selection criterion is evaluated, against
        all others. Where there are more, a sample is taken, the same for any order of the rows.
    n_jobs : int, default=None
        Number of threads over blocks of queries; results do not depend on it. None means 1 unless
        in a :obj:`joblib.parallel_config` context, -1 means all processors.

    Attributes
    ----------
    bandwidth_ : ndarray of shape (n_features,)
        The bandwidth of each feature, in its units; inf for features that are smoothed out. With
        `adaptive`, relative to the radii: how features compare.
    n_neighbors_ : int
        The number of neighbours that bandwidths reach. Only available if `adaptive` is not None.
    algorithm_ : str
        How predictions are computed: "dense" or "exact".
    criterion_ : float
        The criterion at `bandwidth_`. For one target, "loo" and "gcv" are in its squared units;
        for several, each is divided by its variance and the mean is taken. NaN where no row can
        be left out. Only available if the bandwidth was selected.
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
    A selected bandwidth for each feature adapts to the units of the features. A number for all of
    them does not: put a :class:`sklearn.preprocessing.StandardScaler` before. With several targets
    one set of bandwidths serves all.

    Local lines are computed from weighted moments around the mean of the keys of each query. In a
    direction in which the keys do not differ (by 1e-4 of the bandwidth) they are flat. Beyond the
    training rows lines are extrapolated: with the Gaussian and compact kernels until a single row
    has all the weight, whose target is the limit; without end with "laplace" and "student", and in
    features that are smoothed out. Isolated rows make leave-one-out prefer bandwidths that nearly
    interpolate; `adaptive` cures that.

    With `adaptive`, each criterion is minimised over the numbers of neighbours: for features in
    units of their spread and, if `anisotropic`, of the bandwidths selected without `adaptive`.
    Radii are at least the first positive distance. In leave-one-out, the row that is left out
    counts for no radius; with `groups` or importances, it counts for those of other rows ("key").

    Far from all training rows, predictions of degree 0 tend to the target of the nearest row
    (Gaussian and compact kernels), an exponentially weighted mean of the nearest edge of the data
    (Laplace) or the weighted mean of all targets (Student).

    A whole-number sample weight m counts as m copies of the row, 0 as an absent row. Other
    weights are importances: only their ratios matter. Leave-one-out removes one unit of a row's
    weight, or, with importances, every row of the same features. It is fooled by copies of rows,
    which predict each other: give what belongs together a common label in `groups`.

    Coordinates are divided by the bandwidth before they are subtracted, which costs the relative
    accuracy of weights about 1e-16 times the range of the data in bandwidths.

    When X and y are float32, and so are the queries, results are float32 and single precision is
    used where it is accurate. Anything else is computed in float64.

    Complexity: `fit` O(n log n * d) and, when the bandwidth is selected, a few dozen times
    O(min(n, max_queries) * n * d) time; prediction O(n_queries * n * d) time; both with memory
    O((n + n_queries) * d) and about 2 MiB a thread. Local lines take O(d**2) for d in time, and
    about 8 MiB and O(n * d**2) memory a thread.

    References
    ----------
    .. [1] E. A. Nadaraya (1964). On estimating regression. Theory of Probability and its
       Applications, 9(1), 141-142.
    .. [2] G. S. Watson (1964). Smooth regression analysis. Sankhya A, 26(4), 359-372.
    .. [3] D. W. Scott (1992). Multivariate density estimation. Wiley.
    .. [4] J. S. Marron and D. Nolan (1988). Canonical kernels for density estimation.
       Statistics & Probability Letters, 7(3), 195-199.
    .. [5] P. Craven and G. Wahba (1979). Smoothing noisy data with spline functions. Numerische
       Mathematik, 31, 377-403.
    .. [6] C. M. Hurvich, J. S. Simonoff and C.-L. Tsai (1998). Smoothing parameter selection in
       nonparametric regression using an improved Akaike information criterion. Journal of the
       Royal Statistical Society B, 60(2), 271-293.
    .. [7] J. Fan and I. Gijbels (1996). Local polynomial modelling and its applications. Chapman
       and Hall.

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

    Chosen by leave-one-out, each feature has its own bandwidth; the second one, which is
    irrelevant, is smoothed out:

    >>> rng = np.random.default_rng(1)
    >>> X = rng.uniform(size=(200, 2))
    >>> y = np.sin(6 * X[:, 0]) + 0.2 * rng.standard_normal(200)
    >>> NadarayaWatsonRegressor().fit(X, y).bandwidth_.round(3)
    array([0.017,   inf])

    Local lines have no need to bend towards the mean at the boundary, and allow for more smoothing:

    >>> model = NadarayaWatsonRegressor(degree=1).fit(X, y)
    >>> model.bandwidth_.round(3)
    array([0.048,   inf])
    >>> mean, std = model.predict([[1.0, 0.5]], return_std=True)
    >>> mean.round(2), std.round(2)
    (array([-0.05]), array([0.11]))
    """

    _parameter_constraints = {
        "bandwidth": [
            Interval(Real, 0, None, closed="right"),
            "array-like",
            StrOptions(CRITERIA.keys()),
            StrOptions(RULES.keys()),
        ],
        "kernel": [StrOptions(KERNELS.keys()), callable],
        "degree": [Options(Integral, {0, 1})],
        "anisotropic": ["boolean"],
        "adaptive": [StrOptions({"query", "key"}), None],
        "n_neighbors": [Interval(Integral, 1, None, closed="left"), None],
        "max_queries": [Interval(Integral, 1, None, closed="left")],
        **COMMON_CONSTRAINTS,
    }

    def __init__(
        self,
        bandwidth="loo",
        *,
        kernel="gaussian",
        degree=0,
        anisotropic=True,
        adaptive=None,
        n_neighbors=None,
        extrapolation="nearest",
        algorithm="auto",
        max_queries=4000,
        n_jobs=None,
    ):
        self.bandwidth = bandwidth
        self.kernel = kernel
        self.degree = degree
        self.anisotropic = anisotropic
        self.adaptive = adaptive
        self.n_neighbors = n_neighbors
        self.extrapolation = extrapolation
        self.algorithm = algorithm
        self.max_queries = max_queries
        self.n_jobs = n_jobs

    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None, groups=None):
        """Store the training rows and choose the bandwidth.

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
        groups : array-like of shape (n_samples,), default=None
            Labels of what belongs together, such as copies of a row, a patient's visits or a
            block of time. Leave-one-out, in "loo" and in ``predict(None)``, leaves a whole group
            out. Not used by "gcv" and "aicc", which leave nothing out and refuse it.

        Returns
        -------
        self : NadarayaWatsonRegressor
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter or the data are out of range; the message names which and the rule. If
            the bandwidth is to be selected and no row or group is left to judge it by.
        """
        with all_or_nothing(self):
            for name in ("criterion_", "n_neighbors_"):
                if hasattr(self, name):
                    delattr(self, name)
            training = read_training_data(self, X, y, sample_weight, groups)
            kernel = get_kernel(self.kernel)
            self.bandwidth_, n_neighbors = self._choose(training.training_set, kernel)
            component = self._component(training.training_set, kernel, self.bandwidth_)
            if n_neighbors is not None:
                component = component.with_neighbors(self.adaptive, n_neighbors)
                self.n_neighbors_ = n_neighbors
            self._store(component, training)
        return self

    def _component(self, training_set, kernel, bandwidth):
        """The training rows as keys at a bandwidth for each feature."""
        X, weights = training_set.X[training_set.keys], training_set.weights[training_set.keys]
        scaler = Scaler.around(X, bandwidth)
        if self.degree == 0:
            return Component.of(training_set, kernel, scaler)
        basis = LocalBasis.around(X, weights, bandwidth, key_spread(training_set))
        return Component.of(training_set, kernel, scaler, basis, LocalLinear())

    def criterion_curve(self, bandwidths, criterion="loo"):
        """The selection criterion of the training rows at given bandwidths, for plots.

        Parameters
        ----------
        bandwidths : array-like of shape (n_bandwidths,) or (n_bandwidths, n_features)
            Positive, in the units of the features; one for all features, or one for each. inf
            smooths a feature out. With `adaptive`, numbers of neighbours of shape (n_numbers,).
        criterion : {"loo", "gcv", "aicc"}, default="loo"
            Which criterion.

        Returns
        -------
        values : ndarray of shape (n_bandwidths,)
            In the units of `criterion_`.

        Notes
        -----
        Time O(n_bandwidths * min(n_samples, max_queries) * n_samples * n_features).
        """
        check_is_fitted(self)
        if criterion not in CRITERIA:
            raise ValueError(f"criterion must be one of {tuple(CRITERIA)}; got {criterion!r}.")
        training_set = self._smoother.training_set
        if CRITERIA[criterion].leaves_out:
            self._check_left_out()
        settings = self._settings(criterion, self._smoother.kernel)
        if self.adaptive is not None:
            numbers = given_numbers(bandwidths, self.adaptive)
            check_neighbors(int(numbers.max()), training_set)
            return neighbors_curve(training_set, settings, self.adaptive, self.bandwidth_, numbers)
        rows = given_bandwidths(bandwidths, self.n_features_in_)
        return criterion_curve(training_set, settings, rows)

    def _choose(self, training_set, kernel):
        """Resolve the parameters to a bandwidth for each feature, and a number of neighbours."""
        check_applicable(self.adaptive, self.n_neighbors, self.anisotropic, self.bandwidth)
        name = self.bandwidth if self._is_selected() else "loo"
        if self._is_selected():
            check_selectable(training_set, name, f"bandwidth={name!r}")
        elif self.adaptive is not None and self.n_neighbors is None:
            check_selectable(training_set, name, "n_neighbors=None")
        bandwidth = self._given_or_selected(training_set, kernel)
        if self.adaptive is None:
            return bandwidth, None
        check_neighbors(self.n_neighbors, training_set)
        if not self._is_selected() and self.n_neighbors is not None:
            return bandwidth, int(self.n_neighbors)
        candidates = [bandwidth]
        if self._is_selected() and self.anisotropic and bandwidth.size > 1:
            candidates.append(key_spread(training_set))
        settings = self._settings(name, kernel)
        bandwidth, number, self.criterion_ = select_neighbors(
            training_set, settings, self.adaptive, candidates, self.n_neighbors
        )
        return bandwidth, number

    def _is_selected(self):
        return isinstance(self.bandwidth, str) and self.bandwidth in CRITERIA

    def _given_or_selected(self, training_set, kernel):
        """A bandwidth for each feature."""
        n_features, keys = training_set.X.shape[1], training_set.keys
        if not isinstance(self.bandwidth, str):
            return given_bandwidth(self.bandwidth, n_features)
        if self.bandwidth in RULES:
            X, weights = training_set.X[keys], training_set.weights[keys]
            return rule_of_thumb(RULES[self.bandwidth], X, weights, kernel)
        if self.adaptive is not None and (n_features == 1 or not self.anisotropic):
            return key_spread(training_set)
        settings = self._settings(self.bandwidth, kernel)
        selected = select_bandwidth(training_set, settings, anisotropic=self.anisotropic)
        if not selected.has_converged:
            warn_of_unfinished_search(self.bandwidth)
        self.criterion_ = selected.value
        return selected.bandwidth

    def _settings(self, name, kernel):
        resources = self._resources()
        return SelectionSettings(CRITERIA[name], kernel, self.max_queries, resources, self.degree)
