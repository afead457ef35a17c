"""Rules of thumb."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from skattn._bandwidth import RULES, rule_of_thumb
from skattn._geometry.scaling import spread
from skattn.kernels import KERNELS, get_kernel

GAUSSIAN = KERNELS["gaussian"]


def ones(X):
    return np.ones(len(X))


def test_rules_by_hand():
    X = np.array([[0.0], [1.0], [2.0], [3.0], [100.0]])
    iqr = (3.0 - 1.0) / 1.349  # quartiles by the inverse of the distribution function
    assert iqr < X.std(ddof=1)
    assert_allclose(rule_of_thumb(RULES["scott"], X, ones(X), GAUSSIAN), 1.06 * iqr * 5**-0.2)
    assert_allclose(rule_of_thumb(RULES["silverman"], X, ones(X), GAUSSIAN), 0.9 * iqr * 5**-0.2)


def test_dimension_enters_the_exponent(rng):
    X = rng.standard_normal((64, 2))
    one = rule_of_thumb(RULES["scott"], X[:, :1], ones(X), GAUSSIAN)
    both = rule_of_thumb(RULES["scott"], X, ones(X), GAUSSIAN)
    assert_allclose(both[0] / one[0], 64 ** (1 / 5 - 1 / 6))


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_are_given_what_smooths_like_the_gaussian(name, rng):
    X = rng.standard_normal((50, 2))
    ratio = rule_of_thumb(RULES["scott"], X, ones(X), KERNELS[name]) / rule_of_thumb(
        RULES["scott"], X, ones(X), GAUSSIAN
    )
    expected = KERNELS[name].canonical_bandwidth / GAUSSIAN.canonical_bandwidth
    assert_allclose(ratio, expected)


def test_callables_are_given_the_gaussian_rule(rng):
    X = rng.standard_normal((50, 2))
    assert_array_equal(
        rule_of_thumb(RULES["scott"], X, ones(X), get_kernel(lambda squared: -squared)),
        rule_of_thumb(RULES["scott"], X, ones(X), GAUSSIAN),
    )


@given(st.integers(-900, 900), st.integers(0, 10**6))
def test_bandwidths_have_the_unit_of_their_feature(exponent, seed):
    X = np.random.default_rng(seed).standard_normal((20, 2))
    unit = np.array([2.0**exponent, 1.0])
    for rule in RULES:
        expected = rule_of_thumb(RULES[rule], X, ones(X), GAUSSIAN) * unit
        assert_allclose(
            rule_of_thumb(RULES[rule], X * unit, ones(X), GAUSSIAN), expected, rtol=1e-12
        )


@given(st.integers(0, 10**6))
def test_weights_are_repetitions(seed):
    rng = np.random.default_rng(seed)
    X, weights = rng.integers(0, 6, (15, 2)).astype(float), rng.integers(1, 5, 15)
    repeated = np.repeat(X, weights, axis=0)
    assert_allclose(
        rule_of_thumb(RULES["scott"], X, weights.astype(float), GAUSSIAN),
        rule_of_thumb(RULES["scott"], repeated, ones(repeated), GAUSSIAN),
        rtol=1e-12,
    )


def test_importances_matter_by_their_ratios_only(rng):
    X, weights = rng.standard_normal((30, 1)), rng.random(30)
    one = rule_of_thumb(RULES["silverman"], X, weights, GAUSSIAN)
    assert_allclose(rule_of_thumb(RULES["silverman"], X, weights * 0.37, GAUSSIAN), one, rtol=1e-12)


@pytest.mark.parametrize("constant", [0.0, 1.0, 1.7e9, 1e-320, -1.7e308])
def test_constant_features_have_infinite_spread(constant):
    X = np.column_stack([np.full(4, constant), np.arange(4.0)])
    assert spread(X, np.ones(4))[0] == np.inf
    assert np.isfinite(spread(X, np.ones(4))[1])


def test_zero_interquartile_range_leaves_the_standard_deviation():
    X = np.array([[1.0], [1.0], [1.0], [1.0], [2.0]])
    assert_allclose(spread(X, ones(X)), X.std(ddof=1))


@pytest.mark.parametrize("size", [1e-300, 1e300, 1.7e308])
def test_features_of_any_size(size):
    X = size * np.array([[-1.0], [0.2], [0.5], [1.0]])
    expected = size * spread(X / size, ones(X))
    assert_allclose(spread(X, ones(X)), expected, rtol=1e-12)
