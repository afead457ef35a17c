"""Intervals: the definitions, by refitting and by sorting."""

import numpy as np
import pytest
from definitions import component_of, interval_of, jackknife_plus, training_set_of
from numpy.testing import assert_allclose, assert_array_equal

from skattn import NadarayaWatsonRegressor
from skattn._attention import Resources
from skattn._smoother import LeftOut, predict
from skattn._uncertainty import (
    interval_rank,
    leave_one_out_residuals,
    residual_scales,
)
from skattn._uncertainty import jackknife_plus as intervals_of


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


def rows_of(kind, rng, n=30):
    X = rng.uniform(size=(n, 2))
    if kind == "importances":
        X = np.round(X * 4.0) / 4.0  # several rows at the same place are left out together
    y = np.sin(5.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(n)
    weights = {"multiplicities": rng.integers(1, 4, n), "importances": rng.random(n)}.get(kind)
    groups = rng.integers(0, 12, n) if "groups" in kind else None
    if kind == "weighted groups":
        weights = rng.random(n)
    return X, y, weights, groups


@pytest.mark.parametrize(
    "kind", ["rows", "multiplicities", "importances", "groups", "weighted groups"]
)
@pytest.mark.parametrize("name", ["gaussian", "student", "epanechnikov"])
@pytest.mark.parametrize("degree", [0, 1])
def test_intervals_are_those_of_refits(kind, name, degree, rng):
    X, y, weights, groups = rows_of(kind, rng)
    queries = rng.uniform(-0.2, 1.2, (12, 2))
    for bandwidth, coverage in ((0.05, 0.9), (0.2, 0.6), (2.0, 0.9)):
        model = NadarayaWatsonRegressor(bandwidth, kernel=name, degree=degree)
        model.fit(X, y, weights, groups)
        found = model.predict_interval(queries, coverage)
        expected = jackknife_plus(model, X, y, queries, coverage, weights, groups)
        scale = np.maximum(1.0, np.abs(expected))
        assert_allclose(found / scale, expected / scale, rtol=0, atol=1e-6)


def test_mean_of_all_rows_by_hand():
    # without row i the mean of the nine others; residuals are 10/9 of the deviations
    y = np.arange(10.0) ** 2
    model = NadarayaWatsonRegressor(np.inf).fit(np.arange(10.0)[:, None], y)
    without = (y.sum() - y) / 9.0
    residuals = np.abs(y - without)
    lower, upper = np.sort(without - residuals), np.sort(without + residuals)
    assert_allclose(model.predict_interval([[3.3]], 0.9), [[lower[0], upper[9]]])
    assert_allclose(model.predict_interval([[3.3]], 0.7), [[lower[2], upper[7]]])


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
        expected = jackknife_plus(model, X, y, queries, 0.96)
        assert_allclose(found, expected, rtol=1e-6)


def test_jackknife_does_not_depend_on_threads_blocks_or_order(rng):
    X, y, queries = rng.random((800, 2)), rng.standard_normal((800, 1)), rng.random((600, 2))
    for degree in (0, 1):
        component = component_of(training_set_of(X, y), 0.15, degree=degree)
        arguments = leave_one_out_residuals(component, Resources()), 0.9, None
        expected, _ = intervals_of(component.at(queries), Resources(), *arguments)
        two, _ = intervals_of(component.at(queries), Resources(n_threads=2), *arguments)
        assert_array_equal(two, expected)
        small, _ = intervals_of(component.at(queries), Resources(block_bytes=1), *arguments)
        assert_allclose(small, expected, atol=1e-9)
        order = rng.permutation(600)
        shuffled, _ = intervals_of(component.at(queries[order]), Resources(), *arguments)
        assert_allclose(shuffled, expected[order], atol=1e-9)


def scales_of(X, residuals, queries):
    """Scales of residuals at queries and at the rows, and the training set."""
    training_set = training_set_of(X, residuals)
    component = component_of(training_set, 0.1)
    known = training_set.counts(), training_set.multiplicity, training_set.leave_one_out()
    left_out = LeftOut(training_set.y, *known)
    rows = component.leave_one_out()
    return residual_scales(component.at(queries), rows, Resources(), left_out), training_set


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
    before, training_set = scales_of(X, residuals, X)
    row = int(np.argsort(np.abs(training_set.y[:, 0]))[20])
    changed = training_set.y.copy()
    changed[row] *= 1.0 + 1e-6  # hardly moves the overall mean and the choice of the bandwidth
    after, _ = scales_of(training_set.X, changed, X)
    moved = np.abs(after[1] - before[1])[:, 0]
    assert moved[row] <= 1.1 * 1e-6 * np.abs(changed).mean()
    assert moved.max() > moved[row]


def test_scales_are_means_of_sizes_at_one_of_the_multiples(rng):
    X, residuals = rng.random((60, 1)), rng.standard_normal((60, 2))
    residuals[:, 1] *= 100.0
    queries = rng.random((10, 1))
    (at_queries, at_keys), training_set = scales_of(X, residuals, queries)
    sizes = np.abs(training_set.y)
    errors, scales = [], []
    for multiple in [*(2.0 ** np.arange(-4, 6)), np.inf]:
        width = 0.1 * multiple
        both = []
        for places, is_left_out in ((queries, False), (training_set.X, True)):
            logs = -0.5 * ((places - training_set.X.T) / width) ** 2
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
    left_out, excluded = model._left_out(), model._smoother.training_set.leave_one_out()
    at_queries, at_keys = model._residual_scales(queries, left_out)
    regression, counts = model._smoother.at(queries), left_out.counts
    found, _ = intervals_of(regression, Resources(), left_out, 0.9, (at_queries, at_keys))
    for q in range(15):
        one = regression.take(np.full(len(counts), q)).excluding(excluded)
        without = predict(one, Resources())[0][:, 0]
        reach = np.abs(left_out.residuals[:, 0]) / at_keys[:, 0] * at_queries[q, 0]
        expected = interval_of(without, reach, counts, 0.9)
        assert_allclose(found[q, :, 0], expected, atol=1e-7)


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
