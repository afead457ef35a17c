"""Plain definitions that tests compare with, and builders of the objects that the core works on.

No definition uses an engine: attention weights follow from the formula, lines are NumPy's least
squares, and what leaves rows out fits an estimator again without them.
"""

import numpy as np
from numpy.testing import assert_allclose
from sklearn.base import clone

from skattn._attention import Attention, KeyScale, Products, Resources
from skattn._bandwidth.batched_fits import Sample
from skattn._bandwidth.criteria import CRITERIA
from skattn._bandwidth.objective import Objective, SelectionSettings
from skattn._geometry.scaling import spread
from skattn._geometry.training_set import TrainingSet
from skattn._geometry.transforms import LocalBasis, Scaler
from skattn._smoother import Component, LocalLinear, LocalMean, LocalRegression
from skattn.kernels import KERNELS, Kernel, get_kernel

COMPACT = [name for name, kernel in KERNELS.items() if np.isfinite(kernel.support)]
SLOPED = [name for name, kernel in KERNELS.items() if kernel.has_slope]
# kernels whose slope jumps, at distance zero or at the edge: fewer digits from differences
KINKED = {"laplace", "epanechnikov", "triangular"}
KERNEL_CASES = [*KERNELS, "callable"]

# ---------------------------------------------------------------------------------------------
# Builders


def column(*numbers, dtype=float):
    """Numbers as a column."""
    return np.array(numbers, dtype=dtype)[:, None]


def kernel_function(name):
    """The `kernel` a user writes; "callable" is one that is no built-in."""
    return (lambda squared: -(squared**0.7)) if name == "callable" else name


def kernel_of(name):
    return name if isinstance(name, Kernel) else get_kernel(kernel_function(name))


def attention_of(queries, keys, kernel="gaussian", weights=None, excluded=None, **scales):
    """Attention over keys of some sample weights."""
    log_weights = np.zeros(len(keys)) if weights is None else np.log(weights)
    return Attention(queries, keys, kernel_of(kernel), log_weights, excluded, **scales)


def regression_of(attention, values, regressors=None, ridge=0.0):
    """Means, or lines in the regressors of queries and of keys, whose features are coordinates."""
    at_queries, at_keys = regressors or (None, None)
    local_fit = LocalMean() if regressors is None else LocalLinear(ridge)
    d = attention.keys.shape[1]
    identity = Scaler(np.arange(d), np.zeros(d), np.ones(d))
    return LocalRegression(attention, Products(values, at_keys), local_fit, at_queries, identity)


def training_set_of(X, y, weights=None, groups=None):
    weights = np.ones(len(X)) if weights is None else np.asarray(weights, float)
    return TrainingSet.canonical(X, y.reshape(len(y), -1), weights, groups)


def component_of(training_set, bandwidth, kernel="gaussian", degree=0, ridge=0.0):
    """Training rows as keys, as NadarayaWatsonRegressor has them."""
    X, weights = training_set.X[training_set.keys], training_set.weights[training_set.keys]
    bandwidth = np.full(X.shape[1], 1.0) * bandwidth
    known = training_set, kernel_of(kernel), Scaler.around(X, bandwidth)
    if degree == 0:
        return Component.of(*known)
    basis = LocalBasis.around(X, weights, bandwidth, spread(X, weights))
    return Component.of(*known, basis, LocalLinear(ridge))


# ---------------------------------------------------------------------------------------------
# Weights, means and lines


def retained_shares(attention):
    """Share of the sample weight of each key that each query sees, (n_queries, n_keys)."""
    shares = np.ones((len(attention.queries), len(attention.keys)))
    if attention.excluded is not None:
        excluded = attention.excluded
        ranges = zip(shares, excluded.start, excluded.stop, excluded.retained, strict=True)
        for row, start, stop, retained in ranges:
            row[max(start, 0) : max(stop, 0)] = retained
    return shares


def attention_weights(attention):
    """Attention weights (n_queries, n_keys), and the logarithms of their sums before.

    A query without a key in its support gives all its weight to the nearest keys, shared by sample
    weight; its sum is zero.
    """
    with np.errstate(divide="ignore"):
        log_weights = attention.log_weights + np.log(retained_shares(attention))
    squared = ((attention.queries[:, None, :] - attention.keys) ** 2).sum(axis=2)
    radius = np.ones_like(squared)
    if attention.query_scale is not None:
        radius *= attention.query_scale[:, None]
    if attention.key_scale is not None:
        radius *= _key_radius(attention.key_scale, np.sqrt(squared), attention.excluded)
        log_weights = log_weights - attention.keys.shape[1] * np.log(radius)
    squared = squared / radius**2
    logits = log_weights + attention.kernel.log_profile(squared)
    outside = np.isneginf(logits.max(axis=1))
    away = np.where(np.isneginf(log_weights), np.inf, squared)[outside]
    is_nearest = away <= away.min(axis=1, keepdims=True) * (1.0 + 1e-12)
    logits[outside] = np.where(is_nearest, log_weights[outside], -np.inf)
    largest = logits.max(axis=1, keepdims=True)
    weights = np.exp(logits - largest)
    log_sums = np.log(weights.sum(axis=1)) + largest[:, 0]
    log_sums[outside] = -np.inf
    return weights / weights.sum(axis=1, keepdims=True), log_sums


def _key_radius(key_scale: KeyScale, away, excluded):
    if key_scale.without is None:
        return key_scale.radius
    near = away <= key_scale.radius * (1.0 + 1e-12)
    if excluded is not None:
        near &= (excluded.start < excluded.stop)[:, None]
    return np.where(near, key_scale.without, key_scale.radius)


def line(weights, keys, values, query, ridge=0.0):
    """Value at a query of the weighted line through some points, and its slopes.

    The line is flat in directions in which the points do not differ; a ridge is added to their
    variances.
    """
    weights = weights / weights.sum()
    values = values.reshape(len(values), -1)
    center, level = weights @ keys, weights @ values
    root = np.sqrt(weights)[:, None]
    penalty = np.sqrt(ridge) * np.eye(keys.shape[1])
    rows = np.vstack([root * (keys - center), penalty])
    targets = np.vstack([root * (values - level), np.zeros((len(penalty), values.shape[1]))])
    slopes = np.linalg.lstsq(rows, targets, rcond=None)[0]
    return level + (query - center) @ slopes, slopes


def lines(weights, keys, values, queries, ridge=0.0):
    """Lines at all queries under rows of weights: values and slopes."""
    found = [line(w, keys, values, q, ridge) for w, q in zip(weights, queries, strict=True)]
    return tuple(np.array(part) for part in zip(*found, strict=True))


def smoother_rows(weights, keys, queries, ridge=0.0):
    """Rows of the smoother matrix of lines: a line is linear in its values."""
    return lines(weights, keys, np.eye(len(keys)), queries, ridge)[0]


def quantiles(weights, values, levels):
    """Smallest values at which the summed weight of them and all smaller ones reaches a level."""
    order = np.argsort(values, kind="stable")
    totals = weights[order].cumsum() / weights.sum()
    return np.array([values[order][np.argmax(totals >= max(p - 1e-9, 1e-300))] for p in levels])


def differences(function, point, step=1e-5):
    """Central differences of what a function of an array returns, one for each entry."""
    for j in range(point.size):
        shift = step * (np.arange(point.size) == j)
        yield (function(point + shift) - function(point - shift)) / (2.0 * step)


# ---------------------------------------------------------------------------------------------
# Leaving out


def is_whole(weights):
    return bool((weights == np.round(weights)).all())


def weights_without(i, X, weights=None, groups=None):
    """Sample weights of all rows in the absence of row i, or of whatever is left out with it."""
    weights = np.ones(len(X)) if weights is None else np.array(weights, float)
    if groups is not None:
        weights[groups == groups[i]] = 0.0
    elif is_whole(weights):
        weights[i] = max(weights[i] - 1.0, 0.0)
    else:
        weights[(X[i] == X).all(axis=1)] = 0.0
    return weights


def refits(model, X, y, weights=None, groups=None):
    """Estimators fitted without each row."""
    for i in range(len(X)):
        left = weights_without(i, X, weights, groups)
        kept = left > 0.0
        yield clone(model).fit(X[kept], y[kept], sample_weight=left[kept])


def leave_one_out(model, X, y, weights=None, groups=None):
    """Predictions of the rows by estimators fitted without them."""
    others = refits(model, X, y, weights, groups)
    return np.array([other.predict(row[None])[0] for other, row in zip(others, X, strict=True)])


def ranked(values, counts, rank):
    """The rank-th smallest of values, each there as often as it counts."""
    order = np.argsort(values)
    return values[order][np.argmax(counts[order].cumsum() >= rank * (1.0 - 1e-12))]


def interval_of(without, sizes, counts, coverage):
    """Jackknife+ interval from predictions without each row, and sizes of residuals.

    Barber, Candes, Ramdas and Tibshirani (2021).
    """
    rank = np.ceil(coverage * (counts.sum() + 1.0) - 1e-9)
    return np.array([-ranked(sizes - without, counts, rank), ranked(without + sizes, counts, rank)])


def jackknife_plus(model, X, y, queries, coverage, weights=None, groups=None):
    """Jackknife+ intervals (n_queries, 2), by a fit without each row."""
    counts = np.ones(len(X)) if weights is None else np.array(weights, float)
    counts = counts if is_whole(counts) else counts / counts.mean()
    others = list(refits(model, X, y, weights, groups))
    pairs = zip(others, X, y, strict=True)
    sizes = np.array([np.abs(target - other.predict(row[None])[0]) for other, row, target in pairs])
    without = np.array([other.predict(queries) for other in others])
    return np.array([interval_of(column, sizes, counts, coverage) for column in without.T])


# ---------------------------------------------------------------------------------------------
# Estimators

# Of all that NadarayaWatsonRegressor can be.
CONFIGURATIONS = {
    "means": {},
    "lines": {"degree": 1},
    "radii of queries": {"adaptive": "query", "n_neighbors": 5},
    "radii of keys": {"adaptive": "key", "n_neighbors": 5},
    "lines, radii of queries": {"degree": 1, "adaptive": "query", "n_neighbors": 7},
    "lines, radii of keys": {"degree": 1, "adaptive": "key", "n_neighbors": 7},
}


def inferred(model, X, coverage=0.8):
    """Results of all methods at some queries, in units of the targets, by name."""
    mean, std = model.predict(X, return_std=True)
    results = {
        "mean": mean,
        "std": std,
        "local std": model.predict(X, return_std="local")[1],
        "quantiles": model.predict_quantiles(X, [0.0, 0.1, 0.5, 0.9, 1.0]),
        "interval": model.predict_interval(X, coverage),
        "local interval": model.predict_interval(X, coverage, local=True),
    }
    if model._smoother.degree or model._smoother.kernel.has_slope:
        results["gradient"] = model.predict_gradient(X)
    return results


def everything(model, X, coverage=0.8):
    """Results of all methods at some queries, by name."""
    told = model.explain(X, top_k=3)
    return inferred(model, X, coverage) | {
        "weights": model.attention_weights(X),
        "neighbors": model.effective_neighbors(X),
        "rows": told.rows,
        "told weights": told.weights,
        "differences": told.differences,
    }


def assert_same(found, expected, rtol=0.0, atol=0.0):
    """Results by name are equal, bit for bit by default."""
    for name, result in found.items():
        assert_allclose(result, expected[name], rtol=rtol, atol=atol, err_msg=name)


def objective(X, values, weights, excluded, criterion, kernel, *, degree=0, queries=None):
    """The objective of a bandwidth selection, of rows in units that are given."""
    queries = np.arange(len(X)) if queries is None else queries
    settings = SelectionSettings(CRITERIA[criterion], kernel, 4000, Resources(), degree)
    sample = Sample(X, values, weights, queries, excluded.take(queries))
    return Objective(sample, settings, float(weights.sum()))


class Told:
    """A callback that keeps the predictions of every step, and may stop training."""

    def __init__(self, most=9999):
        self.most, self.predictions = most, []

    def setup(self, estimator, context):
        pass

    def teardown(self, estimator, context):
        pass

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, X, fitted_estimator):
        if context.task_name == "step":
            self.predictions.append(fitted_estimator.predict(X))
        return len(self.predictions) >= self.most
