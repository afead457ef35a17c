"""Many bandwidths from one pass."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skattn._attention import Request, Resources, attend, bandwidth_ladder, grid_means
from skattn._geometry import Own
from skattn.kernels import KERNELS


def test_ladder_halves_the_square_after_its_steps():
    bandwidths = bandwidth_ladder(8.0, 0.1, 3)
    assert bandwidths[0] == 8.0
    assert 0.05 < bandwidths[-1] <= 0.1
    assert_allclose(bandwidths[3:] ** 2, bandwidths[:-3] ** 2 / 2, rtol=1e-12)


@pytest.mark.parametrize("left_out", [True, False])
@pytest.mark.parametrize("name", KERNELS)
def test_means_are_those_of_attend_at_each_bandwidth(name, left_out, rng):
    X, values = rng.standard_normal((60, 2)), rng.standard_normal((60, 2))
    weights, every = rng.integers(1, 4, 60).astype(float), np.arange(60)
    own = Own(every, every + 1, 1.0 - 1.0 / weights if left_out else np.ones(60))
    kernel, log_weights = KERNELS[name], np.log(weights / weights.max())
    bandwidths = bandwidth_ladder(30.0, 0.01, 2)
    request = Request(X, X, values, kernel, log_weights, own)
    for resources in (Resources(), Resources(n_threads=2, block_bytes=5_000)):
        means, own_weights = grid_means(request, bandwidths, 2, resources)
        for c, mean, own_weight in zip(bandwidths, means, own_weights, strict=True):
            exact = attend(X / c, X / c, values, kernel, log_weights, own=own)
            assert_allclose(mean, exact.mean, atol=1e-8)
            if not left_out:
                assert_allclose(own_weight, exact.own_weight, atol=1e-8)


def test_groups_are_left_out_whole(rng):
    X, values = rng.standard_normal((9, 1)), rng.standard_normal((9, 1))
    own = Own(np.repeat([0, 3, 6], 3), np.repeat([3, 6, 9], 3), np.zeros(9))
    request = Request(X, X, values, KERNELS["gaussian"], np.zeros(9), own)
    bandwidths = bandwidth_ladder(5.0, 0.01, 4)
    means, _ = grid_means(request, bandwidths, 4, Resources())
    for c, mean in zip(bandwidths, means, strict=True):
        exact = attend(X / c, X / c, values, KERNELS["gaussian"], np.zeros(9), own=own).mean
        assert_allclose(mean, exact, atol=1e-9)


def test_long_ladders_keep_their_accuracy(rng):
    X, values = rng.standard_normal((20, 1)), rng.standard_normal((20, 1))
    own = Own(np.arange(20), np.arange(20) + 1, np.zeros(20))
    request = Request(X, X, values, KERNELS["gaussian"], np.zeros(20), own)
    bandwidths = bandwidth_ladder(1e20, 0.1, 1)
    means, _ = grid_means(request, bandwidths, 1, Resources())
    scaled = X / bandwidths[-1]
    exact = attend(scaled, scaled, values, KERNELS["gaussian"], np.zeros(20), own=own).mean
    assert_allclose(means[-1], exact, atol=1e-9)
