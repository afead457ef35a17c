"""Several kinds of attention mixed by gates: every statistic, by its definition in NumPy."""

from dataclasses import dataclass

import numpy as np
import pytest
from definitions import (
    attention_weights,
    component_of,
    interval_of,
    quantiles,
    retained_shares,
    smoother_rows,
    training_set_of,
)
from numpy.testing import assert_allclose, assert_array_equal

from skattn._attention import Resources
from skattn._geometry.training_set import Exclusion
from skattn._smoother import (
    Component,
    Mixture,
    component_weights,
    effective_neighbors,
    mean_of,
    predict,
    prediction_variance,
    smoother_matrix,
)
from skattn._uncertainty import (
    jackknife_plus,
    leave_one_out_residuals,
    local_means,
    weighted_quantiles,
)

N, RESOURCES = 60, Resources()
BANDWIDTHS = [np.array([0.4, 1.1]), np.array([1.5, 0.3])]
RIDGE = 0.02
CASES = [(gates, degree) for gates in ("equal", "varying") for degree in (0, 1)]


@dataclass(frozen=True)
class Equal:
    """Equal shares of some components."""

    n: int = 2

    def shares(self, X):
        return np.full((len(X), self.n), 1.0 / self.n)


@dataclass(frozen=True)
class Logistic:
    """Shares that depend on the row."""

    def shares(self, X):
        first = 1.0 / (1.0 + np.exp(-2.0 * X[:, 0]))
        return np.column_stack([first, 1.0 - first])


GATES = {"equal": Equal(), "varying": Logistic()}


def rows_of(kind="single"):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (N, 2))
    y = np.column_stack([np.sin(3.0 * X[:, 0]), X[:, 1] ** 2]) + 0.2 * rng.standard_normal((N, 2))
    weights = {"repeated": rng.integers(1, 4, N), "weighted": rng.uniform(0.1, 2.0, N)}.get(kind)
    return training_set_of(X, y, weights, rng.integers(0, 15, N) if kind == "grouped" else None)


def components_of(training_set, degree, kernel="student"):
    return tuple(component_of(training_set, h, kernel, degree, RIDGE) for h in BANDWIDTHS)


def mixture_of(training_set, gates, degree, kernel="student"):
    return Mixture(components_of(training_set, degree, kernel), GATES[gates])


def queries_of(n=23):
    return np.random.default_rng(3).uniform(-1.2, 1.2, (n, 2))


def by_definition(mixture, regression, X):
    """Attention weights and rows of the smoother matrix at rows X, (n_queries, n_keys) both."""
    shares, weights, rows = mixture.gate.shares(X).T[:, :, None], 0.0, 0.0
    for share, each in zip(shares, regression.components, strict=True):
        attention, _ = attention_weights(each.attention)
        is_line, keys = each.regressors is not None, each.products.regressors
        smoother = smoother_rows(attention, keys, each.regressors, RIDGE) if is_line else attention
        weights, rows = weights + share * attention, rows + share * smoother
    return weights, rows


def restored(mixture, values):
    return mixture.scaling.restore(values)


# ---------------------------------------------------------------------------------------------
# At queries


@pytest.mark.parametrize("kind", ["single", "repeated", "weighted"])
@pytest.mark.parametrize(("gates", "degree"), CASES)
def test_statistics_are_those_of_the_mixed_weights(gates, degree, kind):
    training_set, queries = rows_of(kind), queries_of()
    mixture, targets = mixture_of(training_set, gates, degree), training_set.y
    regression = mixture.at(queries)
    weights, rows = by_definition(mixture, regression, queries)
    found, outside = smoother_matrix(regression, RESOURCES)
    assert_allclose(found, rows, atol=1e-12)
    assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    prediction, _, is_outside = predict(regression, RESOURCES)
    assert_allclose(restored(mixture, prediction), rows @ targets, atol=1e-11)
    assert not (outside | is_outside).any()
    each, shares, _ = component_weights(regression, RESOURCES)
    assert_allclose(np.einsum("hq,hqk->qk", shares, each), weights, atol=1e-13)
    values = np.random.default_rng(1).standard_normal((N, 3))
    assert_allclose(local_means(regression, RESOURCES, values), weights @ values, atol=1e-12)
    top, _ = smoother_matrix(regression, RESOURCES, top_k=5)
    largest = -np.sort(-np.abs(rows), axis=1)[:, :5]
    assert_allclose(-np.sort(-np.abs(top.toarray()), axis=1)[:, :5], largest, atol=1e-12)
    multiplicity = training_set.multiplicity
    number, _ = effective_neighbors(regression, RESOURCES, multiplicity)
    assert_allclose(number, 1.0 / (weights**2 / multiplicity).sum(axis=1), rtol=1e-10)
    variances = np.random.default_rng(2).uniform(0.5, 2.0, (N, 2)) / multiplicity[:, None]
    variance = prediction_variance(regression, RESOURCES, variances)
    assert_allclose(variance, rows**2 @ variances, rtol=1e-9)
    levels = np.array([0.0, 0.1, 0.5, 0.83, 1.0])
    found, _ = weighted_quantiles(regression, RESOURCES, targets, levels)
    for output, column in enumerate(targets.T):
        expected = [quantiles(row, column, levels) for row in weights]
        assert_array_equal(found[:, :, output], expected)


# ---------------------------------------------------------------------------------------------
# At the training rows


@pytest.mark.parametrize("kind", ["single", "repeated", "weighted", "grouped"])
@pytest.mark.parametrize(("gates", "degree"), CASES)
def test_leave_one_out_leaves_the_same_out_of_every_component(gates, degree, kind):
    training_set = rows_of(kind)
    mixture, excluded = mixture_of(training_set, gates, degree), training_set.leave_one_out()
    regression = mixture.leave_one_out()
    _, rows = by_definition(mixture, regression, training_set.X)
    found, _ = smoother_matrix(regression, RESOURCES)
    assert_allclose(found, rows, atol=1e-12)
    prediction, _, _ = predict(regression, RESOURCES)
    assert_allclose(restored(mixture, prediction), rows @ training_set.y, atol=1e-11)
    assert_array_equal(found[retained_shares(regression.components[0].attention) == 0.0], 0.0)
    assert regression.excluded is regression.components[0].excluded
    assert_array_equal(regression.excluded.start, excluded.start)
    some = np.array([5, 9, 33])
    few, _, _ = predict(regression.take(some), RESOURCES)
    assert_allclose(few, prediction[some], atol=1e-13)


@pytest.mark.parametrize("kind", ["single", "repeated"])
@pytest.mark.parametrize(("gates", "degree"), CASES)
def test_leverages_are_the_diagonal(gates, degree, kind):
    mixture = mixture_of(rows_of(kind), gates, degree)
    regression = mixture.in_sample()
    _, rows = by_definition(mixture, regression, mixture.training_set.X)
    assert_allclose(predict(regression, RESOURCES)[1], np.diag(rows), rtol=1e-10)


@pytest.mark.parametrize("kind", ["single", "repeated", "grouped"])
@pytest.mark.parametrize(("gates", "degree"), CASES)
def test_intervals_are_the_jackknife_plus_of_the_mixed_predictions(gates, degree, kind):
    training_set, queries, coverage = rows_of(kind), queries_of(7), 0.8
    mixture = mixture_of(training_set, gates, degree)
    left_out = leave_one_out_residuals(mixture, RESOURCES)
    found, outside = jackknife_plus(mixture.at(queries), RESOURCES, left_out, coverage, None)
    assert not outside.any()
    excluded = training_set.leave_one_out()
    _, rows = by_definition(mixture, mixture.leave_one_out(), training_set.X)
    sizes, counts = np.abs(training_set.y - rows @ training_set.y), training_set.counts()
    for query, bounds in zip(queries, restored(mixture, found), strict=True):
        copies = np.tile(query, (N, 1))
        regression = mixture.at(copies).excluding(excluded)
        without = by_definition(mixture, regression, copies)[1] @ training_set.y
        for output in range(2):
            expected = interval_of(without[:, output], sizes[:, output], counts, coverage)
            assert_allclose(bounds[:, output], expected, atol=1e-9)


# ---------------------------------------------------------------------------------------------
# Components among themselves


def assert_same_regressions(found, expected):
    for one, other in zip(predict(found, RESOURCES), predict(expected, RESOURCES), strict=True):
        assert_allclose(one, other, rtol=0, atol=1e-13)
    matrices = [smoother_matrix(each, RESOURCES)[0] for each in (found, expected)]
    assert_allclose(*matrices, rtol=0, atol=1e-13)
    numbers = [effective_neighbors(each, RESOURCES, np.ones(N))[0] for each in (found, expected)]
    assert_allclose(*numbers, rtol=1e-12)


@pytest.mark.parametrize("degree", [0, 1])
def test_equal_components_are_one_whatever_the_gates(degree):
    queries = queries_of()
    one, _ = components_of(rows_of("repeated"), degree)
    for mixture in (Mixture((one,), Equal(1)), Mixture((one, one), Logistic())):
        for ask in (lambda smoother: smoother.at(queries), *MOMENTS_OF_ROWS):
            assert_same_regressions(ask(mixture), ask(one))


MOMENTS_OF_ROWS = (
    lambda smoother: smoother.leave_one_out(),
    lambda smoother: smoother.in_sample(),
)


@pytest.mark.parametrize("degree", [0, 1])
def test_gates_of_one_choose_a_component(degree):
    @dataclass(frozen=True)
    class Choice:
        def shares(self, X):
            first = (X[:, 0] < 0.0).astype(float)
            return np.column_stack([first, 1.0 - first])

    queries, components = queries_of(), components_of(rows_of(), degree)
    found, _, _ = predict(Mixture(components, Choice()).at(queries), RESOURCES)
    one, other = (predict(each.at(queries), RESOURCES)[0] for each in components)
    expected = np.where(queries[:, :1] < 0.0, one, other)
    assert_allclose(found, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("degree", [0, 1])
def test_means_of_mixtures_are_mixtures(degree):
    # three kinds of attention, two of them mixed before
    training_set, queries, coverage = rows_of(), queries_of(), 0.8
    first, second = components_of(training_set, degree)
    third = component_of(training_set, 0.7, "student", degree, RIDGE)
    nested = mean_of([Mixture((first, second), Logistic()), third])

    @dataclass(frozen=True)
    class Flat:
        def shares(self, X):
            return np.column_stack([0.5 * Logistic().shares(X), np.full(len(X), 0.5)])

    flat = Mixture((first, second, third), Flat())
    for ask in (lambda smoother: smoother.at(queries), *MOMENTS_OF_ROWS):
        assert_same_regressions(ask(nested), ask(flat))
    bounds = [
        jackknife_plus(
            each.at(queries),
            RESOURCES,
            leave_one_out_residuals(each, RESOURCES),
            coverage,
            None,
        )[0]
        for each in (nested, flat)
    ]
    assert_allclose(*bounds, rtol=0, atol=1e-12)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("kernel", ["epanechnikov", "tricube"])
def test_a_component_outside_its_support_takes_the_nearest_row_and_others_do_not(kernel, degree):
    mixture, queries = mixture_of(rows_of(), "varying", degree, kernel), 1.8 * queries_of(60)
    regression = mixture.at(queries)
    outside = np.array([predict(each, RESOURCES)[2] for each in regression.components])
    assert (outside[0] != outside[1]).any()
    # a query is outside where any component with more than a thousandth of it is
    counted = (outside & (Logistic().shares(queries).T > 1e-3)).any(axis=0)
    matrix, is_outside = smoother_matrix(regression, RESOURCES)
    assert_allclose(matrix, by_definition(mixture, regression, queries)[1], atol=1e-11)
    assert_array_equal(is_outside, counted)
    assert_array_equal(predict(regression, RESOURCES)[2], counted)
    far, _, all_outside = predict(mixture.at(100.0 + queries), RESOURCES)
    assert all_outside.all()
    assert np.isfinite(far).all()


@pytest.mark.parametrize(("gates", "degree"), CASES)
def test_blocks_threads_and_order_do_not_matter(gates, degree):
    queries, order = queries_of(301), np.random.default_rng(4).permutation(301)
    mixture = mixture_of(rows_of(), gates, degree)
    expected, _, _ = predict(mixture.at(queries), RESOURCES)
    for resources in (Resources(block_bytes=1), Resources(n_threads=2, block_bytes=20_000)):
        found, _, _ = predict(mixture.at(queries), resources)
        assert_allclose(found, expected, rtol=0, atol=1e-13)
        matrices = [
            smoother_matrix(mixture.at(queries), each)[0] for each in (resources, RESOURCES)
        ]
        assert_allclose(*matrices, rtol=0, atol=1e-13)
    found, _, _ = predict(mixture.at(queries[order]), RESOURCES)
    assert_allclose(found, expected[order], rtol=0, atol=1e-13)


def test_changes_of_a_mixed_regression_are_those_of_all_components():
    training_set = rows_of()
    nested = mean_of([mixture_of(training_set, "varying", 1), mixture_of(training_set, "equal", 1)])
    regression = nested.at(queries_of())
    excluded = Exclusion(np.zeros(23, dtype=int), np.full(23, 3), np.zeros(23))
    without, _ = smoother_matrix(regression.excluding(excluded), RESOURCES)
    assert_array_equal(without[:, :3], 0.0)
    assert_allclose(without.sum(axis=1), 1.0)
    means = regression.means_of(np.ones((N, 1)))
    assert [each.regressors for each in means.components] == [None] * 4
    assert_allclose(predict(means, RESOURCES)[0], 1.0)
    assert isinstance(nested.components[0], Component)
    wide = regression.widened(2.0).components[0].attention
    assert_array_equal(wide.keys, regression.components[0].attention.keys / 2.0)
