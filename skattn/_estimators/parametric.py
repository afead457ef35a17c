"""Attention whose weights are learned."""

from __future__ import annotations

from numbers import Integral, Real

import numpy as np
from joblib import effective_n_jobs
from sklearn.exceptions import ConvergenceWarning

from skattn._estimators._learned import LearnedMixin
from skattn._estimators._planning import SOLVERS, check_learnable, plan_of
from skattn._estimators._regressor import COMMON_CONSTRAINTS, AttentionRegressor
from skattn._estimators._training import (
    all_or_nothing,
    read_training_data,
    warn_of_copies,
    warn_user,
)
from skattn._estimators.linear import Linear
from skattn._sklearn import (
    CallbackSupportMixin,
    Interval,
    Options,
    Steps,
    StrOptions,
    fit_context,
    with_callbacks,
)
from skattn.kernels import DIFFERENTIABLE
from skattn.solvers import Solver
from skattn.variants import Variant


class ParametricAttentionRegressor(CallbackSupportMixin, LearnedMixin, AttentionRegressor):
    r"""Kernel regression whose attention weights are learned.

    The prediction at a query :math:`q` is a local line (`degree` 1) or a mean (`degree` 0) under
    the attention weights

    .. math::

        w_i(q) \propto s_i\, K(\|A (q - k_i)\|)

    of the training rows :math:`k_i`, with a linear map :math:`A` learned by minimising the
    leave-one-out error: every row is predicted from all the others, never from itself. Training
    runs on tensors of PyTorch, mostly in a few damped Gauss-Newton steps; the fitted estimator
    holds NumPy arrays only. A model that is named is exactly that model: ``metric="scalar",
    kernel="gaussian", degree=0`` is the textbook's one number w; only "auto" adds ranks and curves.

    Parameters
    ----------
    metric : {"auto", "scalar", "diagonal", "linear"} or :class:`Linear`, default="auto"
        The map :math:`A`: one factor w for all standardised features, one for each, or any linear
        map, learned from the best "diagonal" one. "auto" is linear for up to 20 features and
        diagonal for more, in the features and, beside them, their ranks.
    variant : object of :mod:`skattn.variants`, default=None
        What is learned beside the metric: `SampleReweighting`, `QueryScale`, `RegionScale`,
        `Mixture`, `FixedShare` or `Encoder`. It starts at the metric that "auto" solvers find.
    kernel : str, default="student"
        The profile :math:`K(u)`: "student", "gaussian", "laplace", "epanechnikov", "biweight",
        "triweight", "tricube", "triangular" or "cosine". The heavy tail of "student" leaves no
        empty neighbourhoods.
    degree : {0, 1}, default=1
        1 fits a line around each query, shrunk by a learned ridge: the most accurate choice. 0 is
        the weighted mean, whose weights explain the prediction exactly.
    curvature : "auto" or bool, default="auto"
        Whether local lines are parabolas along one axis: the direction in which a rough metric,
        learned from up to 300 queries, tells rows apart best. "auto" is for ``metric="auto"``,
        ``degree=1``; where 300 queries or more are left over, only if these are predicted better.
    alpha : float, default=1.0
        Multiplies the penalty on what is learned: log-factors are shrunk towards their best common
        value, entries of a linear map towards the best diagonal one, a variant towards nothing
        changed. At 1, the penalty weighs as a single training row does.
    init : "loo" or float, default="loo"
        Where training starts: twice as wide as the best common factor of all features of a grid, or
        at this factor of standardised features.
    solver : {"auto", "gauss-newton", "lbfgs", "adam"} or :mod:`skattn.solvers`, default="auto"
        How the loss is minimised; an object has limits and rates of its own. "auto" is
        "gauss-newton" for metrics, "lbfgs" for variants and "adam" for encoders.
        `GradientDescent` is the textbook's recipe, to the number.
    validation_fraction : float, default=None
        Share of the queries that is kept out of the loss; training stops when they are predicted no
        better for 10 steps (the `patience` of "adam"), and the best step is kept. They remain keys,
        except for an encoder. None is no early stopping; for an encoder, 0.1.
    n_estimators : int, default=1
        How many models are averaged, each learned from 60 % of the training rows as queries, at
        most 1000, drawn by `random_state`. More accurate on most data, in as many times the time.
    extrapolation : {"nearest", "nan", "raise"}, default="nearest"
        What happens to queries outside every support of a compact kernel, as in
        :class:`NadarayaWatsonRegressor`; of several components or members, outside those of one
        with a share of more than 0.001.
    algorithm : str, default="auto"
        How predictions are computed, as in :class:`NadarayaWatsonRegressor`.
    device : str, default=None
        Where training runs: "cpu" (or None), "cuda", "cuda:1", or "auto" for CUDA where there is
        one.
    n_jobs : int, default=None
        Number of threads, in prediction and, of more than 2000 rows, in training. None means 1
        unless in a :obj:`joblib.parallel_config` context, -1 means all processors.
    random_state : int, RandomState instance or None, default=None
        Which rows are held out, the queries of several members, the batches of "adam", what
        `dropout` drops, and the first weights of networks. None draws anew.

    Attributes
    ----------
    w_ : ndarray of shape (n_features,)
        The factor of each feature, in its unit: the inverse of its bandwidth, 0 for constant
        features. For a linear map, the norm of the feature's row of it; where it depends on the
        row, of several components or of members, a root mean square.
    bandwidth_ : ndarray of shape (n_features,)
        1 / `w_`.
    members_ : list of length `n_estimators`
        What was learned, an object for each model. Its `projections` and `rank_weights` are lists
        of what features (n_features, n_coordinates) and their standardised ranks (n_features,) are
        multiplied with, for each component, and `shares` the mean shares of these. `ridge` shrinks
        the slopes of lines and `curvature_axis` (n_features,) is the axis along which they bend,
        both in standardised features; `sample_factors` (n_samples,) multiply the weights of the
        training rows. What was not learned is 0, factors 1. `loss_curve`, `validation_scores`,
        `loo_score` and `holdout_score` are as the following attributes.
    loss_curve_ : list of float
        The loss before the first step, and after each: the logarithm of the mean squared
        leave-one-out error of standardised targets (plus 1e-6), plus the penalty; for
        `GradientDescent` the sum of squared errors. A variant continues the curve, with a penalty
        of its own. Of several members, that of the first.
    validation_scores_ : list of float
        R squared at the validation rows, before the first step and after each; empty without.
    n_iter_ : int
        Number of steps; the largest of several members.
    loo_score_ : float
        R squared of the leave-one-out predictions of the queries of training. Optimistic: the model
        was chosen for it. Of several members, their mean.
    holdout_score_ : float
        R squared of leave-one-out predictions of up to 1000 training rows that were no queries in
        training (for an encoder, no keys either); NaN where all were. Of several members, each row
        is predicted by those of which it was no query.
    device_ : str
        Where training ran.
    algorithm_ : str
        The engine that predicts.
    effective_dof_ : float
        Effective degrees of freedom, the trace of the smoother matrix. Computed on access.
    n_features_in_ : int
        Number of features seen during `fit`.
    feature_names_in_ : ndarray of shape (`n_features_in_`,)
        Names of the features, when X has names that are all strings.

    See Also
    --------
    NadarayaWatsonRegressor : Weights in closed form, without PyTorch.

    Notes
    -----
    Features and targets are standardised before training. Of more than 1000 training rows, 1000
    are queries in training, evenly spaced in their sorted order; all are keys. From more than 500
    rows, single precision is used in training.

    The prior is a normal distribution of the log-factors around their best common value, with a
    standard deviation of 1 (1.4 at degree 0), of the logarithm of the ridge, with 1, and of the
    entries of a linear map around the diagonal one, in units of its factors, with 0.1.

    Complexity: a step of training takes O(n_queries * n * (d**2 + k)) time for k parameters at
    degree 1, O(n_queries * n * d) at degree 0, and O(n * d**2) memory.

    References
    ----------
    .. [1] K. Q. Weinberger and G. Tesauro (2007). Metric learning for kernel regression. AISTATS.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn import ParametricAttentionRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (200, 3))
    >>> y = np.sin(4 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(200)
    >>> model = ParametricAttentionRegressor(metric="linear").fit(X, y)
    >>> model.predict([[0.3, 0.5, 0.0]]).round(1)
    array([1.4])
    """

    _parameter_constraints = {
        "metric": [StrOptions({"auto", "scalar", "diagonal", "linear"}), Linear],
        "variant": [Variant, None],
        "kernel": [StrOptions(DIFFERENTIABLE)],
        "degree": [Options(Integral, {0, 1})],
        "curvature": [StrOptions({"auto"}), "boolean"],
        "alpha": [Interval(Real, 0, None, closed="left")],
        "init": [StrOptions({"loo"}), Interval(Real, 0, None, closed="neither")],
        "solver": [StrOptions({"auto", *SOLVERS}), Solver],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither"), None],
        "n_estimators": [Interval(Integral, 1, None, closed="left")],
        "device": [str, None],
        "random_state": ["random_state"],
        **COMMON_CONSTRAINTS,
    }

    def __init__(
        self,
        metric="auto",
        *,
        variant=None,
        kernel="student",
        degree=1,
        curvature="auto",
        alpha=1.0,
        init="loo",
        solver="auto",
        validation_fraction=None,
        n_estimators=1,
        extrapolation="nearest",
        algorithm="auto",
        device=None,
        n_jobs=None,
        random_state=None,
    ):
        self.metric = metric
        self.variant = variant
        self.kernel = kernel
        self.degree = degree
        self.curvature = curvature
        self.alpha = alpha
        self.init = init
        self.solver = solver
        self.validation_fraction = validation_fraction
        self.n_estimators = n_estimators
        self.extrapolation = extrapolation
        self.algorithm = algorithm
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None, groups=None):
        """Learn the metric, and store the training rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The training rows: finite numbers.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets: finite numbers. Several outputs share one model.
        sample_weight, groups : array-like of shape (n_samples,), default=None
            As for :class:`NadarayaWatsonRegressor`: multiplicities or importances, and labels of
            what is left out together.

        Returns
        -------
        self : ParametricAttentionRegressor
            The fitted estimator.

        Raises
        ------
        ImportError
            If PyTorch is not installed.
        ValueError
            If a parameter or the data are out of range; the message names which and the rule.
        """
        fitting, devices = _import_learning()
        with all_or_nothing(self):
            plan = plan_of(self)
            steps = Steps(self, None if plan.has_stages else plan.metric_solver.max_iter + 1, X, y)
            training = read_training_data(self, X, y, sample_weight, groups)
            check_learnable(training.training_set, plan.metric)
            warn_of_copies(training.training_set)
            device = devices.resolve_device(self.device)

            def notify(smoother):
                return steps.ended(lambda: self._as_fitted(smoother(), training))

            listeners = notify, lambda: steps.stopped
            n_threads = effective_n_jobs(self.n_jobs)
            ensemble = fitting.learn(training.training_set, plan, device, n_threads, *listeners)
            self.device_ = str(device)
            self._describe(ensemble)
            self._store(ensemble.smoother(), training)
            steps.close(dict(vars(self)))
        return self

    def _as_fitted(self, smoother, training):
        """The attributes that predictions need, as if training had stopped."""
        names = ("n_features_in_", "feature_names_in_")
        known = {name: getattr(self, name) for name in names if hasattr(self, name)}
        known |= {"_single_output": training.single_output, "_dtype": training.dtype}
        return known | {"_smoother": smoother, "bandwidth_": np.full(self.n_features_in_, np.nan)}

    def _describe(self, ensemble):
        """Set what tells about the members, in the units of the features."""
        self.w_ = ensemble.feature_factors()
        with np.errstate(divide="ignore"):
            self.bandwidth_ = 1.0 / self.w_
        self.members_ = [member.member() for member in ensemble.members]
        first = self.members_[0]
        self.loss_curve_, self.validation_scores_ = first.loss_curve, first.validation_scores
        self.n_iter_ = max(max(len(member.loss_curve) - 1, 0) for member in self.members_)
        self.loo_score_ = float(np.mean([member.loo_score for member in self.members_]))
        self.holdout_score_ = ensemble.holdout_score()
        if not all(member.learned.has_converged for member in ensemble.members):
            warn_user(
                f"Training has not converged within the steps of solver={self.solver!r}; the best "
                "parameters are kept. Use a solver with a larger max_iter or tol.",
                ConvergenceWarning,
            )


def _import_learning():
    try:
        from skattn._learning import device, fit
    except ImportError as error:
        raise ImportError(
            "ParametricAttentionRegressor learns with PyTorch, which is not installed: "
            'pip install "skattn[torch]".'
        ) from error
    return fit, device
