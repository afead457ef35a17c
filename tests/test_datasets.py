"""Datasets: the formulas, the noise, and draws that can be repeated."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skattn import datasets


def power_sine(x):
    return 2 * np.sin(x) + x**0.8


def damped_oscillation(x):
    return np.sin(x) * np.exp(-0.1 * x**2)


def sine(x):
    return np.sin(2 * np.pi * x)


def regime_change(x):
    slow, fast = np.sin(2 * np.pi * x), np.sin(16 * np.pi * x)
    return np.where(x < 0.5, slow, fast)


# The range of x, the mean, and the standard deviation of the noise by default.
EXPECTED = {
    "make_power_sine": (0, 5, power_sine, lambda x: 0.5),
    "make_damped_oscillation": (-5, 5, damped_oscillation, lambda x: 0.1),
    "make_heteroscedastic": (0, 1, sine, lambda x: np.exp(3 * (x - 1))),
    "make_regime_change": (0, 1, regime_change, lambda x: 0.1),
}


@pytest.fixture(params=datasets.__all__)
def name(request):
    return request.param


@pytest.fixture
def make(name):
    return getattr(datasets, name)


def test_every_dataset_is_expected():
    assert set(datasets.__all__) == set(EXPECTED)


def test_truth_is_the_formula_at_sorted_uniform_rows(name, make):
    low, high, mean, _ = EXPECTED[name]
    X, y, truth = make(2000, random_state=0, return_truth=True)
    assert X.shape == (2000, 1)
    assert y.shape == truth.shape == (2000,)
    x = X[:, 0]
    assert (np.diff(x) >= 0).all()
    assert low <= x[0]
    assert x[-1] < high
    # the largest distance to the uniform distribution, within Kolmogorov's 1 % bound
    assert abs((x - low) / (high - low) - np.arange(2000) / 2000).max() < 1.63 / np.sqrt(2000)
    assert_allclose(truth, mean(x), rtol=0, atol=1e-12)


@pytest.mark.parametrize("factor", [1.0, 3.0])
def test_noise_is_normal_of_the_stated_standard_deviation(name, make, factor):
    sd = EXPECTED[name][3]
    noise = factor * sd(1.0)
    X, y, truth = make(20_000, noise=noise, random_state=1, return_truth=True)
    scaled = (y - truth) / (factor * sd(X[:, 0]))
    for part in np.split(scaled, 4):  # left to right
        assert abs(part.mean()) < 4 / np.sqrt(part.size)
        assert abs(part.std() - 1) < 4 / np.sqrt(2 * part.size)
    assert_allclose((abs(scaled) < 1).mean(), 0.6827, atol=0.015)


def test_defaults_are_the_documented_ones(name, make):
    X, y = make(random_state=0)
    sd = EXPECTED[name][3]
    assert len(X) == {"make_power_sine": 50, "make_damped_oscillation": 100}.get(name, 200)
    assert_array_equal(y, make(noise=sd(1.0), random_state=0)[1])


def test_without_noise_the_targets_are_the_truth(make):
    _, y, truth = make(noise=0.0, random_state=0, return_truth=True)
    assert_array_equal(y, truth)


@pytest.mark.parametrize("seeded", [np.random.default_rng, np.random.RandomState, int])
def test_the_same_seed_gives_the_same_rows(make, seeded):
    first, second = make(random_state=seeded(5)), make(random_state=seeded(5))
    assert_array_equal(first[0], second[0])
    assert_array_equal(first[1], second[1])
    assert (make(random_state=seeded(6))[1] != first[1]).all()


@pytest.mark.parametrize("seeded", [np.random.default_rng, np.random.RandomState])
def test_a_generator_is_drawn_from(make, seeded):
    rng = seeded(5)
    assert (make(random_state=rng)[1] != make(random_state=rng)[1]).all()


def test_no_seed_gives_other_rows_and_leaves_the_global_generator_alone(make):
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    assert (make()[1] != make()[1]).all()
    assert_array_equal(np.random.get_state()[1], before)  # noqa: NPY002


def test_asking_for_the_truth_changes_no_draw(make):
    X, y = make(random_state=3)
    again = make(random_state=3, return_truth=True)
    assert_array_equal(X, again[0])
    assert_array_equal(y, again[1])


def test_negative_noise_is_refused(make):
    with pytest.raises(ValueError, match="scale < 0"):
        make(noise=-1.0)
