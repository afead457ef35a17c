"""Whatever can be added to the package, added as docs/development.rst says, and run."""

from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import pytest
from definitions import attention_of, attention_weights, line
from numpy.testing import assert_allclose
from scipy.special import entr

from skattn import NadarayaWatsonRegressor
from skattn._attention import Products, Resources, Want, attend, merge, read_blocks, slices
from skattn._attention._plan import ENGINES
from skattn._attention.engines.engine import Engine
from skattn._bandwidth.criteria import CRITERIA, Criterion
from skattn._smoother import Fit, LocalRegression, MixedRegression, predict, smoother_matrix
from skattn._smoother.local_linear import central_moments, pair_places
from skattn.kernels import KERNELS, Kernel, namespace


@pytest.fixture
def rows(rng):
    """Rows, targets and queries."""
    X, queries = rng.uniform(-1.0, 1.0, (60, 2)), rng.uniform(-1.2, 1.2, (20, 2))
    return X, np.sin(3.0 * X[:, 0]) + 0.1 * rng.standard_normal(60), queries


# ---------------------------------------------------------------------------------------------


# [kernel
class Matern(Kernel):
    """(1 + v) exp(-v) with v = sqrt(3) u."""

    name = "matern"

    def log_profile(self, squared):
        xp = namespace(squared)  # numpy, or torch for tensors
        v = xp.sqrt(3.0 * squared)
        return xp.log1p(v) - v

    def log_slope(self, squared):
        return -1.5 / (1.0 + namespace(squared).sqrt(3.0 * squared))


# kernel]


def test_a_kernel(rows, monkeypatch):
    monkeypatch.setitem(KERNELS, "matern", Matern())
    X, y, queries = rows
    model = NadarayaWatsonRegressor(0.3, kernel="matern").fit(X, y)
    v = np.sqrt(3.0 * ((queries[:, None] - X) ** 2).sum(axis=2)) / 0.3
    weights = (1.0 + v) * np.exp(-v)
    assert_allclose(model.predict(queries), weights @ y / weights.sum(axis=1), rtol=1e-12)
    selected = NadarayaWatsonRegressor(kernel="matern", degree=1).fit(X, y)
    assert np.isfinite(selected.predict_gradient(queries)).all()
    assert selected.criterion_ < y.var()


# ---------------------------------------------------------------------------------------------


# [engine
class KeyBlocks(Engine):
    """Sums over blocks of a hundred keys, merged: nothing of all keys is ever in memory."""

    name = "key-blocks"

    def supports(self, attention, products, want):
        return "slopes take all keys" if want & Want.SLOPES else None  # the reason why not

    def cost(self, attention, products, want):
        return 10.0 * attention.n_pairs  # nanoseconds

    def moments(self, attention, products, want, resources):
        dense = replace(resources, algorithm="dense")
        parts = (
            attend(attention.over(keys), products.over(keys), want, dense)
            for keys in slices(len(attention.keys), 100)
        )
        return reduce(merge, parts)


# engine]


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("kernel", ["gaussian", "tricube"])
def test_an_engine(kernel, degree, rng, monkeypatch):
    engine, n_calls = KeyBlocks(), []
    monkeypatch.setitem(ENGINES, engine.name, engine)
    monkeypatch.setattr(engine, "cost", lambda *_: 0.0, raising=False)
    moments = engine.moments
    monkeypatch.setattr(engine, "moments", lambda *a: n_calls.append(1) or moments(*a))
    X, y = rng.uniform(-1.0, 1.0, (450, 2)), rng.standard_normal(450)
    queries, weights = rng.uniform(-3.0, 3.0, (90, 2)), rng.integers(1, 4, 450)
    models = [
        NadarayaWatsonRegressor(0.3, kernel=kernel, degree=degree, algorithm=each)
        for each in ("auto", "dense")
    ]
    by_blocks, dense = (model.fit(X, y, sample_weight=weights) for model in models)
    assert (by_blocks.algorithm_, dense.algorithm_) == ("key-blocks", "dense")
    for ask in (queries, None):
        assert_allclose(by_blocks.predict(ask), dense.predict(ask), rtol=1e-7, atol=1e-9)
        found, expected = (m.predict(ask, return_std=True)[1] for m in (by_blocks, dense))
        assert_allclose(found, expected, rtol=1e-7)
    assert_allclose(by_blocks.leverage(), dense.leverage(), rtol=1e-7)
    assert n_calls
    # what it does not support is computed by another one
    selected = NadarayaWatsonRegressor(kernel="gaussian").fit(X[:80], y[:80])
    assert np.isfinite(selected.bandwidth_).any()


# ---------------------------------------------------------------------------------------------


# [local fit
@dataclass(frozen=True)
class ShrunkenLine:
    """The local line with slopes shrunk by a factor: another reading of the sums of degree 1."""

    factor: float
    degree: int = 1

    def read(self, moments, queries):
        d = queries.shape[1]
        sums = moments.sums / moments.total[:, None]
        mean, first, covariance, cross = central_moments(sums, d, pair_places(d))
        center = moments.center + first
        dual = np.linalg.solve(covariance, (queries - center)[:, :, None])[:, :, 0] * self.factor
        prediction = mean + np.einsum("qj,qjp->qp", dual, cross)
        leverage = moments.own / moments.total
        leverage = leverage * (1.0 + np.einsum("qj,qj->q", dual, queries - center))
        return ShrunkenFit(prediction, leverage, center, dual)

    def smoother_rows(self, fit, weights, regressors):
        away = regressors - fit.center[:, None]
        return weights * (1.0 + np.einsum("qj,qkj->qk", fit.dual, away))


@dataclass(frozen=True)
class ShrunkenFit(Fit):
    """Shrunken lines, and what turns attention weights into rows of the smoother matrix."""

    center: np.ndarray
    dual: np.ndarray


# local fit]


def test_a_local_fit(rows):
    X, y, queries = rows
    attention, values = attention_of(queries / 0.4, X / 0.4), y[:, None]
    weights, _ = attention_weights(attention)
    for factor in (0.0, 0.5, 1.0):
        regression = LocalRegression(
            attention, Products(values, X), ShrunkenLine(factor), queries, None
        )
        found, _, _ = predict(regression, Resources())
        for w, query, prediction in zip(weights, queries, found, strict=True):
            whole, _ = line(w, X, values, query)
            assert_allclose(prediction, (1.0 - factor) * w @ values + factor * whole, atol=1e-10)
        matrix, _ = smoother_matrix(regression, Resources())
        assert_allclose(matrix @ values, found, atol=1e-10)


def test_an_estimator_with_a_local_fit(rows):
    X, y, queries = rows
    model = NadarayaWatsonRegressor(0.4, degree=1).fit(X, y)
    expected = model.predict(queries)
    component = model._smoother
    model._smoother = replace(component, local_fit=ShrunkenLine(1.0))
    assert_allclose(model.predict(queries), expected, atol=1e-9)
    assert_allclose(model.attention_weights(queries) @ y, expected, atol=1e-9)
    assert_allclose(model.leverage(), np.diag(model.attention_weights(X)), atol=1e-9)
    model._smoother = replace(component, local_fit=ShrunkenLine(0.0))
    means = NadarayaWatsonRegressor(0.4).fit(X, y)
    assert_allclose(model.predict(queries), means.predict(queries), atol=1e-12)


# ---------------------------------------------------------------------------------------------


# [criterion
class Rice(Criterion):
    """Mean r**2 / (1 - 2 tr S / n) (Rice, 1984)."""

    name = "rice"

    def value(self, squares, trace, n):
        left = 1.0 - 2.0 * trace / n
        with np.errstate(divide="ignore"):
            return np.where(left > 0.0, squares.mean(axis=-1) / left, np.inf)

    def slopes(self, squares, trace, n):
        left = 1.0 - 2.0 * trace / n
        inverse = np.where(left > 0.0, 1.0 / np.where(left > 0.0, left, 1.0), 0.0)
        by_squares = np.broadcast_to((inverse / squares.shape[-1])[..., None], squares.shape)
        return by_squares, 2.0 * squares.mean(axis=-1) * inverse**2 / n


# criterion]


def test_a_criterion(rows, monkeypatch):
    monkeypatch.setitem(CRITERIA, Rice.name, Rice())
    X, y = rows[0][:, :1], rows[1]

    def by_hand(model):
        errors, trace = y - model.predict(X), model.effective_dof_
        return np.mean(errors**2) / (1.0 - 2.0 * trace / len(y))

    model = NadarayaWatsonRegressor("rice").fit(X, y)
    assert_allclose(model.criterion_, by_hand(model), rtol=1e-6)
    grid = model.bandwidth_ * np.geomspace(0.2, 5.0, 30)
    curve = model.criterion_curve(grid, criterion="rice")
    assert_allclose(
        curve[-10:], [by_hand(model.set_params(bandwidth=h).fit(X, y)) for h in grid[-10:]]
    )
    assert model.set_params(bandwidth="rice").fit(X, y).criterion_ <= curve.min()


# ---------------------------------------------------------------------------------------------


# [statistic
def mean_square(regression, resources):
    """Attention-weighted mean of the squared values."""

    def read(part):
        moments = attend(part.attention, Products(part.values**2), Want.SUMS, resources)
        return moments.sums / moments.total[:, None], moments.outside

    return regression.mix(read)


def entropy(regression, resources):
    """Entropy of the attention weights of each query, without ever forming all of them."""
    found, outside = np.empty(regression.n_queries), np.empty(regression.n_queries, bool)

    def receive(block):
        found[block.queries] = entr(block.weights).sum(axis=1)
        outside[block.queries] = block.outside

    read_blocks(regression.reader(resources), resources, receive)
    return found, outside


# statistic]


# [method
class WithEntropy(NadarayaWatsonRegressor):
    """An estimator with one statistic more."""

    def weight_entropy(self, X):
        regression, _, _ = self._regression(X)
        found, outside = entropy(regression, self._resources())
        found = self._extrapolated(found, outside, "entropies")
        return self._in_callers_order(found, X)


# method]


@pytest.mark.parametrize("is_mixed", [False, True])
def test_a_statistic(is_mixed, rows):
    X, y, queries = rows
    one, two = (NadarayaWatsonRegressor(h).fit(X, y)._smoother.at(queries) for h in (0.2, 0.7))
    regression, resources = one, Resources()
    if is_mixed:
        gates = np.stack([np.full(20, 0.3), np.full(20, 0.7)])
        regression = MixedRegression((one, two), gates)
    weights, _ = smoother_matrix(regression, resources)
    found, outside = mean_square(regression, resources)
    assert_allclose(found, weights @ one.values**2, rtol=1e-12)
    entropies, also_outside = entropy(regression, resources)
    assert_allclose(entropies, entr(weights).sum(axis=1), rtol=1e-12)
    assert not (outside | also_outside).any()


def test_a_method_of_an_estimator(rows):
    X, y, queries = rows
    model = WithEntropy(0.4).fit(X, y)
    for ask in (queries, None):
        expected = entr(model.attention_weights(ask)).sum(axis=1)
        assert_allclose(model.weight_entropy(ask), expected, rtol=1e-12)
    far = WithEntropy(0.4, kernel="tricube", extrapolation="nan").fit(X, y)
    with pytest.warns(UserWarning, match="1 of 1 queries .* their entropies are NaN"):
        assert np.isnan(far.weight_entropy([[9.0, 9.0]])).all()
