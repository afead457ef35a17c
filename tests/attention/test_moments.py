"""Moments over disjoint sets of keys merge to those over all of them."""

from dataclasses import replace
from functools import reduce

import numpy as np
import pytest
from definitions import COMPACT, KERNEL_CASES, SLOPED, attention_of, column
from numpy.testing import assert_allclose, assert_array_equal

from skattn._attention import KeyScale, Moments, Products, Resources, Want, attend, merge
from skattn._attention._moments import row_moments, row_moments_exactly
from skattn._geometry.training_set import Exclusion

CUTS = [slice(0, 9), slice(9, 10), slice(10, 26), slice(26, 40)]
ENGINES = ["dense", "exact"]


def parts_of(attention, products, want=Want.SUMS, algorithm="auto"):
    resources = Resources(algorithm=algorithm)
    return [attend(attention.over(cut), products.over(cut), want, resources) for cut in CUTS]


def whole_of(attention, products, want=Want.SUMS, algorithm="auto"):
    """Moments over all keys, whose shift refers to the log-weights of the attention as they are."""
    whole = attend(attention, products, want, Resources(algorithm=algorithm))
    return replace(whole, log_shift=whole.log_shift - attention.log_offset)


def assert_equal_moments(found, expected, tolerance=1e-11):
    """Equal up to the shift, the centre, and the reference of the slopes."""
    assert_array_equal(found.outside, expected.outside)
    assert_allclose(found.nearest, expected.nearest, rtol=1e-12)
    logs = found.log_shift + np.log(found.total), expected.log_shift + np.log(expected.total)
    assert_allclose(*logs, rtol=tolerance, atol=tolerance)
    if expected.center is not None:
        found, expected = (
            found.recentered(0.0 * found.center),
            expected.recentered(0.0 * expected.center),
        )
    for name, power in (("sums", 1), ("own", 1), ("squares", 2)):
        ratios = []
        for moments in (found, expected):
            if (part := getattr(moments, name)) is not None:
                total = moments.total.reshape((-1,) + (1,) * (part.ndim - 1))
                ratios.append(part / total**power)
        if len(ratios) == 2:
            assert_allclose(*ratios, rtol=0, atol=tolerance, err_msg=name)
    if expected.slopes is not None:
        assert_allclose(mean_slopes(found), mean_slopes(expected), rtol=0, atol=tolerance)


def mean_slopes(moments):
    total = moments.total[:, None, None]
    mean = (moments.sums / moments.total[:, None])[:, :, None]
    return moments.slopes[:, 1:] / total - mean * moments.slopes[:, :1] / total


def problem(rng, kernel, left_out, distance=1.0, **scales):
    queries, keys = distance * rng.standard_normal((30, 2)), rng.standard_normal((40, 2))
    start = np.arange(30)
    stop, retained = start + rng.integers(0, 14, 30), rng.choice([0.0, 0.4, 1.0], 30)
    excluded = Exclusion(start, np.minimum(stop, 40), retained) if left_out else None
    weights = rng.integers(1, 4, 40).astype(float)
    return attention_of(queries, keys, kernel, weights, excluded, **scales)


@pytest.mark.parametrize("algorithm", ENGINES)
@pytest.mark.parametrize("left_out", [False, True])
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("distance", [1.0, 6.0, 1e4])
@pytest.mark.parametrize("name", KERNEL_CASES)
def test_parts_merge_to_the_whole(name, distance, degree, left_out, algorithm, rng):
    attention = problem(rng, name, left_out, distance)
    regressors = rng.standard_normal((40, 2)) if degree else None
    products = Products(rng.standard_normal((40, 2)), regressors)
    whole = whole_of(attention, products, Want.SQUARES, algorithm)
    a, b, c, d = parts_of(attention, products, Want.SQUARES, algorithm)
    orders = [merge(merge(merge(a, b), c), d), merge(merge(a, b), merge(c, d))]
    orders.append(merge(d, merge(merge(c, a), b)))
    for merged in orders:
        assert_equal_moments(merged, whole)
    if distance > 1.0 and name in COMPACT:
        assert whole.outside.any()


@pytest.mark.parametrize("scale", ["query", "key", "key without"])
@pytest.mark.parametrize("name", ["gaussian", "student", "biweight"])
def test_parts_at_varying_bandwidths_merge_to_the_whole(name, scale, rng):
    radius = rng.uniform(0.3, 1.5, 40)
    scales = {
        "query": {"query_scale": rng.uniform(0.3, 1.5, 30)},
        "key": {"key_scale": KeyScale(radius)},
        "key without": {"key_scale": KeyScale(radius, 1.2 * radius)},
    }[scale]
    attention = problem(rng, name, True, 2.0, **scales)
    products = Products(rng.standard_normal((40, 2)), rng.standard_normal((40, 2)))
    merged = reduce(merge, parts_of(attention, products, Want.SQUARES))
    assert_equal_moments(merged, whole_of(attention, products, Want.SQUARES))


@pytest.mark.parametrize("distance", [1.0, 30.0])
@pytest.mark.parametrize("algorithms", [["dense"], ["exact"], ["dense", "exact"]], ids=str)
@pytest.mark.parametrize("name", SLOPED)
def test_slopes_of_parts_merge_to_those_of_the_whole(name, algorithms, distance, rng):
    attention = problem(rng, name, True, distance)
    products = Products(rng.standard_normal((40, 2)))
    parts = [
        attend(attention.over(cut), products.over(cut), Want.SLOPES, Resources(algorithm=one))
        for cut, one in zip(CUTS, 4 * algorithms, strict=False)
    ]
    whole = whole_of(attention, products, Want.SLOPES, "exact")
    assert_equal_moments(reduce(merge, parts), whole, tolerance=1e-9)


def test_outside_of_all_parts_the_nearest_key_of_any_part_counts():
    queries, keys = column(9.0, 25.0, 11.0), column(0.0, 1.0, 2.0, 3.0)
    products = Products(column(10.0, 20.0, 30.0, 40.0))
    attention = attention_of(queries, keys, "epanechnikov")
    parts = [attend(attention.over(cut), products.over(cut)) for cut in (slice(0, 2), slice(2, 4))]
    for merged in (merge(*parts), merge(*parts[::-1])):
        assert_array_equal(merged.sums / merged.total[:, None], 40.0)
        assert_array_equal(merged.outside, True)
        assert_array_equal(merged.nearest, [36.0, 484.0, 64.0])


def test_ties_across_parts_are_shared_by_sample_weight():
    attention = attention_of(
        column(0.0), column(-3.0, 9.0, 3.0), "tricube", np.array([1.0, 50.0, 3.0])
    )
    products = Products(column(0.0, 99.0, 8.0))
    first, second = (
        attend(attention.over(cut), products.over(cut)) for cut in (slice(0, 2), slice(2, 3))
    )
    for merged in (merge(first, second), merge(second, first)):
        assert_allclose(merged.sums / merged.total[:, None], 6.0)
        assert merged.outside.all()


def test_a_key_in_the_support_beats_nearer_parts_outside_whatever_their_weight():
    # far from everything, and yet with a key in the support of another part
    attention = attention_of(column(0.0), column(1.5, 0.5), "biweight", np.array([1e9, 1e-9]))
    products = Products(column(1.0, 2.0))
    parts = [attend(attention.over(cut), products.over(cut)) for cut in (slice(0, 1), slice(1, 2))]
    assert [part.outside[0] for part in parts] == [True, False]
    for merged in (merge(*parts), merge(*parts[::-1])):
        assert_array_equal(merged.sums / merged.total[:, None], 2.0)
        assert not merged.outside.any()
        assert_array_equal(merged.nearest, np.inf)


def moments_of(shift, total, sums):
    inside = np.zeros(1, dtype=bool), np.array([np.inf])
    return Moments(np.array([shift]), np.array([total]), column(sums), np.zeros(1), *inside)


def nothing():
    return replace(moments_of(0.0, 0.0, 0.0), outside=np.ones(1, dtype=bool))


def test_parts_without_a_key_are_neutral_and_stay_empty_together():
    some = moments_of(2.0, 3.0, 4.0)
    with np.errstate(all="raise"):
        for merged in (merge(some, nothing()), merge(nothing(), some)):
            for name in ("log_shift", "total", "sums", "own", "outside", "nearest"):
                assert_array_equal(getattr(merged, name), getattr(some, name), err_msg=name)
        empty = merge(nothing(), nothing())
    assert_array_equal(empty.total, 0.0)
    assert_array_equal(empty.sums, 0.0)
    assert_array_equal(merge(empty, some).sums / merge(empty, some).total, 4.0 / 3.0)


def test_shifts_far_apart_do_not_overflow():
    near, far = moments_of(0.0, 1.0, 3.0), moments_of(-1e6, 1.0, 7.0)
    with np.errstate(over="raise", invalid="raise"):
        merged = merge(far, near)
    assert merged.log_shift[0] == 0.0
    assert merged.sums[0, 0] == 3.0


def test_errors_of_merged_parts_are_the_larger_ones():
    one, other = (replace(moments_of(0.0, 1.0, 1.0), error=np.array([e])) for e in (1e-3, 1e-5))
    assert_array_equal(merge(one, other).error, 1e-3)
    assert_array_equal(merge(moments_of(0.0, 1.0, 1.0), other).error, 1e-5)


@pytest.mark.parametrize("compute", [row_moments, row_moments_exactly])
def test_recentered_moments_are_those_about_the_new_centre(compute, rng):
    weights = rng.random((6, 20))
    weights /= weights.sum(axis=1, keepdims=True)
    products = Products(rng.standard_normal((20, 2)), 5.0 + rng.standard_normal((20, 3)))
    sums, center = compute(weights, products)
    numbers = np.zeros(6), np.ones(6), sums, np.zeros(6), np.zeros(6, bool), np.full(6, np.inf)
    moments = Moments(*numbers, center)
    elsewhere = rng.standard_normal((6, 3))
    moved = moments.recentered(elsewhere)
    expected = [w @ products.columns(c) for w, c in zip(weights, elsewhere, strict=True)]
    assert_allclose(moved.sums, expected, rtol=1e-12, atol=1e-12)
    assert_array_equal(moved.center, elsewhere)
    assert_allclose(moved.recentered(center).sums, sums, rtol=1e-11, atol=1e-11)


def test_moments_of_some_queries_are_taken_and_written(rng):
    attention = problem(rng, "gaussian", True)
    moments = attend(attention, Products(rng.standard_normal((40, 1))), Want.SQUARES)
    some, expected = np.array([3, 7]), moments.sums.copy()
    taken = moments.take(some)
    assert_array_equal(taken.squares, moments.squares[some])
    moments.write(some, moments.take(np.array([0, 1])))
    assert_array_equal(moments.sums[some], expected[:2])
    assert_array_equal(np.delete(moments.sums, some, 0), np.delete(expected, some, 0))
