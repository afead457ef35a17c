"""Kernel weights of tensors are those of NumPy arrays, up to a factor of each row."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

torch = pytest.importorskip("torch")

from skattn._attention.engines.tensor import normalized_weights  # noqa: E402
from skattn.kernels import KERNELS  # noqa: E402

SLOPED = [name for name in KERNELS if KERNELS[name].has_slope]
COMPACT = [name for name in SLOPED if np.isfinite(KERNELS[name].support)]


def weights_and_slopes(name, squared, dtype=None):
    tensors = KERNELS[name].tensor_weights(torch.tensor(squared, dtype=dtype))
    return [tensor.numpy() for tensor in tensors]


def by_definition(name, squared):
    kernel = KERNELS[name]
    return (
        kernel.profile(kernel.rate * squared),
        kernel.slope(kernel.rate * squared),
    )


@pytest.mark.parametrize("name", SLOPED)
def test_weights_and_slopes_are_those_of_the_kernel_up_to_one_factor_a_row(name, rng):
    squared = rng.uniform(0.01, 2.5, (6, 30))
    squared[:, 3] = 0.999  # just inside
    squared[:, 4] = 1.001  # just outside
    weights, slopes = weights_and_slopes(name, squared)
    expected, expected_slopes = by_definition(name, squared)
    factor = (weights.sum(axis=1) / expected.sum(axis=1))[:, None]
    assert (factor > 0.0).all()
    assert_allclose(weights, factor * expected, rtol=1e-12, atol=1e-14)
    assert_allclose(slopes, factor * expected_slopes, rtol=1e-12, atol=1e-14)
    if name in COMPACT:  # others are relative to the nearest key
        assert_allclose(factor, 1.0, rtol=1e-12)


@pytest.mark.parametrize("name", SLOPED)
def test_weights_and_slopes_at_distance_zero(name):
    squared = np.array([[0.0, 0.25, 0.5]])
    weights, slopes = weights_and_slopes(name, squared)
    expected, expected_slopes = by_definition(name, squared)
    assert_allclose(weights, expected * (weights[0, 0] / expected[0, 0]), rtol=1e-13)
    assert_allclose(slopes, expected_slopes * (weights[0, 0] / expected[0, 0]), rtol=1e-13)
    if not KERNELS[name].smooth_at_zero:
        assert slopes[0, 0] == 0.0


@pytest.mark.parametrize("name", SLOPED)
def test_slopes_are_the_derivatives_of_weights(name, rng):
    # a key at distance zero in every row fixes the factor; not across the edge of the support
    squared = np.hstack([np.zeros((5, 1)), rng.uniform(0.1, 0.95, (5, 10))])
    step = np.where(squared > 0.0, 1e-6, 0.0)
    above, below = (weights_and_slopes(name, squared + shift)[0] for shift in (step, -step))
    slopes = weights_and_slopes(name, squared)[1]
    assert_allclose(slopes[:, 1:], ((above - below)[:, 1:]) / 2e-6, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", SLOPED)
def test_distances_are_left_alone(name):
    squared = torch.tensor([[0.0, 0.5, 2.0, torch.inf]])
    before = squared.clone()
    KERNELS[name].tensor_weights(squared)
    assert_array_equal(squared, before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SLOPED)
def test_infinite_distances_have_no_weight_and_no_slope(name, dtype):
    squared = np.array([[np.inf, 0.0, 0.25], [0.5, np.inf, np.inf], [np.inf, 3.0, np.inf]])
    weights, slopes = weights_and_slopes(name, squared, dtype)
    assert np.isfinite(weights).all()
    assert np.isfinite(slopes).all()
    assert_array_equal(weights[np.isinf(squared)], 0.0)
    assert_array_equal(slopes[np.isinf(squared)], 0.0)
    assert (weights[:2].sum(axis=1) > 0.0).all()
    if name not in COMPACT:
        assert weights[2, 1] > 0.0


@pytest.mark.parametrize("name", ["gaussian", "laplace", "student"])
def test_rows_far_from_every_key_do_not_underflow(name):
    squared = np.array([[1e6, 1e6 + 1.0], [1e12, 4e12]])
    weights, slopes = weights_and_slopes(name, squared)
    ratio = np.exp(np.diff(KERNELS[name].log_profile(squared), axis=1))[:, 0]
    assert_allclose(weights[:, 0], 1.0)
    assert_allclose(weights[:, 1], ratio, rtol=1e-9)
    assert np.isfinite(slopes).all()


@pytest.mark.parametrize("name", COMPACT)
def test_nothing_outside_the_support_has_weight(name):
    weights, slopes = weights_and_slopes(name, np.array([[1.0, 1.5, 1e300], [2.0, 1.0, 9.0]]))
    assert_array_equal(weights, 0.0)
    assert_allclose(slopes, 0.0, atol=1e-30)


@pytest.mark.parametrize("name", SLOPED)
def test_single_precision_stays_single_and_close(name, rng):
    squared = rng.uniform(0.01, 0.9, (4, 20))
    single = weights_and_slopes(name, squared, torch.float32)
    double = weights_and_slopes(name, squared)
    for one, two in zip(single, double, strict=True):
        assert one.dtype == np.float32
        assert_allclose(one, two, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", SLOPED)
def test_a_row_without_keys_has_no_weights(name, dtype):
    squared = np.array([[np.inf, np.inf], [0.5, np.inf]])
    weights, slopes = weights_and_slopes(name, squared, dtype)
    assert_array_equal(weights[0], 0.0)
    assert_array_equal(slopes[0], 0.0)
    assert weights[1, 0] > 0.0


def test_kernels_without_a_slope_are_refused():
    with pytest.raises(ValueError, match="'uniform' has no slope"):
        KERNELS["uniform"].tensor_weights(torch.ones(1, 1))


@pytest.mark.parametrize("name", SLOPED)
def test_normalized_weights_are_those_of_the_kernel_times_factors(name, rng):
    squared = rng.uniform(0.01, 0.9, (6, 30))
    factors = rng.uniform(0.5, 2.0, (6, 30))
    factors[:, 3] = 0.0
    weights, slopes = normalized_weights(
        KERNELS[name], torch.tensor(squared), torch.tensor(factors)
    )
    expected, expected_slopes = (factors * part for part in by_definition(name, squared))
    total = expected.sum(axis=1, keepdims=True)
    assert_allclose(weights, expected / total, rtol=1e-12)
    assert_allclose(slopes, expected_slopes / total, rtol=1e-12)


@pytest.mark.parametrize(
    "factors", [torch.tensor([1.0, 2.0, 1.0]), torch.tensor([[1.0, 2.0, 1.0]])]
)
@pytest.mark.parametrize("name", COMPACT)
def test_outside_the_support_the_nearest_keys_share_by_their_factors(name, factors):
    squared = torch.tensor([[4.0, 4.0, 4.5], [0.5, 4.0, 4.5]])
    weights, slopes = normalized_weights(KERNELS[name], squared, factors)
    assert_allclose(weights, [[1 / 3, 2 / 3, 0.0], [1.0, 0.0, 0.0]])
    assert_array_equal(slopes[0], 0.0)
    rounded, _ = normalized_weights(KERNELS[name], squared, factors, rounding=0.6)
    assert_allclose(rounded[0], [0.25, 0.5, 0.25])


@pytest.mark.parametrize("name", SLOPED)
def test_excluded_keys_keep_what_is_retained_of_them(name):
    squared = torch.tensor([[0.0, 0.25, 0.5], [0.25, torch.inf, 0.5]])
    excluded = (torch.tensor([0, 1]), torch.tensor([0, 1]), torch.tensor([0.5, 0.0]))
    weights, slopes = normalized_weights(KERNELS[name], squared, None, excluded)
    shares = torch.tensor([[0.5, 1.0, 1.0], [1.0, 0.0, 1.0]])
    expected, expected_slopes = normalized_weights(KERNELS[name], squared, shares)
    assert_allclose(weights, expected)
    assert_allclose(slopes, expected_slopes)


def test_a_key_of_factor_zero_is_not_there_however_near():
    squared = torch.tensor([[0.0, 1e6]])
    for name in ("gaussian", "epanechnikov"):
        weights, _ = normalized_weights(KERNELS[name], squared, torch.tensor([0.0, 0.5]))
        assert weights.tolist() == [[0.0, 1.0]]
