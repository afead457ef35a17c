"""Properties that hold for any data, of all estimators.

Each invariant is written once, as a function of a `Case`: an estimator and data. It is run on
random examples of everything that needs no selection, and on one data set of estimators that select
or learn.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from definitions import (
    CONFIGURATIONS,
    assert_same,
    everything,
    inferred,
    leave_one_out,
)
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from skattn import NadarayaWatsonRegressor, ParametricAttentionRegressor
from skattn.kernels import KERNELS
from skattn.solvers import LBFGS, GaussNewton
from skattn.variants import Mixture, QueryScale, RegionScale, SampleReweighting

kernels = st.sampled_from(list(KERNELS))
# Edges of windows are decided by rounding, and with them, whether rows are enough for a line.
unbounded = st.sampled_from([name for name in KERNELS if np.isinf(KERNELS[name].support)])
seeds = st.integers(0, 2**32 - 1)
features = st.integers(1, 4)
configurations = st.sampled_from(list(CONFIGURATIONS))
few = settings(max_examples=15)


def data(seed, d, n=25, m=8):
    """Rows with ties in X, targets, queries inside and outside the data."""
    rng = np.random.default_rng(seed)
    X = np.round(rng.standard_normal((n, d)), 1)
    return X, rng.standard_normal(n), 3.0 * rng.standard_normal((m, d))


def model(kernel, bandwidth=0.8, **parameters):
    return NadarayaWatsonRegressor(bandwidth, kernel=kernel, **parameters)


def configured(configuration, kernel="gaussian", bandwidth=0.8, **parameters):
    return model(kernel, bandwidth, **CONFIGURATIONS[configuration] | parameters)


@dataclass(frozen=True)
class Case:
    """An estimator, data, and how exactly invariants hold.

    `make` takes units of the features, which bandwidths are multiplied by.
    """

    make: Any
    X: Any
    y: Any
    queries: Any
    tolerance: float = 1e-8
    rounding: float = 0.0  # where nothing but the order of sums may differ

    def fit(self, X=None, y=None, sample_weight=None, units=1.0, **parameters):
        X, y = (self.X if X is None else X), (self.y if y is None else y)
        return self.make(units).set_params(**parameters).fit(X, y, sample_weight=sample_weight)

    @property
    def rng(self):
        """Random numbers that belong to the data."""
        return np.random.default_rng(int(1e6 * np.abs(self.X).sum()))

    def same(self, found, expected, scale=1.0):
        assert_same(found, expected, rtol=self.tolerance, atol=self.tolerance * scale)


# ---------------------------------------------------------------------------------------------
# Invariants


def units_and_origins_of_features_do_not_matter(case):
    rng, d = case.rng, case.X.shape[1]
    # so that moving is exact
    X, queries = np.round(8.0 * case.X) / 8.0, np.round(8.0 * case.queries) / 8.0
    units, origins = 2.0 ** rng.integers(-30, 30, d), rng.integers(-1000, 1000, d)
    expected = case.fit(X)
    moved = case.fit((X + origins) * units, units=units)
    assert_allclose(moved.bandwidth_ / units, expected.bandwidth_, rtol=case.tolerance)
    found, expected = inferred(moved, (queries + origins) * units), inferred(expected, queries)
    if "gradient" in found:
        slopes = found.pop("gradient") * units
        tolerance = max(100.0 * case.tolerance, 1e-6)
        assert_allclose(slopes, expected["gradient"], rtol=tolerance, atol=tolerance)
    case.same(found, expected)


def results_are_affine_in_the_targets(case):
    a, b = 10.0 ** case.rng.uniform(-1.0, 3.0), case.rng.uniform(-1e3, 1e3)
    for sign in (1.0, -1.0):
        expected = inferred(case.fit(), case.queries)
        moved = inferred(case.fit(y=sign * a * case.y + b), case.queries)
        if sign < 0.0:  # lower bounds are upper ones
            del moved["quantiles"]
            for name in ("interval", "local interval"):
                expected[name] = expected[name][:, ::-1]
        for name, result in expected.items():
            is_spread, is_slope = name.endswith("std"), name == "gradient"
            expected[name] = (1.0 if is_spread else sign) * a * result
            expected[name] = expected[name] + (0.0 if is_spread or is_slope else b)
        case.same(moved, expected, scale=a + abs(b))


def order_of_rows_does_not_matter(case):
    n = len(case.X)
    order, weights = case.rng.permutation(n), case.rng.integers(0, 3, n)
    one = case.fit(sample_weight=weights)
    other = case.fit(case.X[order], case.y[order], sample_weight=weights[order])
    assert_array_equal(one.bandwidth_, other.bandwidth_)
    assert_same(inferred(other, case.queries), inferred(one, case.queries))
    assert_array_equal(other.predict(None), one.predict(None)[order])
    expected = one.attention_weights(case.queries)[:, order]
    assert_array_equal(other.attention_weights(case.queries), expected)
    assert_array_equal(other.leverage(), one.leverage()[order])
    told, expected = other.explain(case.queries, 3), one.explain(case.queries, 3)
    assert_array_equal(told.weights, expected.weights)
    named = told.rows >= 0
    assert_array_equal(order[told.rows[named]], expected.rows[named])


def weight_two_is_the_row_twice(case):
    weights = case.rng.integers(0, 4, len(case.X))
    weights[:3] = 2
    repeated = np.repeat(np.arange(len(case.X)), weights)
    weighted = case.fit(sample_weight=weights)
    expanded = case.fit(case.X[repeated], case.y[repeated])
    assert_allclose(weighted.bandwidth_, expanded.bandwidth_, rtol=case.tolerance)
    case.same(inferred(weighted, case.queries), inferred(expanded, case.queries))
    tolerances = {"rtol": case.tolerance, "atol": case.tolerance}
    assert_allclose(weighted.predict(None)[repeated], expanded.predict(None), **tolerances)
    assert_allclose(weighted.effective_dof_, expanded.effective_dof_, rtol=case.tolerance)
    numbers = (each.effective_neighbors(case.queries) for each in (weighted, expanded))
    assert_allclose(*numbers, **tolerances)
    summed = np.zeros((len(case.queries), len(case.X)))
    np.add.at(summed.T, repeated, expanded.attention_weights(case.queries).T)
    assert_allclose(weighted.attention_weights(case.queries), summed, **tolerances)


def zero_weight_is_an_absent_row(case):
    n, rng = len(case.X), case.rng
    absent = rng.random(n) < 0.3
    y = case.y.copy()
    y[absent] = 1e6
    for present in (rng.integers(1, 3, n), 0.1 + rng.random(n)):
        weights = np.where(absent, 0.0, present)
        weighted = case.fit(y=y, sample_weight=weights)
        without = case.fit(case.X[~absent], y[~absent], sample_weight=weights[~absent])
        assert_array_equal(weighted.bandwidth_, without.bandwidth_)
        for name in ("criterion_", "n_neighbors_"):
            assert getattr(weighted, name, None) == getattr(without, name, None)
        both = inferred(weighted, case.queries), inferred(without, case.queries)
        assert_same(*both, case.rounding, case.rounding)
        numbers = (each.effective_neighbors(case.queries) for each in (weighted, without))
        assert_allclose(*numbers, rtol=case.rounding)
        tolerances = {"rtol": case.tolerance, "atol": case.tolerance}
        left_out = weighted.predict(None)
        assert_allclose(left_out[~absent], without.predict(None), **tolerances)
        assert_allclose(left_out[absent], without.predict(case.X[absent]), **tolerances)
        assert_array_equal(weighted.attention_weights(case.queries)[:, absent], 0.0)
        assert_array_equal(weighted.leverage()[absent], 0.0)
        for asked in (case.queries, None):
            assert not np.isin(weighted.explain(asked, n).rows, np.flatnonzero(absent)).any()


def scale_of_importances_does_not_matter(case):
    weights = 0.1 + case.rng.random(len(case.X))
    expected = inferred(case.fit(sample_weight=weights), case.queries)
    for factor in (1e-9, 0.37, 2.0**400):
        case.same(inferred(case.fit(sample_weight=factor * weights), case.queries), expected)


def outputs_are_those_of_each_alone(case):
    if len(np.unique(case.y)) < len(case.y):
        return
    scales = np.array([1.0, 1e6])
    Y = np.column_stack([case.y, case.y, np.full_like(case.y, 3.0)]) * np.append(scales, 1.0)
    together = inferred(case.fit(y=Y), case.queries)
    alone = inferred(case.fit(), case.queries)
    for name, result in together.items():
        for output, scale in enumerate(scales):
            case.same({name: result[..., output] / scale}, alone)
        constant = 0.0 if name.endswith("std") or name == "gradient" else 3.0
        assert_array_equal(result[..., 2], constant, err_msg=name)
    column = inferred(case.fit(y=case.y[:, None]), case.queries)
    assert_same({name: result[..., 0] for name, result in column.items()}, alone)


def weights_times_targets_are_the_predictions(case):
    n = len(case.X)
    for weights in (None, case.rng.integers(0, 3, n), case.rng.random(n)):
        fitted = case.fit(sample_weight=weights)
        is_mean = fitted._smoother.degree == 0
        for rows in (case.queries, None, 1e3 * case.queries):
            weights, predictions = fitted.attention_weights(rows), fitted.predict(rows)
            scale, tolerance = np.abs(weights).sum(axis=1), 1e-12 if is_mean else 1e-9
            assert (np.abs(weights.sum(axis=1) - 1.0) <= tolerance * scale).all()
            size = scale * np.abs(case.y).max()
            assert (np.abs(weights @ case.y - predictions) <= tolerance * size).all()
            top = fitted.attention_weights(rows, top_k=n).toarray()
            assert (np.abs(top - weights) <= tolerance * scale[:, None]).all()
            if is_mean:
                assert (weights >= 0.0).all()
                assert case.y.min() <= predictions.min()
                assert predictions.max() <= case.y.max()


def a_query_gets_the_same_alone_as_in_a_batch(case):
    fitted = case.fit()
    batch = everything(fitted, case.queries)
    for i in (0, len(case.queries) - 1):
        alone = everything(fitted, case.queries[i : i + 1])
        for name, result in alone.items():
            scale = np.nanmax(np.abs(batch[name][i]), initial=0.0)
            case.same({name: result[0]}, {name: batch[name][i]}, scale=scale + 1e-4)


def results_are_finite_however_far_the_query(case):
    fitted, d = case.fit(), case.X.shape[1]
    exponents = case.rng.uniform(-3.0, 8.0, (len(case.queries), 1))
    far = np.vstack([case.queries * 10.0**exponents, np.full((1, d), 1e6 * 0.8)])
    for name, result in everything(fitted, far).items():
        if name != "differences":
            assert np.isfinite(result).all(), name
    assert np.isfinite(fitted.explain(far, 2).predictions).all()


EXACT = [
    order_of_rows_does_not_matter,
    zero_weight_is_an_absent_row,
    weights_times_targets_are_the_predictions,
    results_are_finite_however_far_the_query,
    a_query_gets_the_same_alone_as_in_a_batch,
    scale_of_importances_does_not_matter,
]
# to rounding, which decides on edges of windows
ROUNDED = [
    units_and_origins_of_features_do_not_matter,
    results_are_affine_in_the_targets,
    weight_two_is_the_row_twice,
    outputs_are_those_of_each_alone,
]


# ---------------------------------------------------------------------------------------------
# Of bandwidths that are given: random examples


def case_of(configuration, kernel, seed, d, spread=1.0):
    X, y, queries = data(seed, d)

    def make(units):
        return configured(configuration, kernel, 0.75 * units)

    return Case(make, X, y, spread * queries)


@pytest.mark.parametrize("invariant", EXACT, ids=lambda each: each.__name__)
@few
@given(configurations, kernels, seeds, features)
def test_any_kernel(invariant, configuration, kernel, seed, d):
    invariant(case_of(configuration, kernel, seed, d))


@pytest.mark.parametrize("invariant", ROUNDED, ids=lambda each: each.__name__)
@few
@given(configurations, unbounded, seeds, features)
def test_any_unbounded_kernel(invariant, configuration, kernel, seed, d):
    # queries no further out than lines are well determined
    invariant(case_of(configuration, kernel, seed, d, 1.0 / 3.0))


@pytest.mark.parametrize("invariant", ROUNDED, ids=lambda each: each.__name__)
@few
@given(kernels, seeds, features)
def test_means_of_any_kernel(invariant, kernel, seed, d):
    invariant(case_of("means", kernel, seed, d))


# ---------------------------------------------------------------------------------------------
# Of what is selected or learned: one data set

SELECTED = {
    "scott": lambda: NadarayaWatsonRegressor("scott"),
    "loo": lambda: NadarayaWatsonRegressor(),
    "gcv": lambda: NadarayaWatsonRegressor("gcv", kernel="student", anisotropic=False),
    "aicc, lines": lambda: NadarayaWatsonRegressor("aicc", degree=1),
    "by query": lambda: NadarayaWatsonRegressor(adaptive="query"),
    "by key, lines": lambda: NadarayaWatsonRegressor("gcv", adaptive="key", degree=1),
}


def learned(metric="diagonal", **parameters):
    """A learned estimator that takes a few steps only."""
    solver = parameters.pop("solver", GaussNewton(max_iter=3))
    return ParametricAttentionRegressor(metric, solver=solver, random_state=0, **parameters)


LEARNED = {
    "learned": lambda: learned("linear"),
    "learned means": lambda: learned(degree=0, kernel="gaussian"),
    "learned, compact": lambda: learned(kernel="tricube"),
    "ensemble": lambda: learned(n_estimators=2, validation_fraction=0.2),
    "reweighted": lambda: learned(variant=SampleReweighting(), solver=LBFGS(max_iter=3)),
    "query scale": lambda: learned(variant=QueryScale(), solver=LBFGS(max_iter=3)),
    "region scale": lambda: learned(variant=RegionScale(), solver=LBFGS(max_iter=3)),
    "mixture": lambda: learned(variant=Mixture(), solver=LBFGS(max_iter=3)),
}


@pytest.mark.filterwarnings("ignore:.*copies of others", "ignore:.*max_iter")
@pytest.mark.parametrize("invariant", EXACT + ROUNDED, ids=lambda each: each.__name__)
@pytest.mark.parametrize("name", [*SELECTED, *LEARNED])
def test_selected_and_learned(name, invariant):
    rng = np.random.default_rng(3)
    X, queries = rng.uniform(-1.0, 1.0, (40, 2)), rng.uniform(-1.1, 1.1, (8, 2))
    y = np.sin(3.0 * X[:, 0]) + 0.2 * rng.standard_normal(40)
    make = (SELECTED | LEARNED)[name]
    if name in LEARNED:
        pytest.importorskip("torch")
    rounding = 1e-12 if name in LEARNED else 0.0
    invariant(Case(lambda units: make(), X, y, queries, 1e-6, rounding))


# ---------------------------------------------------------------------------------------------
# How it is computed does not matter


@pytest.mark.parametrize("configuration", CONFIGURATIONS)
def test_threads_batches_and_memory_do_not_matter(configuration, rng):
    from sklearn import config_context

    # enough pairs for several threads, and queries far away
    X, y = rng.standard_normal((900, 4)), rng.standard_normal(900)
    queries = 2.0 * rng.standard_normal((700, 4))
    if "lines" not in configuration:
        queries[:300] *= 20.0
    for kernel in ("gaussian", "laplace", "biweight"):
        if kernel == "biweight" and "lines" in configuration:
            continue
        one = configured(configuration, kernel, 0.5).fit(X, y)
        two = configured(configuration, kernel, 0.5, n_jobs=2).fit(X, y)
        expected = one.predict(queries)
        tolerance = 1e-9 * np.maximum(1.0, np.abs(expected)) if one.degree else 1e-12
        assert_array_equal(two.predict(queries), expected)
        assert_array_equal(two.predict(None), one.predict(None))
        for size in (1, 7, 699):
            parts = [one.predict(queries[i : i + size]) for i in range(0, 700, size)][:60]
            error = np.concatenate(parts) - expected[: 60 * size]
            assert (np.abs(error) <= np.broadcast_to(tolerance, 700)[: 60 * size]).all()
        top = one.attention_weights(queries, top_k=3).toarray()
        with config_context(working_memory=0.01):
            assert (np.abs(one.predict(queries) - expected) <= tolerance).all()
            again = one.attention_weights(queries, top_k=3).toarray()
        assert_allclose(again, top, rtol=0, atol=1e-13 if not one.degree else 1e-7)


@given(kernels, seeds, features)
def test_single_precision_is_close_to_double_far_from_the_origin(kernel, seed, d):
    X, y, queries = data(seed, d, m=40)
    X = np.float32(np.round(8 * X) / 8 + 1000.0)
    queries = np.float32(np.round(8 * queries) / 8 + 1000.0)
    single = model(kernel).fit(X, np.float32(y))
    double = model(kernel).fit(X.astype(float), np.float32(y).astype(float))
    predictions = single.predict(queries)
    assert predictions.dtype == np.float32
    assert_allclose(predictions, double.predict(queries.astype(float)), rtol=0, atol=1e-4)


@given(kernels, seeds, st.floats(-300, 300))
def test_any_finite_query_gets_a_finite_prediction(kernel, seed, exponent):
    X, y, queries = data(seed, 2)
    fitted = model(kernel).fit(X, y)
    with np.errstate(over="ignore"):
        far = np.clip(queries * 10.0**exponent, -1.7e308, 1.7e308)
    predictions = fitted.predict(far)
    assert np.isfinite(predictions).all()
    assert_allclose(predictions, [fitted.predict(row[None])[0] for row in far], atol=1e-9)
    assert np.isfinite(fitted.effective_neighbors(far)).all()


# ---------------------------------------------------------------------------------------------
# Of some estimators only


@given(kernels, seeds, st.floats(0.0, 2 * np.pi))
def test_rotations_do_not_matter(kernel, seed, angle):
    assume(kernel != "uniform")  # rounding decides on the edge of its window
    X, y, queries = data(seed, 2)
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    expected = model(kernel).fit(X, y)
    turned = model(kernel).fit(X @ turn, y)
    outside = expected.effective_neighbors(queries) < 1.0 + 1e-9  # nearest keys may be tied
    assert_allclose(
        turned.predict(queries @ turn)[~outside],
        expected.predict(queries)[~outside],
        rtol=0,
        atol=1e-9,
    )


@given(kernels, seeds, features)
def test_leave_one_out_is_fitting_without_the_row(kernel, seed, d):
    X, y, _ = data(seed, d)
    found = model(kernel).fit(X, y).predict(None)
    assert_allclose(found, leave_one_out(model(kernel), X, y), rtol=0, atol=1e-9)


@given(kernels, seeds)
def test_leave_one_out_follows_from_leverage(kernel, seed):
    X, y, _ = data(seed, 1)
    fitted = model(kernel).fit(X, y)
    leverage = fitted.leverage()
    usable = leverage < 0.5
    shortcut = (fitted.predict(X) - leverage * y)[usable] / (1.0 - leverage[usable])
    assert_allclose(fitted.predict(None)[usable], shortcut, rtol=0, atol=1e-10)
    assert_allclose(leverage, np.diag(fitted.attention_weights(X)), rtol=0, atol=1e-12)


@given(kernels, seeds, features)
def test_effective_neighbors_are_the_inverse_of_squared_weights(kernel, seed, d):
    X, y, queries = data(seed, d)
    fitted = model(kernel).fit(X, y)
    for rows in (queries, None):
        squares = (fitted.attention_weights(rows) ** 2).sum(axis=1)
        assert_allclose(squares * fitted.effective_neighbors(rows), 1.0, rtol=1e-10)


@given(kernels, seeds, features)
def test_wide_bandwidths_give_the_mean_and_narrow_ones_the_nearest(kernel, seed, d):
    X, y, queries = data(seed, d)
    weights = np.random.default_rng(seed).integers(1, 4, len(y))
    mean = np.average(y, weights=weights)
    for bandwidth in (1e9, np.inf):
        wide = model(kernel, bandwidth).fit(X, y, sample_weight=weights)
        assert_allclose(wide.predict(queries), mean, rtol=0, atol=1e-7)
    if kernel in ("student", "laplace"):  # their tails do not vanish relative to each other
        return
    distances = ((queries[:, None] - X) ** 2).sum(axis=2)
    nearest = distances <= distances.min(axis=1, keepdims=True) * (1 + 1e-9)
    expected = (nearest * weights) @ y / (nearest * weights).sum(axis=1)
    narrow = model(kernel, 1e-9).fit(X, y, sample_weight=weights)
    assert_allclose(narrow.predict(queries), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_line_is_not_reproduced(kernel):
    # degree 0 flattens towards the edge of the data: what the docs warn of
    X = np.linspace(0.0, 1.0, 50)[:, None]
    predictions = model(kernel, 0.3).fit(X, X[:, 0]).predict([[0.0], [1.0]])
    assert predictions[0] > 0.01
    assert predictions[1] < 0.99


@few
@given(kernels, seeds, features, st.sampled_from([None, "query", "key"]))
def test_lines_are_reproduced_where_rows_span_them(kernel, seed, d, adaptive):
    # with varying radii, a compact support may hold too few rows for a line
    assume(adaptive != "key" or np.isinf(KERNELS[kernel].support))
    X, _, queries = data(seed, d, m=6)
    queries = queries / 3.0
    slopes = np.random.default_rng(seed + 1).standard_normal(d)
    fitted = model(kernel, 6.0, degree=1, adaptive=adaptive, n_neighbors=20 if adaptive else None)
    fitted.fit(X, 2.0 + X @ slopes)
    assert_allclose(fitted.predict(queries), 2.0 + queries @ slopes, atol=1e-7)
    assert_allclose(fitted.predict_gradient(queries), np.tile(slopes, (6, 1)), atol=1e-5)


@few
@given(configurations, kernels, seeds, features, st.lists(st.floats(0, 1), min_size=2, max_size=6))
def test_quantiles_grow_with_their_level(configuration, kernel, seed, d, levels):
    X, y, queries = data(seed, d)
    fitted = configured(configuration, kernel).fit(X, y)
    for asked in (queries, None):
        found = fitted.predict_quantiles(asked, np.sort(levels))
        assert (np.diff(found, axis=1) >= 0.0).all()
        if not fitted.degree:
            assert np.isin(found, y).all()
            ends = fitted.predict_quantiles(asked, [0.0, 1.0])
            mean = fitted.predict(asked)
            assert (ends[:, 0] <= mean + 1e-12).all()
            assert (mean <= ends[:, 1] + 1e-12).all()


@few
@given(configurations, kernels, seeds, features, st.booleans())
def test_intervals_are_ordered_and_nested(configuration, kernel, seed, d, local):
    X, y, queries = data(seed, d)
    y = np.column_stack([y, np.round(y)])
    fitted = configured(configuration, kernel).fit(X, y)
    inner = None
    for coverage in (0.55, 0.7, 0.8, 0.95):
        low, high = fitted.predict_interval(queries, coverage, local=local).swapaxes(0, 1)
        assert (low <= high).all()
        if inner is not None:
            slack = 1e-12 * (1.0 + np.abs(inner))
            assert (low <= inner[0] + slack[0]).all()
            assert (inner[1] <= high + slack[1]).all()
        inner = np.array([low, high])


@few
@given(seeds, features, st.sampled_from([np.exp, np.arctan, lambda y: y**3]))
def test_quantiles_of_transformed_targets_are_transformed_quantiles(seed, d, transform):
    X, y, queries = data(seed, d)
    for configuration in ("means", "radii of queries", "radii of keys"):
        levels = [0.1, 0.5, 0.99]
        plain = configured(configuration).fit(X, y).predict_quantiles(queries, levels)
        moved = configured(configuration).fit(X, transform(y)).predict_quantiles(queries, levels)
        assert_array_equal(moved, transform(plain))


@example("lines", "gaussian", 256, 4)  # a query far out, whose keys differ in two directions only
@few
@given(configurations, kernels, seeds, features)
def test_weights_far_out_are_the_prediction(configuration, kernel, seed, d):
    weights_times_targets_are_the_predictions(case_of(configuration, kernel, seed, d))
