"""Kernels: profiles, constants and limits."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.integrate import quad
from scipy.stats import t as student_t

from skattn.kernels import KERNELS, CallableKernel, get_kernel

NAMES = list(KERNELS)

# K(u) as the literature writes it, up to a constant, for 0 <= u < support.
FORMULAS = {
    "gaussian": lambda u: np.exp(-(u**2) / 2),
    "laplace": lambda u: np.exp(-u),
    "student": lambda u: student_t(7).pdf(u),
    "epanechnikov": lambda u: 1 - u**2,
    "biweight": lambda u: (1 - u**2) ** 2,
    "triweight": lambda u: (1 - u**2) ** 3,
    "tricube": lambda u: (1 - u**3) ** 3,
    "triangular": lambda u: 1 - u,
    "uniform": np.ones_like,
    "cosine": lambda u: np.cos(math.pi * u / 2),
}


def profile(kernel, u):
    return kernel.profile(kernel.rate * np.asarray(u, dtype=float) ** 2)


@pytest.mark.parametrize("name", NAMES)
def test_profile_is_the_formula_of_the_literature(name):
    kernel, u = KERNELS[name], np.linspace(0.0, 0.999, 50)
    expected = FORMULAS[name](u) / FORMULAS[name](np.zeros(1))
    assert_allclose(profile(kernel, u), expected, rtol=1e-13, atol=1e-14)
    assert_allclose(np.exp(kernel.log_profile(u**2)), expected, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_profile_starts_at_one_and_never_rises(name):
    weights = profile(KERNELS[name], np.linspace(0.0, 3.0, 301))
    assert weights[0] == 1.0
    assert (np.diff(weights) <= 0.0).all()
    assert (weights >= 0.0).all()


@pytest.mark.parametrize("name", NAMES)
def test_support_is_where_weights_end(name):
    kernel = KERNELS[name]
    if math.isinf(kernel.support):
        assert profile(kernel, [30.0])[0] > 0.0
    else:
        inside, outside = kernel.support * (1 - 1e-7), kernel.support * (1 + 1e-7)
        weights = profile(kernel, [inside, outside])
        assert weights[0] > 0.0
        assert weights[1] == 0.0
        assert kernel.log_profile(np.array([outside**2]))[0] == -np.inf


def test_uniform_window_includes_its_edge_whatever_division_rounds():
    beyond = (0.1 + 0.2) / 0.3
    assert beyond > 1.0
    assert_array_equal(profile(KERNELS["uniform"], [1.0, beyond, 1.0 + 1e-6]), [1.0, 1.0, 0.0])


@pytest.mark.parametrize("name", NAMES)
def test_canonical_bandwidth_is_that_of_the_density(name):
    kernel = KERNELS[name]

    def integral(f):
        return 2.0 * quad(f, 0.0, kernel.support, limit=200)[0]

    K = FORMULAS[name]
    scalar = lambda u: float(K(np.asarray(u, dtype=float)))  # noqa: E731
    mass = integral(scalar)
    roughness = integral(lambda u: scalar(u) ** 2) / mass**2
    variance = integral(lambda u: u**2 * scalar(u)) / mass
    assert_allclose(kernel.canonical_bandwidth, (roughness / variance**2) ** 0.2, rtol=1e-6)


def test_peer_bandwidths_reproduce_their_kernels():
    # KernelDensity(kernel).score_samples is a log-density: ratios of it are log-profiles
    from sklearn.neighbors import KernelDensity

    theirs = {"uniform": "tophat", "laplace": "exponential", "triangular": "linear"}
    for name, kernel in KERNELS.items():
        if "sklearn" not in kernel.peer_bandwidths:
            continue
        bandwidth = 0.7
        density = KernelDensity(kernel=theirs.get(name, name), bandwidth=bandwidth)
        x = np.array([[0.0], [0.3], [0.6]])
        log_density = density.fit([[0.0]]).score_samples(x)
        u = x[:, 0] / (bandwidth * kernel.peer_bandwidths["sklearn"])
        expected = log_density - log_density[0]
        assert_allclose(kernel.log_profile(u**2), expected, rtol=1e-12, atol=1e-14)


def test_epanechnikov_of_np_has_unit_variance():
    kernel = KERNELS["epanechnikov"]
    factor = kernel.peer_bandwidths["np"]
    mass = quad(lambda z: 1 - (z / factor) ** 2, -factor, factor)[0]
    variance = quad(lambda z: z**2 * (1 - (z / factor) ** 2), -factor, factor)[0] / mass
    assert_allclose(variance, 1.0)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("nearest", [0.0, 0.3, 0.7])
def test_log_decay_is_the_difference_of_log_profiles(name, nearest):
    kernel = KERNELS[name]
    nearest, excess = np.full(5, nearest), np.linspace(0.0, 0.25, 5)
    expected = kernel.log_profile(nearest + excess) - kernel.log_profile(nearest)
    assert_allclose(kernel.log_decay(nearest, excess), expected, atol=1e-14)


@pytest.mark.parametrize(
    ("name", "expected"),
    # a key one bandwidth farther, 1e20 bandwidths away: excess 2e20
    [("gaussian", -1e20), ("laplace", -1.0), ("student", 0.0)],
)
def test_log_decay_keeps_its_limit_far_away(name, expected):
    decay = KERNELS[name].log_decay(np.array([1e40]), np.array([2e20]))
    assert_allclose(decay, expected, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("name", ["gaussian", "laplace", "student"])
@pytest.mark.parametrize("nearest", [0.0, 5.0, 1e8])
def test_reach_is_where_the_log_weight_has_fallen_by_the_margin(name, nearest):
    kernel, nearest = KERNELS[name], np.array([nearest])
    excess = kernel.reach(nearest, 30.0)
    assert_allclose(kernel.log_decay(nearest, excess), -30.0, rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", NAMES)
def test_profile_overwrites_its_argument_without_warning(name, dtype):
    t = KERNELS[name].rate * np.array([[0.0, 0.5, 2.0, 1e6, 1e30]], dtype=dtype)
    with np.errstate(all="raise"):
        weights = KERNELS[name].profile(t)
    assert weights is t
    assert np.isfinite(weights).all()


def test_get_kernel_wraps_a_callable():
    kernel = get_kernel(lambda squared: -2.0 * squared)
    assert isinstance(kernel, CallableKernel)
    assert_allclose(kernel.log_profile(np.array([0.0, 3.0])), [0.0, -6.0])


def test_callable_cannot_change_the_distances():
    def greedy(squared):
        squared *= -1.0
        return squared

    squared = np.array([1.0, 2.0])
    get_kernel(greedy).log_profile(squared)
    assert_array_equal(squared, [1.0, 2.0])


@pytest.mark.parametrize("name", [name for name in NAMES if KERNELS[name].has_slope])
def test_slope_is_the_derivative_of_the_profile(name):
    kernel, squared, step = KERNELS[name], np.array([0.03, 0.3, 0.7, 0.95, 1.3]), 1e-6
    above, below = (np.exp(kernel.log_profile(squared + sign * step)) for sign in (1, -1))
    slope = kernel.slope(kernel.rate * squared)
    assert_allclose(slope, (above - below) / (2 * step), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", [name for name in NAMES if KERNELS[name].has_slope])
def test_slope_is_finite_at_zero_at_the_edge_and_far_away(name, dtype):
    squared = np.array([0.0, 1.0, 1e6, 1e30], dtype=dtype)
    with np.errstate(over="raise", invalid="raise", divide="raise"):
        slope = KERNELS[name].slope((KERNELS[name].rate * squared).astype(dtype))
    assert np.isfinite(slope).all()
