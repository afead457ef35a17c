"""attend: the definition by hand, and the numerical law."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skattn._attention import Resources, attend, attend_weights
from skattn._geometry import Own
from skattn.kernels import KERNELS, get_kernel

GAUSSIAN = KERNELS["gaussian"]


def column(*numbers):
    return np.array(numbers, dtype=float)[:, None]


def test_gaussian_attention_is_softmax(rng):
    queries, keys = rng.standard_normal((3, 2)), rng.standard_normal((6, 2))
    values, log_weights = rng.standard_normal((6, 2)), rng.standard_normal(6)
    logits = -((queries[:, None] - keys) ** 2).sum(axis=2) / 2 + log_weights
    weights = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    attended = attend(queries, keys, values, GAUSSIAN, log_weights, repeats=np.ones(len(keys)))
    assert_allclose(attended.mean, weights @ values, rtol=1e-13)
    assert_allclose(attended.log_normalizer, np.log(np.exp(logits).sum(axis=1)), rtol=1e-13)
    assert_allclose(attended.squares, (weights**2).sum(axis=1), rtol=1e-13)


def test_own_weight_is_removed_before_summing():
    keys, values = column(0.0, 1.0), column(5.0, 7.0)
    own = Own(np.array([0, 1]), np.array([1, 2]), np.zeros(2))
    attended = attend(keys, keys, values, GAUSSIAN, np.zeros(2), own=own)
    assert_array_equal(attended.mean, [[7.0], [5.0]])
    assert_array_equal(attended.own_weight, 0.0)


def test_own_weight_that_stays_is_reported():
    keys, values = column(0.0, 0.0, 0.0), column(0.0, 3.0, 6.0)
    own = Own(np.array([0]), np.array([1]), np.array([0.5]))
    attended = attend(keys[:1], keys, values, GAUSSIAN, np.zeros(3), own=own)
    assert_allclose(attended.own_weight, 0.5 / 2.5)
    assert_allclose(attended.mean, [[(3.0 + 6.0) / 2.5]])


@pytest.mark.parametrize("distance", [1e2, 1e8, 1e16, 1e40, 1e99])
def test_far_queries_tend_to_the_nearest_key(distance):
    keys, values = column(0.0, 1.0, 2.0), column(10.0, 20.0, 30.0)
    for name in ("gaussian", "epanechnikov", "uniform", "tricube"):
        mean = attend(column(distance, -distance), keys, values, KERNELS[name], np.zeros(3)).mean
        assert_array_equal(mean, [[30.0], [10.0]])


@pytest.mark.parametrize("distance", [1e3, 1e10, 1e20, 1e90])
def test_laplace_far_away_is_an_exponentially_weighted_mean_of_the_edge(distance):
    keys, values = column(0.0, 1.0, 2.0), column(10.0, 20.0, 30.0)
    weights = np.exp([-2.0, -1.0, 0.0])
    mean = attend(column(distance), keys, values, KERNELS["laplace"], np.zeros(3)).mean
    assert_allclose(mean, [weights @ values / weights.sum()], rtol=1e-10)


@pytest.mark.parametrize("distance", [1e12, 1e30, 1e80, 1e99])
def test_student_far_away_is_the_weighted_mean(distance):
    keys, values, weights = column(0.0, 1.0, 2.0), column(10.0, 20.0, 30.0), np.array([1.0, 1, 2])
    mean = attend(column(distance), keys, values, KERNELS["student"], np.log(weights)).mean
    assert_allclose(mean, [weights @ values / weights.sum()], rtol=1e-10)


def test_sample_weights_decide_between_keys_where_tails_vanish():
    # 40 bandwidths away, a key half a bandwidth farther loses a factor of exp(20.1)
    keys, values = column(0.0, -0.5), column(0.0, 1.0)
    log_weights = np.array([0.0, 40.0 * 0.5 + 0.125])
    mean = attend(column(40.0), keys, values, GAUSSIAN, log_weights).mean
    assert_allclose(mean, 0.5, rtol=1e-9)


def test_ties_outside_the_support_are_shared_by_sample_weight():
    keys, values = column(-1.0, 1.0, 1.0, 9.0), column(0.0, 4.0, 8.0, 99.0)
    log_weights = np.log([1.0, 1.0, 2.0, 1.0])
    queries = column(0.0)
    narrow = KERNELS["epanechnikov"]
    attended = attend(3.0 * queries, 3.0 * keys, values, narrow, log_weights)
    assert attended.outside.all()
    assert attended.log_normalizer[0] == -np.inf
    assert_allclose(attended.mean, (0.0 + 4.0 + 2 * 8.0) / 4.0)


def test_only_tiny_sample_weights_in_the_support_still_count():
    keys, values = column(0.5, 30.0), column(1.0, 2.0)
    log_weights = np.array([-700.0, 0.0])
    attended = attend(column(0.0), keys, values, KERNELS["biweight"], log_weights)
    assert_array_equal(attended.mean, 1.0)
    assert not attended.outside.any()
    assert_allclose(attended.log_normalizer, -700.0 + 2 * np.log(0.75))


def test_a_key_at_the_very_edge_of_the_support_counts_alone():
    keys, values = column(1.0 - 1e-12, 1.5), column(1.0, 2.0)
    attended = attend(column(0.0), keys, values, KERNELS["triweight"], np.zeros(2))
    assert_array_equal(attended.mean, 1.0)


def test_squared_weights_count_the_rows_a_key_stands_for():
    keys, values = column(0.0, 1.0), column(0.0, 1.0)
    expanded = attend(
        column(0.0), keys[[0, 0, 0, 1]], values[[0, 0, 0, 1]], GAUSSIAN, np.zeros(4),
        repeats=np.ones(4),
    )  # fmt: skip
    merged = attend(
        column(0.0), keys, values, GAUSSIAN, np.log([3.0, 1.0]), repeats=np.array([3.0, 1.0])
    )
    assert_allclose(merged.squares, expanded.squares, rtol=1e-14)


@pytest.mark.parametrize("distance", [0.0, 1e8])
def test_squared_weights_of_what_stays_of_an_own_key(distance):
    queries, keys, values = column(distance), column(0.0, 0.0), column(0.0, 1.0)
    own = Own(np.array([0]), np.array([1]), np.array([2.0 / 3.0]))
    merged = attend(
        queries, keys, values, GAUSSIAN, np.log([3.0, 1.0]), own=own, repeats=np.array([3.0, 1.0])
    )
    assert_allclose(merged.squares, 1.0 / 3.0, rtol=1e-14)  # three rows are left


def test_squared_weights_of_distant_queries_do_not_underflow():
    keys, values = column(0.0, 0.0), column(0.0, 1.0)
    for distance in (20.0, 30.0, 40.0):
        squares = attend(
            column(distance), keys, values, GAUSSIAN, np.zeros(2), repeats=np.ones(2)
        ).squares
        assert_allclose(squares, 0.5)


def test_single_precision_is_given_up_where_it_would_not_do(rng):
    # 300 bandwidths of range: expanded squares would be wrong by percents in float32
    keys, values = 300.0 * rng.random((200, 2)), rng.standard_normal((200, 1))
    queries = keys[:64] + 0.5
    single = Resources(dtype=np.dtype(np.float32))
    exact = attend(queries, keys, values, GAUSSIAN, np.zeros(200)).mean
    mean = attend(queries, keys, values, GAUSSIAN, np.zeros(200), resources=single).mean
    assert_allclose(mean, exact, rtol=1e-5, atol=1e-7)


def test_single_precision_in_many_dimensions_does_not_underflow(rng):
    keys, values = rng.standard_normal((300, 60)) * 1.2, rng.standard_normal((300, 1))
    queries = rng.standard_normal((64, 60)) * 1.2
    single = Resources(dtype=np.dtype(np.float32))
    exact = attend(queries, keys, values, GAUSSIAN, np.zeros(300)).mean
    mean = attend(queries, keys, values, GAUSSIAN, np.zeros(300), resources=single).mean
    assert_allclose(mean, exact, rtol=1e-4, atol=1e-4)


def test_top_weights_are_the_largest_and_ties_go_by_position():
    keys = column(0.0, 1.0, -1.0, 1.0, 5.0)
    weights, _ = attend_weights(column(0.0), keys, GAUSSIAN, np.zeros(5), top_k=3)
    assert_array_equal(weights.indices, [0, 1, 2])
    full, _ = attend_weights(column(0.0), keys, GAUSSIAN, np.zeros(5))
    assert_allclose(weights.data, full[0, [0, 1, 2]], rtol=1e-14)


def test_top_weights_of_a_narrow_support_are_fewer():
    keys = column(0.0, 0.5, 3.0, 4.0)
    weights, outside = attend_weights(
        column(0.1, 9.0), keys, KERNELS["epanechnikov"], np.zeros(4), top_k=3
    )
    assert_array_equal(weights.indptr, [0, 2, 3])
    assert_array_equal(weights.indices, [0, 1, 3])
    assert_array_equal(outside, [False, True])


def test_underflowed_weights_read_as_zero():
    weights, _ = attend_weights(column(0.0), column(0.0, 60.0), GAUSSIAN, np.zeros(2))
    assert_array_equal(weights, [[1.0, 0.0]])


def test_callable_kernels_need_no_maximum_at_zero():
    # log-weights far above what exp can take, largest at u = 1
    ring = get_kernel(lambda squared: 1e4 - 50.0 * (squared - 1.0) ** 2)
    keys, values = column(0.0, 1.0, 2.0), column(0.0, 1.0, 2.0)
    attended = attend(column(0.0), keys, values, ring, np.zeros(3))
    assert_allclose(attended.mean, 1.0, rtol=1e-12)
    assert_allclose(attended.log_normalizer, 1e4, rtol=1e-12)


def test_callable_kernels_with_a_support_follow_the_nearest_key_outside():
    window = get_kernel(lambda squared: np.where(squared < 1.0, 0.0, -np.inf))
    keys, values = column(0.0, 5.0), column(1.0, 2.0)
    attended = attend(column(0.5, 3.0), keys, values, window, np.zeros(2))
    assert_array_equal(attended.mean, [[1.0], [2.0]])
    assert_array_equal(attended.outside, [False, True])


def test_arguments_are_not_written_to(rng):
    arrays = [rng.standard_normal((40, 3)) for _ in range(3)] + [rng.standard_normal(40)]
    copies = [a.copy() for a in arrays]
    for a in arrays:
        a.flags.writeable = False
    queries, keys, values, log_weights = arrays
    attend(queries, keys, values, GAUSSIAN, log_weights, repeats=np.ones(len(keys)))
    attend_weights(queries, keys, GAUSSIAN, log_weights, top_k=2)
    for a, copy in zip(arrays, copies, strict=True):
        assert_array_equal(a, copy)
