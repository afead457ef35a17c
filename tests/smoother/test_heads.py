"""Several kinds of attention mixed by gates: every statistic, by its definition in NumPy."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skattn._attention import Head, Resources
from skattn._geometry import Directions, Frame, Own, Table
from skattn._smoother import (
    EqualGates,
    Keys,
    effective_neighbors,
    prediction_variance,
    smooth,
    smoother_matrix,
    weights_by_head,
)
from skattn._uncertainty.intervals import (
    LeftOut,
    interval_rank,
    jackknife_plus,
    local_means,
    weighted_quantiles,
)
from skattn.kernels import KERNELS

N, RESOURCES = 60, Resources()
BANDWIDTHS = [np.array([0.4, 1.1]), np.array([1.5, 0.3])]
RIDGE = 0.02
CASES = [(gates, degree) for gates in ("equal", "varying") for degree in (0, 1)]


def mixed_weights(request):
    """Weights of the heads, by their shares."""
    gates = [head.gate for head in request.heads]
    return np.einsum("hq,hqk->qk", gates, weights_by_head(request, RESOURCES)[0])


@dataclass(frozen=True)
class Logistic:
    """Shares that depend on the row."""

    def shares(self, rows):
        first = 1.0 / (1.0 + np.exp(-2.0 * rows[:, 0]))
        return np.column_stack([first, 1.0 - first])


GATES = {"equal": EqualGates(2), "varying": Logistic()}


def table_of(kind="single", seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (N, 2))
    y = np.column_stack([np.sin(3.0 * X[:, 0]), X[:, 1] ** 2]) + 0.2 * rng.standard_normal((N, 2))
    weights = np.ones(N)
    if kind == "repeated":
        weights = rng.integers(1, 4, N).astype(float)
    if kind == "weighted":
        weights = rng.uniform(0.1, 2.0, N)
    groups = rng.integers(0, 15, N) if kind == "grouped" else None
    return Table.canonical(X, y, weights, groups)


def keys_of(table, bandwidth, degree, kernel="student"):
    frame = Frame.around(table.X, bandwidth)
    directions = Directions(Frame.around(table.X, np.full(2, 0.6)), None) if degree == 1 else None
    return Keys.mapped(table, KERNELS[kernel], frame, directions, None, RIDGE)


def mixed(table, gates, degree, kernel="student"):
    heads = [keys_of(table, bandwidth, degree, kernel) for bandwidth in BANDWIDTHS]
    return Keys.mixed(heads, GATES[gates])


def queries_of(seed=3, n=23):
    return np.random.default_rng(seed).uniform(-1.2, 1.2, (n, 2))


# The definition: one head at a time, one query at a time.


def weights_of_head(table, bandwidth, query, kernel, counts):
    """Kernel weights of one query, with sample weights of which something was left out."""
    squared = (((table.X - query) / bandwidth) ** 2).sum(axis=1)
    weights = counts * np.exp(KERNELS[kernel].log_profile(squared))
    if weights.sum() == 0.0:
        nearest = np.where(counts > 0.0, squared, np.inf)
        weights = counts * (nearest <= nearest.min() * (1.0 + 1e-12))
    return weights / weights.sum()


def smoother_of_head(table, query, weights, degree):
    """A row of the smoother matrix of one head."""
    if degree == 0:
        return weights
    line = table.X / 0.6
    center = weights @ line
    covariance = (line - center).T @ (weights[:, None] * (line - center)) + RIDGE * np.eye(2)
    arm = np.linalg.solve(covariance, query / 0.6 - center)
    return weights * (1.0 + (line - center) @ arm)


def rows_of(table, gates, degree, queries, kernel="student", counts=None):
    """Kernel weights and rows of the smoother matrix, (n_queries, n_keys) both."""
    found = []
    shares = GATES[gates].shares(queries)
    for i, query in enumerate(queries):
        left = table.weights if counts is None else counts[i]
        parts = [weights_of_head(table, h, query, kernel, left) for h in BANDWIDTHS]
        rows = [smoother_of_head(table, query, weights, degree) for weights in parts]
        found.append((shares[i] @ np.array(parts), shares[i] @ np.array(rows)))
    return (np.array(rows) for rows in zip(*found, strict=True))


def counts_without(table, own):
    """Sample weights of which what is left out is gone, a row for each."""
    counts = np.repeat(table.weights[None], len(own.start), axis=0)
    for row, start, stop, kept in zip(counts, own.start, own.stop, own.kept, strict=True):
        row[start:stop] *= kept
    return counts


# ---------------------------------------------------------------------------------------------
# At queries


@pytest.mark.parametrize("kind", ["single", "repeated", "weighted"])
@pytest.mark.parametrize(("gates", "degree"), CASES)
def test_means_and_rows_of_the_smoother_are_mixed_by_the_gates(gates, degree, kind):
    table, queries = table_of(kind), queries_of()
    keys = mixed(table, gates, degree)
    request = keys.at(queries)
    weights, rows = rows_of(table, gates, degree, queries)
    found, outside = smoother_matrix(request, RESOURCES)
    assert_allclose(found, rows, atol=1e-12)
    assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)
    assert_allclose(mixed_weights(request), weights, atol=1e-13)
    smoothed = smooth(request, RESOURCES)
    mean = keys.unit.restore(smoothed.mean, is_mean=degree == 0)
    assert_allclose(mean, rows @ table.y, atol=1e-11)
    assert not outside.any()
    assert not smoothed.outside.any()
    values = np.random.default_rng(1).standard_normal((N, 3))
    assert_allclose(local_means(request, RESOURCES, values), weights @ values, atol=1e-12)
    top, _ = smoother_matrix(request, RESOURCES, top_k=5)
    largest = -np.sort(-np.abs(rows), axis=1)[:, :5]
    assert_allclose(-np.sort(-np.abs(top.toarray()), axis=1)[:, :5], largest, atol=1e-12)


@pytest.mark.parametrize("kind", ["single", "repeated", "weighted"])
@pytest.mark.parametrize(("gates", "degree"), CASES)
def test_squares_of_weights_are_of_the_mixed_ones(gates, degree, kind):
    table, queries = table_of(kind), queries_of()
    request = mixed(table, gates, degree).at(queries)
    weights, rows = rows_of(table, gates, degree, queries)
    repeats = table.weights if kind == "repeated" else np.ones(N)
    number, outside = effective_neighbors(request, RESOURCES)
    assert_allclose(number, 1.0 / (weights**2 / repeats).sum(axis=1), rtol=1e-10)
    assert not outside.any()
    variances = np.random.default_rng(2).uniform(0.5, 2.0, (N, 2))
    found = prediction_variance(request, RESOURCES, variances)
    assert_allclose(found, (rows**2 / repeats) @ variances, rtol=1e-9)


@pytest.mark.parametrize("kind", ["single", "weighted"])
@pytest.mark.parametrize(("gates", "degree"), CASES)
def test_quantiles_are_those_of_the_mixed_weights(gates, degree, kind):
    table, queries = table_of(kind), queries_of()
    request = mixed(table, gates, degree).at(queries)
    weights, _ = rows_of(table, gates, degree, queries)
    levels = np.array([0.0, 0.1, 0.5, 0.83, 1.0])
    found, _ = weighted_quantiles(request, RESOURCES, table.y, levels)
    for output, values in enumerate(table.y.T):
        order = np.argsort(values)
        totals = weights[:, order].cumsum(axis=1)
        for i, level in enumerate(levels[1:4], start=1):
            expected = values[order[(totals < level - 1e-12).sum(axis=1)]]
            assert_array_equal(found[:, i, output], expected)
        assert_array_equal(found[:, 0, output], values.min())
        assert_array_equal(found[:, 4, output], values.max())


# ---------------------------------------------------------------------------------------------
# At the training rows


@pytest.mark.parametrize("kind", ["single", "repeated", "weighted", "grouped"])
@pytest.mark.parametrize(("gates", "degree"), CASES)
def test_leave_one_out_leaves_the_same_out_of_every_head(gates, degree, kind):
    table = table_of(kind)
    keys, own = mixed(table, gates, degree), table.own()
    _, rows = rows_of(table, gates, degree, table.X, counts=counts_without(table, own))
    request = keys.leave_one_out()
    found, _ = smoother_matrix(request, RESOURCES)
    assert_allclose(found, rows, atol=1e-12)
    mean = keys.unit.restore(smooth(request, RESOURCES).mean, is_mean=degree == 0)
    assert_allclose(mean, rows @ table.y, atol=1e-11)
    if kind != "repeated":
        for row, start, stop in zip(found, own.start, own.stop, strict=True):
            assert_array_equal(row[start:stop], 0.0)
    some = np.array([5, 9, 33])
    assert_allclose(smooth(request.take(some), RESOURCES).mean,
                    smooth(request, RESOURCES).mean[some], atol=1e-13)  # fmt: skip


@pytest.mark.parametrize("kind", ["single", "repeated"])
@pytest.mark.parametrize(("gates", "degree"), CASES)
def test_leverages_are_the_diagonal(gates, degree, kind):
    table = table_of(kind)
    _, rows = rows_of(table, gates, degree, table.X)
    found = smooth(mixed(table, gates, degree).rows(), RESOURCES).leverage
    assert_allclose(found, np.diag(rows), rtol=1e-10)


@pytest.mark.parametrize("kind", ["single", "repeated", "grouped"])
@pytest.mark.parametrize(("gates", "degree"), CASES)
def test_intervals_are_the_jackknife_plus_of_the_mixed_predictions(gates, degree, kind):
    table, queries, coverage = table_of(kind), queries_of(n=7), 0.8
    keys, own = mixed(table, gates, degree), table.own()
    without = counts_without(table, own)
    _, rows = rows_of(table, gates, degree, table.X, counts=without)
    residuals, counts = table.y - rows @ table.y, table.counts()
    mean = smooth(keys.leave_one_out(), RESOURCES).mean
    left_out = LeftOut(keys.values - mean, counts, own)
    found, outside = jackknife_plus(keys.at(queries), RESOURCES, left_out, coverage, None)
    found = keys.unit.restore(found, is_mean=False)
    rank = interval_rank(counts, coverage)
    assert not outside.any()
    for query, bounds in zip(queries, found, strict=True):
        at = np.tile(query, (N, 1))
        _, rows = rows_of(table, gates, degree, at, counts=without)
        fits = rows @ table.y
        for output in range(2):
            sizes = np.abs(residuals[:, output])
            upper = np.repeat(fits[:, output] + sizes, counts.astype(int))
            lower = np.repeat(fits[:, output] - sizes, counts.astype(int))
            assert_allclose(bounds[1, output], np.sort(upper)[int(rank) - 1], atol=1e-9)
            assert_allclose(bounds[0, output], -np.sort(-lower)[int(rank) - 1], atol=1e-9)


# ---------------------------------------------------------------------------------------------
# Heads among themselves


@pytest.mark.parametrize("degree", [0, 1])
def test_a_single_head_is_the_plain_request(degree):
    table, queries = table_of("repeated"), queries_of()
    plain = keys_of(table, BANDWIDTHS[0], degree)
    one = Keys.mixed([plain], EqualGates(1))
    for ask in (lambda keys: keys.at(queries), Keys.leave_one_out, Keys.rows):
        found, expected = smooth(ask(one), RESOURCES), smooth(ask(plain), RESOURCES)
        assert_allclose(found.mean, expected.mean, rtol=0, atol=1e-14)
        assert_allclose(found.leverage, expected.leverage, rtol=0, atol=1e-14)
        matrices = [smoother_matrix(ask(keys), RESOURCES)[0] for keys in (one, plain)]
        assert_allclose(*matrices, rtol=0, atol=1e-14)
        numbers = [effective_neighbors(ask(keys), RESOURCES)[0] for keys in (one, plain)]
        assert_allclose(*numbers, rtol=1e-12)


@pytest.mark.parametrize("degree", [0, 1])
def test_equal_heads_are_one_whatever_the_gates(degree):
    table, queries = table_of(), queries_of()
    plain = keys_of(table, BANDWIDTHS[0], degree)
    twice = Keys.mixed([plain, plain], Logistic())
    for ask in (lambda keys: keys.at(queries), Keys.leave_one_out):
        found, expected = smooth(ask(twice), RESOURCES), smooth(ask(plain), RESOURCES)
        assert_allclose(found.mean, expected.mean, rtol=0, atol=1e-14)


@pytest.mark.parametrize("degree", [0, 1])
def test_gates_of_one_choose_a_head(degree):
    @dataclass(frozen=True)
    class Choice:
        def shares(self, rows):
            first = (rows[:, 0] < 0.0).astype(float)
            return np.column_stack([first, 1.0 - first])

    table, queries = table_of(), queries_of()
    heads = [keys_of(table, bandwidth, degree) for bandwidth in BANDWIDTHS]
    found = smooth(Keys.mixed(heads, Choice()).at(queries), RESOURCES).mean
    one, other = (smooth(head.at(queries), RESOURCES).mean for head in heads)
    expected = np.where(queries[:, :1] < 0.0, one, other)
    assert_allclose(found, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("degree", [0, 1])
def test_heads_may_have_heads(degree):
    # three kinds of attention, once nested and once side by side
    table, queries, coverage = table_of(), queries_of(), 0.8
    first, second = (keys_of(table, bandwidth, degree) for bandwidth in BANDWIDTHS)
    third = keys_of(table, np.array([0.7, 0.7]), degree)
    nested = Keys.mixed([Keys.mixed([first, second], Logistic()), third], EqualGates(2))

    @dataclass(frozen=True)
    class Flat:
        def shares(self, rows):
            return np.column_stack([0.5 * Logistic().shares(rows), np.full(len(rows), 0.5)])

    flat = Keys.mixed([first, second, third], Flat())
    for ask in (lambda keys: keys.at(queries), Keys.leave_one_out, Keys.rows):
        found, expected = ask(nested), ask(flat)
        one, two = smooth(found, RESOURCES), smooth(expected, RESOURCES)
        assert_allclose(one.mean, two.mean, rtol=0, atol=1e-13)
        assert_allclose(one.leverage, two.leverage, rtol=0, atol=1e-13)
        matrices = [smoother_matrix(request, RESOURCES)[0] for request in (found, expected)]
        assert_allclose(*matrices, rtol=0, atol=1e-13)
    levels = np.array([0.2, 0.7])
    quantiles = [
        weighted_quantiles(keys.at(queries), RESOURCES, table.y, levels)[0]
        for keys in (nested, flat)
    ]
    assert_array_equal(*quantiles)
    bounds = []
    for keys in (nested, flat):
        residuals = keys.values - smooth(keys.leave_one_out(), RESOURCES).mean
        left_out = LeftOut(residuals, table.counts(), table.own())
        bounds.append(jackknife_plus(keys.at(queries), RESOURCES, left_out, coverage, None)[0])
    assert_allclose(*bounds, rtol=0, atol=1e-12)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("kernel", ["epanechnikov", "tricube"])
def test_a_head_outside_its_support_takes_the_nearest_row_and_others_do_not(kernel, degree):
    table, queries = table_of(), 1.8 * queries_of(n=60)
    keys = mixed(table, "varying", degree, kernel)
    weights, rows = rows_of(table, "varying", degree, queries, kernel)
    request = keys.at(queries)
    single = [head.at(queries) for head in keys.heads]
    outside = np.array([smooth(part, RESOURCES).outside for part in single])
    assert (outside[0] != outside[1]).any()
    assert_allclose(smoother_matrix(request, RESOURCES)[0], rows, atol=1e-11)
    assert_allclose(mixed_weights(request), weights, atol=1e-12)
    # a query is outside where any head with more than a thousandth of it is
    counted = (outside & (GATES["varying"].shares(queries).T > 1e-3)).any(axis=0)
    assert_array_equal(smooth(request, RESOURCES).outside, counted)
    assert_array_equal(smoother_matrix(request, RESOURCES)[1], counted)
    far = smooth(keys.at(100.0 + queries), RESOURCES)
    assert far.outside.all()
    assert np.isfinite(far.mean).all()


@pytest.mark.parametrize(("gates", "degree"), CASES)
def test_blocks_threads_and_order_do_not_matter(gates, degree):
    rng = np.random.default_rng(4)
    table, queries = table_of(), queries_of(n=301)
    keys, order = mixed(table, gates, degree), rng.permutation(301)
    expected = smooth(keys.at(queries), RESOURCES)
    for resources in (Resources(block_bytes=1), Resources(n_threads=2, block_bytes=20_000)):
        found = smooth(keys.at(queries), resources)
        assert_allclose(found.mean, expected.mean, rtol=0, atol=1e-13)
        matrices = [smoother_matrix(keys.at(queries), each)[0] for each in (resources, RESOURCES)]
        assert_allclose(*matrices, rtol=0, atol=1e-13)
    found = smooth(keys.at(queries[order]), RESOURCES)
    assert_allclose(found.mean, expected.mean[order], rtol=0, atol=1e-13)
    shuffled = rng.permutation(N)
    other = Table.canonical(table.X[shuffled], table.y[shuffled], np.ones(N))
    found = smooth(mixed(other, gates, degree).at(queries), RESOURCES)
    assert_array_equal(found.mean, expected.mean)


def test_what_is_changed_of_a_request_is_changed_in_all_heads():
    table, queries = table_of(), queries_of()
    nested = Keys.mixed([mixed(table, "varying", 1), mixed(table, "equal", 1)], EqualGates(2))
    request = nested.at(queries)
    own = Own(np.zeros(23, dtype=int), np.full(23, 3), np.zeros(23))
    without, _ = smoother_matrix(request.leaving_out(own), RESOURCES)
    assert_array_equal(without[:, :3], 0.0)
    assert_allclose(without.sum(axis=1), 1.0)
    means = request.of_values(np.ones((N, 1)))

    def lines(part):
        return [part.line, *(line for head in part.heads for line in lines(head.request))]

    assert lines(means) == [None] * 7
    assert_allclose(smooth(means, RESOURCES).mean, 1.0)
    assert not request.is_plain
    assert not replace(keys_of(table, BANDWIDTHS[0], 0).at(queries),
                       heads=(Head(np.ones(23), request),)).is_plain  # fmt: skip
    assert keys_of(table, BANDWIDTHS[0], 0).at(queries).is_plain
