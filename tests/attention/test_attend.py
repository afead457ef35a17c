"""attend: the definition by hand, and the numerical law."""

import numpy as np
import pytest
from definitions import attention_of, column, kernel_of
from numpy.testing import assert_allclose, assert_array_equal

from skattn._attention import (
    BlockReader,
    Products,
    Resources,
    Want,
    attend,
    attend_blocks,
    attend_exactly,
)
from skattn._geometry.training_set import Exclusion


def attended(attention, values, **resources):
    """Means, and the moments they are read off."""
    moments = attend(attention, Products(values), Want.SQUARES, Resources(**resources))
    return moments.sums / moments.total[:, None], moments


def squares(attention, values):
    """Sums of squared attention weights times values."""
    _, moments = attended(attention, values)
    return moments.squares / moments.total[:, None] ** 2


def test_gaussian_attention_is_softmax(rng):
    queries, keys = rng.standard_normal((3, 2)), rng.standard_normal((6, 2))
    values, log_weights = rng.standard_normal((6, 2)), rng.standard_normal(6)
    logits = -((queries[:, None] - keys) ** 2).sum(axis=2) / 2 + log_weights
    weights = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    attention = attention_of(queries, keys, weights=np.exp(log_weights))
    mean, moments = attended(attention, values)
    assert_allclose(mean, weights @ values, rtol=1e-13)
    log_sums = np.log(np.exp(logits).sum(axis=1))
    assert_allclose(moments.log_shift + np.log(moments.total), log_sums, rtol=1e-13)
    assert_allclose(squares(attention, values), weights**2 @ values, rtol=1e-13)


def test_excluded_weight_is_removed_before_summing():
    keys, values = column(0.0, 1.0), column(5.0, 7.0)
    excluded = Exclusion(np.array([0, 1]), np.array([1, 2]), np.zeros(2))
    mean, moments = attended(attention_of(keys, keys, excluded=excluded), values)
    assert_array_equal(mean, [[7.0], [5.0]])
    assert_array_equal(moments.own, 0.0)


def test_excluded_weight_that_is_retained_is_reported():
    keys, values = column(0.0, 0.0, 0.0), column(0.0, 3.0, 6.0)
    excluded = Exclusion(np.array([0]), np.array([1]), np.array([0.5]))
    mean, moments = attended(attention_of(keys[:1], keys, excluded=excluded), values)
    assert_allclose(moments.own / moments.total, 0.5 / 2.5)
    assert_allclose(mean, [[(3.0 + 6.0) / 2.5]])


@pytest.mark.parametrize("algorithm", ["dense", "exact"])
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("has_scales", [False, True])
def test_sums_over_no_key_are_zero(algorithm, degree, has_scales):
    queries, keys = column(0.0, 0.5), column(0.0, 1.0)
    excluded = Exclusion(np.array([0, 0]), np.array([2, 1]), np.zeros(2))
    scales = {"query_scale": np.ones(2)} if has_scales else {}
    attention = attention_of(queries, keys, "laplace", excluded=excluded, **scales)
    products = Products(column(3.0, 4.0), keys if degree else None)
    moments = attend(attention, products, Want.SQUARES, Resources(algorithm=algorithm))
    assert_array_equal(moments.outside, [True, False])
    assert_array_equal(moments.nearest, np.inf)
    for part in (moments.total, moments.sums, moments.squares, moments.own):
        assert_array_equal(part[0], 0.0)
    assert_allclose(moments.sums[1, 0] / moments.total[1], 4.0)


@pytest.mark.parametrize("distance", [1e2, 1e8, 1e16, 1e40, 1e99])
def test_far_queries_tend_to_the_nearest_key(distance):
    keys, values = column(0.0, 1.0, 2.0), column(10.0, 20.0, 30.0)
    for name in ("gaussian", "epanechnikov", "uniform", "tricube"):
        mean, _ = attended(attention_of(column(distance, -distance), keys, name), values)
        assert_array_equal(mean, [[30.0], [10.0]])


@pytest.mark.parametrize("distance", [1e3, 1e10, 1e20, 1e90])
def test_laplace_far_away_is_an_exponentially_weighted_mean_of_the_edge(distance):
    keys, values = column(0.0, 1.0, 2.0), column(10.0, 20.0, 30.0)
    weights = np.exp([-2.0, -1.0, 0.0])
    mean, _ = attended(attention_of(column(distance), keys, "laplace"), values)
    assert_allclose(mean, [weights @ values / weights.sum()], rtol=1e-10)


@pytest.mark.parametrize("distance", [1e12, 1e30, 1e80, 1e99])
def test_student_far_away_is_the_weighted_mean(distance):
    keys, values, weights = column(0.0, 1.0, 2.0), column(10.0, 20.0, 30.0), np.array([1.0, 1, 2])
    mean, _ = attended(attention_of(column(distance), keys, "student", weights), values)
    assert_allclose(mean, [weights @ values / weights.sum()], rtol=1e-10)


def test_sample_weights_decide_between_keys_where_tails_vanish():
    # 40 bandwidths away, a key half a bandwidth farther loses a factor of exp(20.1)
    weights = np.exp([0.0, 40.0 * 0.5 + 0.125])
    attention = attention_of(column(40.0), column(0.0, -0.5), weights=weights)
    assert_allclose(attended(attention, column(0.0, 1.0))[0], 0.5, rtol=1e-9)


def test_ties_outside_the_support_are_shared_by_sample_weight():
    keys, values = column(-3.0, 3.0, 3.0, 27.0), column(0.0, 4.0, 8.0, 99.0)
    weights = np.array([1.0, 1.0, 2.0, 1.0])
    mean, moments = attended(attention_of(column(0.0), keys, "epanechnikov", weights), values)
    assert moments.outside.all()
    assert_allclose(moments.nearest, 9.0)
    assert_allclose(mean, (0.0 + 4.0 + 2 * 8.0) / 4.0)


def test_only_tiny_sample_weights_in_the_support_still_count():
    weights = np.exp([-700.0, 0.0])
    attention = attention_of(column(0.0), column(0.5, 30.0), "biweight", weights)
    mean, moments = attended(attention, column(1.0, 2.0))
    assert_array_equal(mean, 1.0)
    assert not moments.outside.any()
    assert_allclose(moments.log_shift + np.log(moments.total), -700.0 + 2 * np.log(0.75))


def test_a_key_at_the_very_edge_of_the_support_counts_alone():
    attention = attention_of(column(0.0), column(1.0 - 1e-12, 1.5), "triweight")
    assert_array_equal(attended(attention, column(1.0, 2.0))[0], 1.0)


def test_squared_weights_count_the_rows_a_key_stands_for():
    rows, keys = column(0.0, 0.0, 0.0, 1.0), column(0.0, 1.0)
    expanded = squares(attention_of(column(0.0), rows), np.ones((4, 1)))
    multiplicity = np.array([3.0, 1.0])
    joint = attention_of(column(0.0), keys, weights=multiplicity)
    assert_allclose(squares(joint, 1.0 / multiplicity[:, None]), expanded, rtol=1e-14)


@pytest.mark.parametrize("distance", [0.0, 1e8])
def test_squared_weights_of_what_is_retained_of_an_excluded_key(distance):
    excluded = Exclusion(np.array([0]), np.array([1]), np.array([2.0 / 3.0]))
    multiplicity = np.array([3.0, 1.0])
    attention = attention_of(
        column(distance), column(0.0, 0.0), weights=multiplicity, excluded=excluded
    )
    # three rows are left
    assert_allclose(squares(attention, 1.0 / multiplicity[:, None]), 1.0 / 3.0, rtol=1e-14)


@pytest.mark.parametrize("distance", [20.0, 30.0, 40.0])
def test_squared_weights_of_distant_queries_do_not_underflow(distance):
    attention = attention_of(column(distance), column(0.0, 0.0))
    assert_allclose(squares(attention, np.ones((2, 1))), 0.5)


@pytest.mark.parametrize("algorithm", ["auto", "exact"])
def test_callable_kernels_need_no_maximum_at_zero(algorithm):
    # log-weights far above what exp can take, largest at u = 1
    ring = kernel_of(lambda squared: 1e4 - 50.0 * (squared - 1.0) ** 2)
    keys = column(0.0, 1.0, 2.0)
    mean, moments = attended(attention_of(column(0.0), keys, ring), keys, algorithm=algorithm)
    assert_allclose(mean, 1.0, rtol=1e-12)
    assert_allclose(moments.log_shift + np.log(moments.total), 1e4, rtol=1e-12)


@pytest.mark.parametrize("algorithm", ["auto", "exact"])
def test_callable_kernels_with_a_support_follow_the_nearest_key_outside(algorithm):
    window = kernel_of(lambda squared: np.where(squared < 1.0, 0.0, -np.inf))
    attention = attention_of(column(0.5, 3.0), column(0.0, 5.0), window)
    mean, moments = attended(attention, column(1.0, 2.0), algorithm=algorithm)
    assert_array_equal(mean, [[1.0], [2.0]])
    assert_array_equal(moments.outside, [False, True])


@pytest.mark.parametrize("algorithm", ["auto", "exact"])
def test_the_nearest_key_may_be_in_a_hole_of_the_support(algorithm):
    ring = kernel_of(lambda squared: np.where((squared > 1.0) & (squared < 9.0), 0.0, -np.inf))
    attention = attention_of(column(0.0, 20.0), column(0.5, 2.0), ring)
    mean, moments = attended(attention, column(1.0, 2.0), algorithm=algorithm)
    assert_array_equal(mean, 2.0)
    assert_array_equal(moments.outside, [False, True])


def test_moments_come_in_blocks_and_few_of_them_exactly(rng):
    attention = attention_of(4.0 * rng.standard_normal((900, 2)), rng.standard_normal((700, 2)))
    products, found = Products(rng.standard_normal((700, 1)), rng.standard_normal((700, 2))), {}
    resources = Resources(n_threads=2)
    attend_blocks(
        attention,
        products,
        Want.SUMS,
        resources,
        lambda queries, moments: found.update({queries.start: (queries.stop, moments)}),
    )
    whole, stop = attend(attention, products, resources=resources), 0
    for start in sorted(found):
        assert start == stop
        stop, moments = found[start]
        assert_array_equal(moments.sums, whole.sums[start:stop])
    assert stop == 900
    some = np.array([3, 500])
    exact = attend_exactly(attention.take(some), products).recentered(whole.center[some])
    expected = whole.sums[some] / whole.total[some, None]
    assert_allclose(exact.sums / exact.total[:, None], expected, rtol=1e-9, atol=1e-9)


def test_arguments_are_not_written_to(rng):
    arrays = [rng.standard_normal((40, 3)) for _ in range(3)] + [rng.random(40)]
    copies = [a.copy() for a in arrays]
    for a in arrays:
        a.flags.writeable = False
    queries, keys, values, weights = arrays
    for kernel in ("gaussian", "tricube", "callable"):
        attention = attention_of(queries, keys, kernel, weights)
        attended(attention, values)
        BlockReader(attention, Resources()).read(slice(0, 40))
    for a, copy in zip(arrays, copies, strict=True):
        assert_array_equal(a, copy)
