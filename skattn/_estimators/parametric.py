"""Attention whose weights are learned."""

from __future__ import annotations

import warnings
from dataclasses import replace
from numbers import Integral, Real

import numpy as np
from joblib import effective_n_jobs
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Bunch, check_random_state
from sklearn.utils.validation import check_is_fitted

from skattn._sklearn import (
    CallbackSupportMixin,
    Interval,
    Options,
    Steps,
    StrOptions,
    check_groups,
    check_rows,
    check_weights,
    fit_context,
    with_callbacks,
)
from skattn._estimators._base import all_or_nothing, is_whole, warn_of_copies
from skattn._estimators._design import Design
from skattn._estimators._inference import AttentionInference
from skattn._estimators._members import (
    Division,
    Member,
    is_one_metric,
    mean_factors,
    mixed_keys,
    out_of_bag,
)
from skattn._estimators._nadaraya_watson import NadarayaWatsonRegressor
from skattn._geometry import Table
from skattn.kernels import KERNELS, get_kernel
from skattn._smoother import Keys, weights_by_head

# Of more training rows, so many are queries in training.
_MOST_QUERIES = 1000
# The same for encoders, which learn from a batch at a time; and the largest share of all rows.
_MOST_QUERIES_OF_AN_ENCODER, _ENCODED = 8000, 0.9
# Of fewer rows, several threads wait for each other in training more than they compute.
_THREADED_ROWS = 2000
# The share of the rows that are queries of each of several members.
_SHARE_OF_A_MEMBER = 0.6
# More rows are learned from in single precision: the loss is the same to 1e-5, in half the time.
_DOUBLE_ROWS = 500
# So many rows that a rough metric was not learned from say whether lines should bend.
_ENOUGH_TO_CHOOSE = 300
# Of more features, "auto" learns factors only: full maps have many entries, and overfit.
_MOST_PROJECTED = 20
_LEARNABLE = {name for name, kernel in KERNELS.items() if kernel.has_slope}


class ParametricAttentionRegressor(CallbackSupportMixin, AttentionInference):
    r"""Kernel regression whose attention weights are learned.

    The prediction at a query :math:`q` is a local line (`degree` 1) or a mean (`degree` 0) under
    the attention weights

    .. math::

        w_i(q) \propto s_i\, K(\|A (q - k_i)\|)

    of the training rows :math:`k_i`, with a linear map :math:`A` learned by minimising the
    leave-one-out error: every row is predicted from all the others, never from itself. Derivatives
    are in closed form, on tensors of PyTorch, and a few damped Gauss-Newton steps suffice. The
    fitted estimator holds NumPy arrays only, and predicts without PyTorch.

    Parameters
    ----------
    parametrization : {"auto", "scalar", "feature", "projection"}, default="auto"
        What :math:`A` is. "scalar" is one factor w for all standardised features, "feature" one
        for each, "projection" any linear map, learned from the best of "feature" and shrunk
        towards it, with `n_components` rows. "auto" is "projection" for up to 20 features and
        "feature" for more; for ``solver="sgd"`` it is "scalar".
    modifier : {"sample", "dynamic", "hierarchical"}, default=None
        What is learned beside the metric. "sample" is a factor :math:`c_i` for the weight of each
        training row, for rows that are not to be trusted: as many numbers more. "dynamic" is a
        factor of all of :math:`A` at each query, :math:`\exp(\tanh(xW + b)\,v)` with 8 units:
        8 (d + 2) numbers for d features. With the Laplace kernel, logits are then the energies
        :math:`-w(x)\, \|A(x - x_i)\|`. "hierarchical" is the same from the factors of up to 8
        regions, which rows belong to by degrees. One of this, `n_heads`, `mixture` and
        `hidden_layer_sizes` at most.
    kernel : str, default="student"
        The profile :math:`K(u)`: "student", "gaussian", "laplace", "epanechnikov", "biweight",
        "triweight", "tricube", "triangular" or "cosine". The heavy tail of "student" leaves no
        empty neighbourhoods.
    degree : {0, 1}, default=1
        1 fits a line around each query, shrunk by a learned ridge: the most accurate choice. 0 is
        the weighted mean: a convex combination of training targets, whose weights explain the
        prediction exactly.
    n_components : int, default=None
        Coordinates of a "projection"; None for one for each feature, and for each feature's ranks,
        which larger numbers are too. Not used by other parametrisations.
    rank_features : bool, default=True
        Whether the ranks of the features join them in the metric, with factors of their own: what
        counts may be how many training rows lie between two values. Lines are in the features.
    curvature : bool, default=True
        Whether local lines may bend along one axis: the direction in which a rough metric, learned
        from up to 300 queries, tells rows apart best. Along it, fits are parabolas. Where 300
        queries or more are left over, lines stay straight unless these are predicted better. Not
        used at degree 0.
    n_heads : int, default=1
        How many metrics are mixed: each head h has factors of its own for all features, and a share
        of every prediction, :math:`f(x) = \sum_h g_h(x) f_h(x)` with gates
        :math:`g(x) = \operatorname{softmax}(xG + b)`. d + 1 numbers and a metric for each.
    mixture : bool, default=False
        Whether predictions are mixed from two: :math:`\lambda` of the learned weights, the rest of
        those of the best common factor of all features. One number, `mixture_weight_`.
    hidden_layer_sizes : tuple of int, default=()
        Layers of a network whose outputs join the coordinates that distances are measured in, the
        same for queries and training rows. Features enter as sines and cosines of 8 learned
        frequencies each, and as they are. Rows held out (`validation_fraction`) are no keys in
        training, which stops when they are predicted no better. For 2000 rows and more, with
        `dropout` of about 0.5.
    alpha : float, default=None
        Multiplies the penalty on what is learned: log-factors are shrunk towards their best common
        value, entries of a projection towards the best diagonal one. At 1, which None is, the
        penalty weighs as a single training row does. What is learned beside a metric is shrunk
        towards nothing changed. With ``solver="sgd"``, multiplies the norm of
        w, and None is 0.
    dropout : float, default=0.0
        The probability with which a query misses a training row in a step of training, which is
        then that of "adam", after a metric has been learned without.
    init : "loo" or float, default="loo"
        Where training starts: "loo" is twice as wide as the best common factor of all features of a
        grid, a positive number the factor itself (of standardised features, of features as they are
        for "sgd").
    solver : {"auto", "gauss-newton", "lbfgs", "adam", "sgd"}, default="auto"
        How the loss is minimised. "auto" is "gauss-newton", and for what is learned beside a metric
        "lbfgs", or "adam" for encoders and with `dropout`. "lbfgs" is SciPy's, "adam" takes
        gradients at `batch_size` queries at a time. "sgd" is the textbook's recipe, to the number:
        plain gradient descent with step `learning_rate_init` on the sum of squared errors, in w
        itself, on features and targets as they are; it needs ``degree=0``,
        ``rank_features=False``, and no "projection".
    learning_rate_init : float, default=None
        The step of "sgd" (None is 0.5) and of "adam" (None is 0.05, and 0.003 for an encoder).
    batch_size : int, default=200
        Queries at a time, for "adam".
    max_iter : int, default=100
        Steps at most, twice as many for projections, and three times as many again for what is
        learned beside a metric; epochs for "adam" and "sgd".
    tol : float, default=1e-4
        Training has converged when a step lowers the loss by less; beside a metric a tenth of it,
        in units of the loss where that is above 1.
    early_stopping : bool, default=False
        Whether a share of the training rows is kept out of the loss, and training stops when they
        are predicted no better for `n_iter_no_change` steps; the best step is kept. They remain
        keys.
    validation_fraction : float, default=0.1
        That share.
    n_iter_no_change : int, default=10
        Those steps; and, for "adam", the epochs without a lower loss after which it has converged.
    n_estimators : int, default=1
        How many models are averaged, each learned from 60 % of the training rows as queries, at
        most 1000, drawn by `random_state`. All rows are keys of all. More accurate on most data,
        in as many times the time.
    warm_start : bool, default=False
        Whether to start at the factors of the previous fit. A projection starts anew, at the best
        factors, and so does what is learned beside a metric.
    extrapolation : {"nearest", "nan", "raise"}, default="nearest"
        What happens to queries outside every support of a compact kernel, as in
        :class:`NadarayaWatsonRegressor`; of several heads or members, outside those of one with a
        share of more than 0.001.
    device : str, default=None
        Where training runs: "cpu", "cuda", "cuda:1", or "auto" for CUDA where there is one. None
        is the CPU.
    n_jobs : int, default=None
        Number of threads, in prediction and, of more than 2000 rows, in training. None means 1
        unless in a :obj:`joblib.parallel_config` context, -1 means all processors.
    random_state : int, RandomState instance or None, default=None
        Which rows `early_stopping` or an encoder holds out, the queries of several members, the
        batches of "adam", what `dropout` drops, and the first weights of networks. None draws anew,
        without moving NumPy's global state.

    Attributes
    ----------
    w_ : ndarray of shape (n_features,)
        The factor of each feature, in its unit: the inverse of its bandwidth. For "projection",
        the norm of the feature's row of `projection_`. 0 for constant features. Where it depends on
        the row, the root mean square over training rows; of several heads or members, over them by
        their shares.
    bandwidth_ : ndarray of shape (n_features,)
        1 / `w_`.
    projection_ : ndarray of shape (n_features, n_coordinates)
        What rows are multiplied with: weights are functions of distances between the results, to
        which ranks, where there are any, are added. Of several heads (and for a mixture), a list of
        theirs. With `n_estimators`, this and the attributes that follow are lists of those of the
        members.
    rank_w_ : ndarray of shape (n_features,)
        The factor of each feature's ranks, standardised; None without `rank_features`.
    ridge_ : float
        Shrinks the slopes of local lines, in standardised features; None at degree 0.
    curvature_axis_ : ndarray of shape (n_features,)
        The axis a along which lines bend, of length one: the square of ``z @ a``, standardised,
        joins the features of the lines, where z are the standardised features. Beyond the training
        rows, it stays what it is at the last of them. None where lines do not bend.
    sample_factors_ : ndarray of shape (n_samples,)
        What multiplies the weight of each training row, the largest 1. Only with
        ``modifier="sample"``.
    mixture_weight_ : float
        The share of the learned weights. Only with ``mixture=True``.
    loss_curve_ : list of float
        The loss before the first step, and after each: the logarithm of the mean squared
        leave-one-out error of standardised targets (plus 1e-6), plus the penalty. With "sgd", the
        sum of squared errors before each step. What is learned beside a metric continues the curve,
        with a penalty of its own, counted from zero, and with `dropout` as drawn; of several
        members, it is that of the first.
    n_iter_ : int
        Number of steps; the largest of several members.
    validation_scores_ : list of float
        R squared at the rows held out, before the first step and after each; None without
        `early_stopping` or an encoder.
    loo_score_ : float
        R squared of the leave-one-out predictions of the queries of training: one less their mean
        squared error over the variance of all training targets. Optimistic: the metric was chosen
        for it. Of several members, their mean.
    honest_loo_score_ : float
        The same of up to 1000 training rows that were no queries in training; None where all
        were. For an encoder, rows that were no keys either. Of several members, each row is
        predicted by those of which it was no query.
    device_ : str
        Where training ran.
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
    Features and targets are standardised before training, so that their units do not matter. Of
    more than 1000 training rows, 1000 are queries in training, evenly spaced in their sorted order;
    all are keys.

    From more than 500 rows, metrics are learned in single precision. Predictions are computed as by
    :class:`NadarayaWatsonRegressor`.

    The prior is a normal distribution of the log-factors around their best common value, with a
    standard deviation of 1 (1.4 at degree 0), of the logarithm of the ridge, with 1, and of the
    entries of a projection around the diagonal one, in units of its factors, with 0.1.

    Complexity: a step of training takes O(n_queries * n * (d**2 + k)) time for k parameters at
    degree 1, O(n_queries * n * d) at degree 0, and O(n * d**2) memory; prediction as
    :class:`NadarayaWatsonRegressor` of the same degree.

    References
    ----------
    .. [1] K. Q. Weinberger and G. Tesauro (2007). Metric learning for kernel regression. AISTATS.
    .. [2] A. Zhang, Z. C. Lipton, M. Li and A. J. Smola (2023). Dive into Deep Learning, chapter
       11.2. Cambridge University Press.

    Examples
    --------
    The second feature counts linearly, the third one does not count:

    >>> import numpy as np
    >>> from skattn import ParametricAttentionRegressor
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(-1, 1, (200, 3))
    >>> y = np.sin(4 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(200)
    >>> model = ParametricAttentionRegressor(rank_features=False).fit(X, y)
    >>> model.predict([[0.3, 0.5, 0.0]]).round(1)
    array([1.4])
    >>> bool(model.w_[0] > 2 * model.w_[2])
    True
    """

    _parameter_constraints = {
        "parametrization": [StrOptions({"auto", "scalar", "feature", "projection"})],
        "modifier": [StrOptions({"sample", "dynamic", "hierarchical"}), None],
        "kernel": [StrOptions(_LEARNABLE)],
        "degree": [Options(Integral, {0, 1})],
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "rank_features": ["boolean"],
        "curvature": ["boolean"],
        "n_heads": [Interval(Integral, 1, None, closed="left")],
        "mixture": ["boolean"],
        "hidden_layer_sizes": ["array-like"],
        "dropout": [Interval(Real, 0, 1, closed="left")],
        "n_estimators": [Interval(Integral, 1, None, closed="left")],
        "alpha": [Interval(Real, 0, None, closed="left"), None],
        "init": [StrOptions({"loo"}), Interval(Real, 0, None, closed="neither")],
        "solver": [StrOptions({"auto", "gauss-newton", "lbfgs", "adam", "sgd"})],
        "learning_rate_init": [Interval(Real, 0, None, closed="neither"), None],
        "batch_size": [Interval(Integral, 1, None, closed="left")],
        "max_iter": [Interval(Integral, 1, None, closed="left")],
        "tol": [Interval(Real, 0, None, closed="left")],
        "early_stopping": ["boolean"],
        "validation_fraction": [Interval(Real, 0, 1, closed="neither")],
        "n_iter_no_change": [Interval(Integral, 1, None, closed="left")],
        "warm_start": ["boolean"],
        "extrapolation": [StrOptions({"nearest", "nan", "raise"})],
        "device": [str, None],
        "n_jobs": [
            Interval(Integral, None, -1, closed="right"),
            Interval(Integral, 1, None, closed="left"),
            None,
        ],
        "random_state": ["random_state"],
    }

    def __init__(
        self,
        parametrization="auto",
        *,
        modifier=None,
        kernel="student",
        degree=1,
        n_components=None,
        rank_features=True,
        curvature=True,
        n_heads=1,
        mixture=False,
        hidden_layer_sizes=(),
        alpha=None,
        dropout=0.0,
        init="loo",
        solver="auto",
        learning_rate_init=None,
        batch_size=200,
        max_iter=100,
        tol=1e-4,
        early_stopping=False,
        validation_fraction=0.1,
        n_iter_no_change=10,
        n_estimators=1,
        warm_start=False,
        extrapolation="nearest",
        device=None,
        n_jobs=None,
        random_state=None,
    ):
        self.parametrization = parametrization
        self.modifier = modifier
        self.kernel = kernel
        self.degree = degree
        self.n_components = n_components
        self.rank_features = rank_features
        self.curvature = curvature
        self.n_heads = n_heads
        self.mixture = mixture
        self.hidden_layer_sizes = hidden_layer_sizes
        self.alpha = alpha
        self.dropout = dropout
        self.init = init
        self.solver = solver
        self.learning_rate_init = learning_rate_init
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.tol = tol
        self.early_stopping = early_stopping
        self.validation_fraction = validation_fraction
        self.n_iter_no_change = n_iter_no_change
        self.n_estimators = n_estimators
        self.warm_start = warm_start
        self.extrapolation = extrapolation
        self.device = device
        self.n_jobs = n_jobs
        self.random_state = random_state

    # Splitters take groups too: passing them to a search is no request to pass them on to fit.
    __metadata_request__fit = {"groups": False}

    @with_callbacks
    @fit_context(prefer_skip_nested_validation=True)
    def fit(self, X, y, sample_weight=None, groups=None):
        """Learn the metric, and store the training rows.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            The training rows: finite numbers.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets: finite numbers. Several outputs share one metric.
        sample_weight : array-like of shape (n_samples,) or float, default=None
            As for :class:`NadarayaWatsonRegressor`.
        groups : array-like of shape (n_samples,), default=None
            Labels of what belongs together and is left out together.

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

        Warns
        -----
        ConvergenceWarning
            If training has not converged within `max_iter` steps; the best ones are kept.
        """
        learning = _import_learning()
        is_one_stage = self.parametrization in ("scalar", "feature") and self.n_estimators == 1
        is_one_stage = is_one_stage and self._kind() == "none" and not self.dropout
        most = self.max_iter + 1 if is_one_stage else None  # the start is told too
        steps = Steps(self, most, X, y)
        with all_or_nothing(self):
            X, y = check_rows(self, X, y, reset=True)
            weights, groups = check_weights(sample_weight, X), check_groups(groups, X)
            targets = y.reshape(len(y), -1).astype(np.float64)
            table = Table.canonical(X.astype(np.float64), targets, weights, groups)
            self._check_parameters(table)
            warn_of_copies(table, stacklevel=5)
            device = learning.resolve_device(self.device)
            self.device_ = str(device)
            single = np.dtype(np.float32)
            dtype = single if X.dtype == y.dtype == single else np.dtype(np.float64)
            self._single_output, self._dtype = y.ndim == 1, dtype
            keys = self._learn(learning, table, device, steps)
            self._set_keys(keys, self.bandwidth_, single_output=y.ndim == 1, dtype=dtype)
            steps.close(dict(vars(self)))
        return self

    def _check_parameters(self, table):
        """Refuse combinations that make no sense, and tables from which nothing can be learned."""
        is_plain = self.degree == 0 and not self.rank_features
        is_plain = is_plain and self.parametrization != "projection"
        if self.solver == "sgd" and not is_plain:
            raise ValueError(
                "solver='sgd', the textbook's recipe, needs degree=0, rank_features=False and a "
                f"parametrization other than 'projection'; got degree={self.degree}, "
                f"rank_features={self.rank_features}, parametrization={self.parametrization!r}."
            )
        if self.solver == "sgd" and (self.early_stopping or self.warm_start):
            raise ValueError(
                "solver='sgd', the textbook's recipe, has no early_stopping and no warm_start; got "
                f"early_stopping={self.early_stopping}, warm_start={self.warm_start}. Use another "
                "solver, or set init to the w to start at."
            )
        self._check_modifiers()
        if table.own().take(slice(0, table.n_keys)).covers(table.n_keys).any():
            raise ValueError(
                "Learning needs a training row that is not left out for every row; got "
                f"n_samples={table.n_keys} rows of positive weight (a group is left out together "
                "and, with sample weights that are no whole numbers, all rows of the same "
                "features). Fit on more distinct rows or groups."
            )

    def _check_modifiers(self):
        """Refuse what is more than one thing beside the metric, or not for the textbook."""
        given = {
            "modifier": self.modifier is not None,
            "n_heads": self.n_heads > 1,
            "mixture": self.mixture,
            "hidden_layer_sizes": len(self.hidden_layer_sizes) > 0,
        }
        named = [f"{name}={getattr(self, name)!r}" for name, is_given in given.items() if is_given]
        if len(named) > 1:
            raise ValueError(
                "One of modifier, n_heads, mixture and hidden_layer_sizes can be learned beside a "
                f"metric, since each takes the part of the others; got {', '.join(named)}. Choose "
                "one, by cross-validation if need be."
            )
        sizes = list(self.hidden_layer_sizes)
        if not all(is_whole(size) and size >= 1 for size in sizes):
            raise ValueError(
                "hidden_layer_sizes must be positive whole numbers, one for each layer, or () for "
                f"no encoder; got {self.hidden_layer_sizes!r}."
            )
        more = [*named, *(f"dropout={self.dropout}" for _ in range(self.dropout > 0.0))]
        if self.n_estimators > 1:
            more.append(f"n_estimators={self.n_estimators}")
        if self.solver == "sgd" and more:
            raise ValueError(
                "solver='sgd', the textbook's recipe, learns one metric and nothing beside it; got "
                f"{', '.join(more)}. Use solver='auto'."
            )

    def _learn(self, learning, table, device, steps):
        """The keys under a learned metric; sets the fitted attributes."""
        design = Design.of(
            learning.Problem,
            table,
            get_kernel(self.kernel),
            has_ranks=self.rank_features,
            has_lines=self.degree == 1,
            is_raw=self.solver == "sgd",
        )
        if design is None:
            return self._keys_of_the_mean(table)
        settings = self._settings(learning, design.problem)
        rng, members = _generator(self.random_state), []
        before = getattr(self, "_parameters", None) if self.warm_start else None
        before = before if before is not None and len(before) == self.n_estimators else None
        is_large = len(design.problem.weights) > _THREADED_ROWS
        with learning.limited_threads(effective_n_jobs(self.n_jobs) if is_large else 1):
            for number in range(self.n_estimators):
                rows = self._divided(design.problem, rng)
                start = None if before is None else before[number]
                if self.n_estimators > 1:
                    settings = replace(settings, seed=int(rng.randint(2**31 - 1)))
                member = self._member(learning, design, rows, settings, device, steps, start)
                members.append(member)
                if steps.stopped:
                    break
        self._describe(members)
        return mixed_keys(members)

    def _member(self, learning, design, rows, settings, device, steps, before):
        """What is learned from some of the rows as queries."""
        kind = self._kind()
        if kind == "encoder":  # which would learn the values of keys by heart
            hidden = np.concatenate([rows.validation, rows.honest])
            design = replace(design, problem=replace(design.problem, hidden=hidden))
        if self.degree == 1 and self.curvature:
            design = self._bent(learning, design, rows.queries, settings, device)

        def ended(keys):
            return steps.ended(lambda: self._as_fitted(keys()))

        def notify(matrix, ridge):
            return ended(lambda: design.keys(matrix, ridge))

        def notify_modified(now):
            return ended(lambda: design.keys_of(*now()))

        common = settings, device
        if self.solver == "sgd":
            learned = learning.descend(design.problem, *common, float(self.alpha or 0.0), notify)
        else:
            queries = rows.queries, rows.validation
            learned = learning.learn(design.problem, *queries, *common, before, notify)
        if (kind == "none" and not self.dropout) or steps.stopped:
            honest = learning.score(design.problem, rows.honest, learned, device)
            return Member.plain(design, rows, learned, honest)
        modifier = learning.Modifier(
            kind,
            self.n_heads,
            tuple(self.hidden_layer_sizes),
            float(self.dropout),
            settings.seed,
        )
        modified = learning.modify(
            design.problem, learned, rows, modifier, *common, notify_modified
        )
        return Member.modified(design, rows, learned, modified)

    def _kind(self):
        """What is learned besides a metric."""
        if self.n_heads > 1:
            return "heads"
        if self.mixture:
            return "mixture"
        return "encoder" if len(self.hidden_layer_sizes) else self.modifier or "none"

    def _bent(self, learning, design, queries, settings, device):
        """The design with lines that bend, if there are few rows or those left over say so."""
        n_plain = design.problem.n_plain
        kind = self._parametrization(n_plain, has_axis=True)
        settings = replace(settings, parametrization=kind)
        straight, others = learning.rough(design.problem, queries, settings, device)
        bent = design.bent(learning.leading_axis(straight, n_plain))
        if bent is design or len(others) < _ENOUGH_TO_CHOOSE:
            return bent
        curved, _ = learning.rough(bent.problem, queries, settings, device)
        with_curves = learning.score(bent.problem, others, curved, device)
        without = learning.score(design.problem, others, straight, device)
        return bent if with_curves >= without else design

    def _as_fitted(self, keys):
        """The attributes that predictions need, as if training had stopped."""
        names = ("n_features_in_", "feature_names_in_", "_single_output", "_dtype")
        known = {name: getattr(self, name) for name in names if hasattr(self, name)}
        return known | {"_keys": keys, "bandwidth_": np.full(self.n_features_in_, np.nan)}

    def _settings(self, learning, problem):
        return learning.Settings(
            parametrization=self._parametrization(problem.n_plain),
            n_components=self.n_components,
            alpha=1.0 if self.alpha is None else float(self.alpha),
            solver="gauss-newton" if self.solver == "auto" else self.solver,
            tolerance=self.tol,
            max_iter=self.max_iter,
            learning_rate=self.learning_rate_init,
            batch_size=self.batch_size,
            patience=self.n_iter_no_change,
            start=None if isinstance(self.init, str) else float(self.init),
            is_single=len(problem.weights) > _DOUBLE_ROWS,
            seed=self._seed(),
        )

    def _seed(self):
        """Of what training draws: batches, dropout and the first weights of networks."""
        draws = self.solver == "adam" or self.dropout or self._kind() in ("dynamic", "encoder")
        return int(_generator(self.random_state).randint(2**31 - 1)) if draws else 0

    def _parametrization(self, n_features, *, has_axis=False):
        """What "auto" is; of those with factors of their own, where an axis is to stand out."""
        is_given = self.parametrization != "auto"
        if is_given and not (has_axis and self.parametrization == "scalar"):
            return self.parametrization
        if self.solver == "sgd":
            return "scalar"
        return "projection" if n_features <= _MOST_PROJECTED else "feature"

    def _divided(self, problem, rng):
        """What each row is for."""
        n, has_encoder = len(problem.weights), len(self.hidden_layer_sizes) > 0
        most = _MOST_QUERIES
        if has_encoder and n > most:  # some are left for the honest score
            most = min(_MOST_QUERIES_OF_AN_ENCODER, int(_ENCODED * n))
        held = self.validation_fraction if self.early_stopping or has_encoder else 0.0
        drawn = _SHARE_OF_A_MEMBER if self.n_estimators > 1 else None
        return Division.of(problem.own, most, held, rng, drawn=drawn)

    def _describe(self, members):
        """Set what tells about the members, in the units of the features."""
        first, is_single = members[0], self.n_estimators == 1
        self.w_ = mean_factors(members)
        with np.errstate(divide="ignore"):
            self.bandwidth_ = 1.0 / self.w_

        def each(tell):
            values = [tell(member) for member in members]
            return values[0] if is_single else values

        self.projection_, self.rank_w_ = each(Member.projection), each(Member.rank_factors)
        self.ridge_ = each(lambda member: member.ridge) if self.degree == 1 else None
        self.curvature_axis_ = each(Member.axis)
        self._forget()
        if self.modifier == "sample":
            self.sample_factors_ = each(Member.sample_factors)
        if self.mixture:
            self.mixture_weight_ = each(Member.mixture_weight)
        self._parameters = None
        if self.solver != "sgd":
            self._parameters = [member.learned.parameters for member in members]
        self.loss_curve_, scores = first.losses, first.validation_scores
        self.n_iter_ = max(len(member.losses) for member in members) - (self.solver != "sgd")
        self.validation_scores_ = scores if len(first.rows.validation) else None
        self.loo_score_ = float(np.mean([member.score for member in members]))
        self.honest_loo_score_ = first.honest_score if is_single else out_of_bag(members)
        if not all(member.has_converged for member in members):
            warnings.warn(
                f"Training has not converged within max_iter={self.max_iter} steps; the best "
                "parameters are kept. Increase max_iter or tol.",
                ConvergenceWarning,
                stacklevel=6,
            )

    def _forget(self):
        """Attributes of an earlier fit that this one may not have."""
        for name in ("sample_factors_", "mixture_weight_"):
            if hasattr(self, name):
                delattr(self, name)

    def _keys_of_the_mean(self, table):
        """Keys that all weigh alike, where nothing can be learned."""
        n_features = table.X.shape[1]
        self.w_, self.bandwidth_ = np.zeros(n_features), np.full(n_features, np.inf)
        n_heads = self.n_heads + self.mixture

        def each(value, *, of_heads=False):
            value = [value] * n_heads if of_heads and n_heads > 1 else value
            return value if self.n_estimators == 1 else [value] * self.n_estimators

        self.projection_ = each(np.zeros((n_features, n_features)), of_heads=True)
        ranks = np.zeros(n_features) if self.rank_features else None
        self.rank_w_ = each(ranks, of_heads=True)
        self.ridge_ = each(0.0) if self.degree == 1 else None
        self.curvature_axis_ = each(None)
        self._forget()
        if self.modifier == "sample":
            self.sample_factors_ = each(np.ones(len(table.rows)))
        if self.mixture:
            self.mixture_weight_ = each(1.0)
        self.loss_curve_, self.n_iter_ = [], 0
        watches = self.early_stopping or len(self.hidden_layer_sizes)
        self.validation_scores_ = [] if watches else None
        self.loo_score_, self.honest_loo_score_, self._parameters = 0.0, None, None
        return Keys.of(table, get_kernel(self.kernel), self.bandwidth_, None, None)

    def attention_by_head(self, X):
        """Kernel weights of each head, and the shares in which they are mixed.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features) or None
            The queries; None stands for the training rows, each without itself.

        Returns
        -------
        heads : :class:`sklearn.utils.Bunch`
            With attributes

            weights : ndarray of shape (n_heads, n_queries, n_samples)
                Attention weights of the kernel, >= 0; each row sums to 1. Members of an ensemble
                are heads too, as are the learned and the fixed metric of a mixture.
            gates : ndarray of shape (n_queries, n_heads)
                Shares; each row sums to 1. At degree 0, ``sum_h gates[:, h] * weights[h]`` are the
                `attention_weights`.

        Notes
        -----
        Memory O(n_heads * n_queries * n_samples).
        """
        request, _ = self._request(X)
        table = self._keys.table
        found, outside = weights_by_head(request, self._resources(np.float64))
        weights = np.zeros((*found.shape[:2], len(table.rows)))
        weights[:, :, table.rows[: table.n_keys]] = found
        weights = self._extrapolated(weights.swapaxes(0, 1), outside, "weights").swapaxes(0, 1)
        gates = np.ones((len(request.queries), 1))
        if request.heads:
            gates = np.stack([head.gate for head in request.heads], axis=1)
        order = slice(None) if X is not None else np.argsort(table.rows)
        return Bunch(weights=weights[:, order], gates=gates[order])

    def query_factors(self, X):
        """What the factors of all features are multiplied with at each query.

        Parameters
        ----------
        X : array-like of shape (n_queries, n_features)
            The queries.

        Returns
        -------
        factors : ndarray of shape (n_queries,)
            Positive. Above 1 where fewer rows get weight than elsewhere. 1 without ``modifier``
            "dynamic" or "hierarchical"; geometric means over the members of an ensemble.
        """
        check_is_fitted(self)
        rows = check_rows(self, X, reset=False).astype(np.float64)
        members = self._keys.heads or (self._keys,)
        logs = [
            np.zeros(len(rows)) if keys.scales is None else np.log(keys.scales.factors(rows))
            for keys in members
        ]
        return np.exp(np.mean(logs, axis=0))

    def to_nadaraya_watson(self):
        """The same model as a :class:`NadarayaWatsonRegressor`, where there is one.

        Returns
        -------
        model : NadarayaWatsonRegressor
            Fitted on the same rows, with `bandwidth_` as its bandwidth.

        Raises
        ------
        ValueError
            If there is none: with ``degree=1``, whose ridge it lacks, ranks, a projection, several
            estimators or heads, or anything else learned beside a metric.
        """
        check_is_fitted(self)
        is_plain = is_one_metric(self._keys) and self.ridge_ is None and self.rank_w_ is None
        is_diagonal = is_plain and all(
            np.count_nonzero(self.projection_, axis=axis).max() <= 1 for axis in (0, 1)
        )
        if not is_diagonal:
            raise ValueError(
                "to_nadaraya_watson needs a model fitted with degree=0, rank_features=False, "
                "parametrization 'scalar' or 'feature', n_estimators=1, and nothing beside the "
                "metric (modifier, n_heads, mixture, hidden_layer_sizes); this one has "
                f"{'local lines' if self.ridge_ is not None else 'other parts'}. Fit such a model "
                "first."
            )
        table = self._keys.table
        model = NadarayaWatsonRegressor(
            self.bandwidth_,
            kernel=self._keys.kernel.name,
            extrapolation=self.extrapolation,
            n_jobs=self.n_jobs,
        )
        order = np.argsort(table.rows)
        y = table.y[order]
        groups = None if table.groups is None else table.groups[order]
        return model.fit(
            table.X[order],
            y[:, 0] if self._single_output else y,
            sample_weight=table.weights[order],
            groups=groups,
        )


def _generator(random_state):
    """Of random numbers; None is a new one, since NumPy's global one is not to move."""
    if random_state is None:
        random_state = int(np.random.default_rng().integers(2**32))
    return check_random_state(random_state)


def _import_learning():
    try:
        from skattn import _learning as learning
    except ImportError as error:
        raise ImportError(
            "ParametricAttentionRegressor learns with PyTorch, which is not installed: "
            'pip install "skattn[torch]".'
        ) from error
    return learning
