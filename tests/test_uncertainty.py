"""Quantiles and intervals: the definitions, by refitting and by sorting."""

import warnings
from itertools import pairwise

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skattn import NadarayaWatsonRegressor
from skattn._attention import Request, Resources
from skattn._geometry import Own, Table
from skattn.kernels import KERNELS
from skattn._smoother import Keys, smooth
from skattn._uncertainty.intervals import (
    LeftOut,
    interval_rank,
    jackknife_plus,
    local_means,
    residual_scales,
    weighted_quantiles,
)

GAUSSIAN = KERNELS["gaussian"]


def same_place(weights):
    """A query at the place of all keys: attention weights are the shares of the sample weights."""
    n = len(weights)
    zeros = np.zeros((n, 1))
    return Request(np.zeros((1, 1)), zeros, zeros, GAUSSIAN, np.log(weights))


# ---------------------------------------------------------------------------------------------
# Quantiles


def test_quantiles_of_four_weights():
    # quantile-forest 62 and 118
    weights, values = np.array([0.1, 0.2, 0.3, 0.4]), np.array([[1.0], [2.0], [3.0], [4.0]])
    levels = np.array([0.05, 0.1, 0.3, 0.5, 0.95])
    found, outside = weighted_quantiles(same_place(weights), Resources(), values, levels)
    assert_array_equal(found[0, :, 0], [1.0, 1.0, 2.0, 3.0, 4.0])
    assert not outside.any()


def test_median_of_attention():
    X, y = np.array([[-1.0], [0.0], [1.0], [2.0]]), np.array([3.0, 1.0, 4.0, 2.0])
    model = NadarayaWatsonRegressor(1.0).fit(X, y)
    expected = [0.2582743728, 0.4258224522, 0.2582743728, 0.0576288022]
    assert_allclose(model.attention_weights([[0.0]]), [expected], atol=1e-10)
    levels = [0.0, 0.42, 0.43, 0.48, 0.49, 0.5, 0.74, 0.75, 1.0]
    found = model.predict_quantiles([[0.0]], levels)
    assert_array_equal(found, [[1.0, 1.0, 2.0, 2.0, 3.0, 3.0, 3.0, 4.0, 4.0]])


def by_sorting(weights, values, levels):
    order = np.argsort(values, kind="stable")
    totals = weights[order].cumsum() / weights.sum()
    return [values[order][np.argmax(totals >= max(level - 1e-9, 1e-300))] for level in levels]


@pytest.mark.parametrize("name", ["gaussian", "epanechnikov", "uniform"])
def test_quantiles_are_those_of_sorted_values(name, rng):
    X, queries = rng.random((90, 2)), rng.random((30, 2))
    y = np.round(rng.standard_normal((90, 2)), 1)  # ties
    weights = rng.integers(0, 4, 90)
    levels = np.array([0.0, 0.01, 0.25, 0.5, 0.9, 0.99, 1.0])
    model = NadarayaWatsonRegressor(0.25, kernel=name).fit(X, y, weights)
    found = model.predict_quantiles(queries, levels)
    for quantiles, attention in zip(found, model.attention_weights(queries), strict=True):
        some = attention > 0.0  # levels 0 and 1 are the extremes among rows with a weight
        for output in range(2):
            expected = by_sorting(attention[some], y[some, output], levels)
            assert_array_equal(quantiles[:, output], expected)
    assert (np.diff(found, axis=1) >= 0.0).all()


def test_levels_that_are_shares_are_reached(rng):
    # sums of n equal weights are rounded, and yet reach i / n at the i-th value
    for n in (3, 7, 10, 49, 1000):
        values = rng.permutation(n).astype(float)[:, None]
        levels = np.arange(1, n + 1) / n
        found, _ = weighted_quantiles(same_place(np.ones(n)), Resources(), values, levels)
        assert_array_equal(found[0, :, 0], np.arange(n))


def test_quantiles_of_monotone_transforms_are_transformed(rng):
    X, y, queries = rng.random((80, 1)), rng.standard_normal(80), rng.random((20, 1))
    levels = [0.05, 0.5, 0.95]
    plain = NadarayaWatsonRegressor(0.1).fit(X, y).predict_quantiles(queries, levels)
    cubes = NadarayaWatsonRegressor(0.1).fit(X, np.exp(3.0 * y)).predict_quantiles(queries, levels)
    assert_array_equal(cubes, np.exp(3.0 * plain))


def test_quantiles_of_repeated_rows_are_those_of_weights(rng):
    X, y, weights = rng.random((40, 1)), rng.standard_normal(40), rng.integers(0, 4, 40)
    queries, levels = rng.random((20, 1)), [0.1, 0.5, 0.8]
    for degree in (0, 1):
        model = NadarayaWatsonRegressor(0.2, degree=degree)
        one = model.fit(X, y, weights).predict_quantiles(queries, levels)
        repeated = np.repeat(X, weights, axis=0), np.repeat(y, weights)
        assert_allclose(one, model.fit(*repeated).predict_quantiles(queries, levels), rtol=1e-9)


def test_quantiles_around_lines_are_those_of_residuals(rng):
    X, queries = rng.random((80, 1)), rng.random((20, 1))
    y = 5.0 * X[:, 0] + rng.standard_normal(80)
    model = NadarayaWatsonRegressor(0.3, degree=1).fit(X, y)
    levels = [0.1, 0.5, 0.9]
    residuals = y - model.predict(None)
    attention = NadarayaWatsonRegressor(0.3).fit(X, y).attention_weights(queries)
    expected = [by_sorting(weights, residuals, levels) for weights in attention]
    found = model.predict_quantiles(queries, levels) - model.predict(queries)[:, None]
    assert_allclose(found, expected, atol=1e-12)


def test_quantiles_do_not_depend_on_threads_and_blocks(rng):
    keys, values = rng.random((900, 2)), rng.standard_normal((900, 2))
    queries = rng.random((600, 2))
    request = Request(queries / 0.2, keys / 0.2, values, GAUSSIAN, np.zeros(900))
    levels = np.array([0.1, 0.6])
    expected, _ = weighted_quantiles(request, Resources(), values, levels)
    for resources in (Resources(n_threads=2), Resources(block_bytes=1)):
        assert_array_equal(weighted_quantiles(request, resources, values, levels)[0], expected)


# ---------------------------------------------------------------------------------------------
# Ranks


@pytest.mark.parametrize(
    ("n", "coverage", "rank"),
    [
        (8, 0.9, np.inf),
        (9, 0.9, 9),
        (10, 0.9, 10),
        (19, 0.9, 18),
        (98, 0.99, np.inf),
        (99, 0.99, 99),
        (9, 0.7, 7),  # 0.7 * 10 is rounded to more than 7
        (99, 0.29, 29),
        (99, 0.57, 57),
        (9, 0.1, 1),
        (9, 0.11, 2),
        (2, 0.5, 2),
        (1, 0.5, 1),
        (1, 0.51, np.inf),
        (999, 0.999, 999),
    ],
)
def test_rank_is_the_coverage_of_one_row_more(n, coverage, rank):
    assert interval_rank(np.ones(n), coverage) == rank
    assert interval_rank(np.full(1, float(n)), coverage) == rank  # a row n times


def test_every_whole_rank_is_found():
    for n in range(1, 400):
        coverages = np.arange(1, n + 1) / (n + 1)
        ranks = [interval_rank(np.ones(n), coverage) for coverage in coverages]
        assert_array_equal(ranks, np.arange(1, n + 1))


# ---------------------------------------------------------------------------------------------
# Jackknife+


def by_refitting(model, X, y, queries, coverage, weights=None, groups=None):
    """Barber, Candes, Ramdas and Tibshirani (2021), a fit for each row left out."""
    n = len(y)
    residuals = np.abs(y - model.predict(None))
    lower, upper, repeats = [], [], []
    is_importance = weights is not None and not (weights == np.round(weights)).all()
    for i in range(n):
        counts = np.ones(n) if weights is None else weights.astype(float)
        if groups is not None:
            counts[groups == groups[i]] = 0.0
        elif is_importance:
            counts[(X[i] == X).all(axis=1)] = 0.0
        else:
            counts[i] -= 1.0
        kept = counts > 0.0
        without = NadarayaWatsonRegressor(
            model.bandwidth, kernel=model.kernel, degree=model.degree
        ).fit(X[kept], y[kept], sample_weight=counts[kept])
        predicted = without.predict(queries)
        lower.append(predicted - residuals[i])
        upper.append(predicted + residuals[i])
        repeats.append(1.0 if weights is None else weights[i])
    repeats = np.array(repeats, float)
    if is_importance:
        repeats /= repeats.mean()
    rank = np.ceil(coverage * (repeats.sum() + 1.0) - 1e-9)
    bounds = np.empty((len(queries), 2))
    for side, (sign, ends) in enumerate(((-1.0, lower), (1.0, upper))):
        ends = sign * np.array(ends)
        for q, column in enumerate(ends.T):
            order = np.argsort(column)
            totals = repeats[order].cumsum()
            bounds[q, side] = sign * column[order][np.argmax(totals >= rank * (1.0 - 1e-12))]
    return bounds


def rows_of(kind, rng, n=30):
    X = rng.uniform(size=(n, 2))
    if kind == "importances":
        X = np.round(X * 4.0) / 4.0  # several rows at the same place are left out together
    y = np.sin(5.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n)
    weights = {"multiplicities": rng.integers(1, 4, n), "importances": rng.random(n)}.get(kind)
    groups = rng.integers(0, 12, n) if kind == "groups" else None
    return X, y, weights, groups


@pytest.mark.parametrize("kind", ["rows", "multiplicities", "importances", "groups"])
@pytest.mark.parametrize("name", ["gaussian", "student", "epanechnikov"])
@pytest.mark.parametrize("degree", [0, 1])
def test_intervals_are_those_of_refits(kind, name, degree, rng):
    X, y, weights, groups = rows_of(kind, rng)
    queries = rng.uniform(-0.2, 1.2, (12, 2))
    for bandwidth, coverage in ((0.05, 0.9), (0.2, 0.6), (2.0, 0.9)):
        model = NadarayaWatsonRegressor(bandwidth, kernel=name, degree=degree)
        model.fit(X, y, weights, groups)
        found = model.predict_interval(queries, coverage)
        expected = by_refitting(model, X, y, queries, coverage, weights, groups)
        scale = np.maximum(1.0, np.abs(expected))
        assert_allclose(found / scale, expected / scale, rtol=0, atol=1e-6)


def test_intervals_of_each_output_are_its_own(rng):
    X, y = rng.random((60, 2)), rng.standard_normal((60, 2)) * [1.0, 1e6]
    queries = rng.random((20, 2))
    for degree in (0, 1):
        model = NadarayaWatsonRegressor(0.3, degree=degree)
        both = model.fit(X, y).predict_interval(queries)
        for output in range(2):
            alone = model.fit(X, y[:, output]).predict_interval(queries)
            assert_allclose(both[:, :, output], alone, rtol=1e-9)


def test_mean_of_all_rows_by_hand():
    # without row i the mean of the nine others; residuals are 10/9 of the deviations
    y = np.arange(10.0) ** 2
    model = NadarayaWatsonRegressor(np.inf).fit(np.arange(10.0)[:, None], y)
    without = (y.sum() - y) / 9.0
    residuals = np.abs(y - without)
    lower, upper = np.sort(without - residuals), np.sort(without + residuals)
    assert_allclose(model.predict_interval([[3.3]], 0.9), [[lower[0], upper[9]]])
    assert_allclose(model.predict_interval([[3.3]], 0.7), [[lower[2], upper[7]]])


def test_repeated_rows_have_the_intervals_of_weights(rng):
    X, y, weights = rng.random((30, 1)), rng.standard_normal(30), rng.integers(1, 4, 30)
    queries = rng.random((20, 1))
    for degree in (0, 1):
        for local in (False, True):
            model = NadarayaWatsonRegressor(0.2, degree=degree)
            one = model.fit(X, y, weights).predict_interval(queries, local=local)
            model.fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
            assert_allclose(one, model.predict_interval(queries, local=local), rtol=1e-8)


def test_scaling_importances_does_not_change_intervals(rng):
    X, y, weights, _ = rows_of("importances", rng)
    queries = rng.random((20, 2))
    one = NadarayaWatsonRegressor(0.3).fit(X, y, weights).predict_interval(queries)
    other = NadarayaWatsonRegressor(0.3).fit(X, y, 1e-9 * weights).predict_interval(queries)
    assert_allclose(one, other, rtol=1e-9)


@pytest.mark.parametrize("bandwidth", [0.002, 0.02, 0.3])
def test_of_many_rows_intervals_are_within_the_stated_bound(bandwidth, rng):
    n, coverage = 2500, 0.9
    X = rng.random((n, 1))
    y = np.sin(6.0 * X[:, 0]) + 0.3 * rng.standard_normal(n)
    queries = np.linspace(-0.05, 1.05, 40)[:, None]
    model = NadarayaWatsonRegressor(bandwidth).fit(X, y)
    weights, mean = model.attention_weights(queries), model.predict(queries)
    without = (mean[:, None] - weights * y) / (1.0 - weights)
    residuals = np.abs(y - model.predict(None))
    rank = int(np.ceil(coverage * (n + 1) - 1e-9))
    upper = np.sort(without + residuals, axis=1)[:, rank - 1]
    lower = np.sort(without - residuals, axis=1)[:, n - rank]
    found = model.predict_interval(queries, coverage)
    assert_allclose(found, np.column_stack([lower, upper]), rtol=0,
                    atol=0.001 / 0.999 * np.ptp(y) + 1e-9)  # fmt: skip
    if bandwidth == 0.002:  # where most of what matters has a larger weight
        assert_allclose(found, np.column_stack([lower, upper]), rtol=0, atol=2e-3)


def test_where_one_row_has_all_the_weight_it_is_left_out_anew(rng):
    # 1 - w is nothing but rounding: the prediction without the row comes from the next ones
    X = np.append(rng.random(30), 50.0)[:, None]
    y = np.append(rng.random(30), 100.0)
    queries = np.array([[50.0], [49.0], [52.0]])
    for degree in (0, 1):
        model = NadarayaWatsonRegressor(0.5, degree=degree).fit(X, y)
        found = model.predict_interval(queries, 0.96)
        expected = by_refitting(model, X, y, queries, 0.96)
        assert_allclose(found, expected, rtol=1e-6)


def test_jackknife_does_not_depend_on_threads_blocks_or_order(rng):
    X, y, queries = rng.random((800, 2)), rng.standard_normal((800, 1)), rng.random((600, 2))
    for spread in (None, np.ones(2)):
        table = Table.canonical(X, y, np.ones(800))
        keys = Keys.of(table, GAUSSIAN, np.full(2, 0.15), spread, None)
        rows = keys.leave_one_out()
        left_out = LeftOut(
            keys.values - smooth(rows, Resources()).mean, table.counts(), table.own()
        )
        arguments = left_out, 0.9, None
        expected, _ = jackknife_plus(keys.at(queries), Resources(), *arguments)
        two, _ = jackknife_plus(keys.at(queries), Resources(n_threads=2), *arguments)
        assert_array_equal(two, expected)
        small, _ = jackknife_plus(keys.at(queries), Resources(block_bytes=1), *arguments)
        assert_allclose(small, expected, atol=1e-9)
        order = rng.permutation(600)
        shuffled, _ = jackknife_plus(keys.at(queries[order]), Resources(), *arguments)
        assert_allclose(shuffled, expected[order], atol=1e-9)


@pytest.mark.parametrize("local", [False, True])
@pytest.mark.parametrize("degree", [0, 1])
def test_intervals_cover_what_they_say(degree, local):
    covered = []
    for seed in range(12):
        rng = np.random.default_rng(seed)
        X = rng.random((400, 1))
        y = np.sin(6.0 * X[:, 0]) + (0.1 + X[:, 0]) * rng.standard_normal(400)
        model = NadarayaWatsonRegressor(0.1, degree=degree).fit(X[:150], y[:150])
        lower, upper = model.predict_interval(X[150:], 0.8, local=local).T
        covered.append(((lower <= y[150:]) & (y[150:] <= upper)).mean())
    assert abs(np.mean(covered) - 0.8) < 0.03


def test_intervals_widen_with_the_coverage(rng):
    X, y, queries = rng.random((60, 1)), rng.standard_normal(60), rng.random((20, 1))
    for degree, local in ((0, False), (1, False), (0, True), (1, True)):
        model = NadarayaWatsonRegressor(0.2, degree=degree).fit(X, y)
        found = [model.predict_interval(queries, c, local=local) for c in (0.1, 0.5, 0.9, 0.98)]
        for narrow, wide in pairwise(found):
            assert (wide[:, 0] <= narrow[:, 0]).all()
            assert (wide[:, 1] >= narrow[:, 1]).all()


# ---------------------------------------------------------------------------------------------
# Scales


def scales_of(X, residuals, queries, bandwidth=0.1, weights=None):
    table = Table.canonical(X, residuals, np.ones(len(X)) if weights is None else weights)
    keys = Keys.of(table, GAUSSIAN, np.full(X.shape[1], bandwidth), None, None)
    left_out = LeftOut(table.y, table.counts(), table.own())
    return residual_scales(keys.at(queries), keys.leave_one_out(), Resources(), left_out), table


def test_constant_noise_has_a_constant_scale(rng):
    X, queries = rng.random((400, 1)), np.linspace(0.02, 0.98, 50)[:, None]
    (at_queries, at_keys), _ = scales_of(X, 0.7 * rng.choice([-1.0, 1.0], (400, 1)), queries)
    assert_allclose(at_queries, 0.7, rtol=1e-12)
    assert_allclose(at_keys, 0.7, rtol=1e-12)
    (at_queries, at_keys), _ = scales_of(X, rng.standard_normal((400, 1)), queries)
    assert_allclose(at_queries, np.sqrt(2.0 / np.pi), rtol=0.25)
    assert_allclose(at_keys, np.sqrt(2.0 / np.pi), rtol=0.25)


def test_scales_follow_the_noise(rng):
    X = rng.random((400, 1))
    residuals = (0.05 + X) * rng.standard_normal((400, 1))
    queries = np.array([[0.1], [0.5], [0.9]])
    (at_queries, _), _ = scales_of(X, residuals, queries)
    assert_allclose(at_queries[:, 0], (0.05 + queries[:, 0]) * np.sqrt(2.0 / np.pi), rtol=0.35)


def test_scales_at_keys_do_not_see_the_key_itself(rng):
    X, residuals = rng.random((40, 1)), rng.standard_normal((40, 1))
    before, table = scales_of(X, residuals, X)
    row = int(np.argsort(np.abs(table.y[:, 0]))[20])
    changed = table.y.copy()
    changed[row] *= 1.0 + 1e-6  # hardly moves the overall mean and the choice of the bandwidth
    after, _ = scales_of(table.X, changed, X)
    moved = np.abs(after[1] - before[1])[:, 0]
    assert moved[row] <= 1.1 * 1e-6 * np.abs(changed).mean()
    assert moved.max() > moved[row]


def test_scales_are_means_of_sizes_at_one_of_the_multiples(rng):
    X, residuals = rng.random((60, 1)), rng.standard_normal((60, 2))
    residuals[:, 1] *= 100.0
    queries = rng.random((10, 1))
    (at_queries, at_keys), table = scales_of(X, residuals, queries)
    sizes = np.abs(table.y)
    errors, scales = [], []
    for multiple in [*(2.0 ** np.arange(-4, 6)), np.inf]:
        width = 0.1 * multiple
        both = []
        for places, is_left_out in ((queries, False), (table.X, True)):
            logs = -0.5 * ((places - table.X.T) / width) ** 2
            if is_left_out:
                np.fill_diagonal(logs, -np.inf)
            weights = np.exp(logs - logs.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            means, share = weights @ sizes, 1.0 / (1.0 / (weights**2).sum(axis=1) + 1.0)
            if is_left_out:
                errors.append((((sizes - means) / sizes.mean(axis=0)) ** 2).mean())
            share = share[:, None]
            both.append((1.0 - share) * means + share * sizes.mean(axis=0))
        scales.append(both)
    expected = scales[int(np.argmin(errors))]
    assert_allclose(at_queries, expected[0], rtol=1e-10)
    assert_allclose(at_keys, expected[1], rtol=1e-10)


@pytest.mark.parametrize("degree", [0, 1])
def test_without_residuals_intervals_have_no_width(degree, rng):
    X, queries = rng.random((30, 1)), rng.random((10, 1))
    model = NadarayaWatsonRegressor(0.2, degree=degree).fit(X, np.full(30, 4.0))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for local in (False, True):
            assert_array_equal(model.predict_interval(queries, local=local), 4.0)


def test_where_residuals_vanish_local_intervals_do(rng):
    # without noise on one side, and with it on the other
    X = np.concatenate([np.linspace(0.0, 1.0, 40), np.linspace(10.0, 11.0, 40)])[:, None]
    y = np.concatenate([np.zeros(40), rng.standard_normal(40)])
    model = NadarayaWatsonRegressor(0.1).fit(X, y)
    lower, upper = model.predict_interval([[0.5], [10.5]], local=True).T
    everywhere = np.ptp(model.predict_interval([[0.5], [10.5]]), axis=1)
    width = upper - lower
    assert width[0] < 0.3 * everywhere[0]
    assert width[1] > 1.5
    assert (lower[0] <= 0.0) & (upper[0] >= 0.0)


@pytest.mark.parametrize("kind", ["rows", "multiplicities", "importances", "groups"])
@pytest.mark.parametrize("degree", [0, 1])
def test_local_intervals_are_those_of_scaled_residuals(kind, degree, rng):
    # the definition, from the estimator's own scales: R_i times scale(q) / scale(i)
    X, y, weights, groups = rows_of(kind, rng)
    queries = rng.random((15, 2))
    model = NadarayaWatsonRegressor(0.3, degree=degree).fit(X, y, weights, groups)
    table = model._keys.table
    left_out = model._left_out()
    at_queries, at_keys = model._residual_scales(queries, left_out)
    request = model._request(queries)[0]
    found, _ = jackknife_plus(request, Resources(), left_out, 0.9, (at_queries, at_keys))
    rank = interval_rank(left_out.counts, 0.9)
    own, counts = table.own(), left_out.counts
    for q in range(15):
        one = request.take(np.full(len(counts), q))
        without = smooth(
            Request(
                one.queries,
                one.keys,
                one.values,
                one.kernel,
                one.log_weights,
                Own(own.start, own.stop, own.kept),
                line=one.line,
            ),
            Resources(),
        ).mean[:, 0]
        reach = np.abs(left_out.residuals[:, 0]) / at_keys[:, 0] * at_queries[q, 0]
        for side, sign in enumerate((-1.0, 1.0)):
            ends = sign * without + reach
            order = np.argsort(ends)
            position = np.argmax(counts[order].cumsum() >= rank * (1.0 - 1e-12))
            assert_allclose(found[q, side, 0], sign * ends[order][position], atol=1e-7)


def test_local_means_are_kernel_means_at_any_degree(rng):
    X, columns = rng.random((50, 1)), rng.random((50, 3))
    queries = rng.random((9, 1))
    table = Table.canonical(X, X, np.ones(50))
    for spread in (None, np.ones(1)):
        keys = Keys.of(table, GAUSSIAN, np.full(1, 0.2), spread, None)
        weights = np.exp(-0.5 * ((queries - table.X.T) / 0.2) ** 2)
        expected = weights @ columns / weights.sum(axis=1, keepdims=True)
        assert_allclose(local_means(keys.at(queries), Resources(), columns), expected)


@pytest.mark.parametrize("coverage", [0.5, 0.6, 0.8])
def test_intervals_outside_the_support_are_those_of_flat_lines(coverage):
    # five keys at one distance from the query, beyond a compact kernel: lines are flat there
    angle = np.linspace(0.0, np.pi / 2.0, 5)
    X, y = (
        2.0 * np.column_stack([np.cos(angle), np.sin(angle)]),
        np.array([0.0, 3.0, -1.0, 5.0, 2.0]),
    )
    model = NadarayaWatsonRegressor(1.0, degree=1, kernel="epanechnikov").fit(X, y)
    sizes = np.abs(y - model.predict(None))
    without = np.array([np.delete(y, i).mean() for i in range(5)])
    rank = int(np.ceil(6.0 * coverage - 1e-9))
    expected = [np.sort(without - sizes)[5 - rank], np.sort(without + sizes)[rank - 1]]
    assert_allclose(model.predict_interval([[0.0, 0.0]], coverage)[0], expected, rtol=1e-12)
