"""Centres and spreads of columns, and units of targets."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from skattn._geometry.scaling import TargetScaling, deviation, mean_squares, rounded_center, spread

LARGEST = np.finfo(float).max


@given(arrays(np.float64, (7, 2), elements=st.floats(-1.7e308, 1.7e308)))
def test_center_lies_in_the_range_of_each_column(columns):
    center = rounded_center(columns)
    assert (columns.min(axis=0) <= center).all()
    assert (center <= columns.max(axis=0)).all()


@given(arrays(np.int64, (6, 1), elements=st.integers(-(2**40), 2**40)), st.integers(0, 2**42))
def test_subtracting_the_center_from_whole_numbers_is_exact(whole, offset):
    rows = (whole + offset).astype(float)
    centered = rows - rounded_center(rows)
    differences = (whole - whole[0]).astype(float)
    assert_array_equal(centered - centered[0], differences)


def test_center_is_near_the_median(rng):
    columns = rng.standard_normal((501, 3)) * [1.0, 1e-9, 1e9] + [0.0, 5.0, 1e12]
    half_range = 0.5 * np.ptp(columns, axis=0)
    distance = np.abs(rounded_center(columns) - np.median(columns, axis=0))
    assert (distance <= half_range / 64).all()


@pytest.mark.parametrize("outlier", [1e6, 1e12, 1e17, 1e300])
def test_one_huge_value_costs_the_others_no_digits(rng, outlier):
    columns = np.append(rng.random(60), outlier)[:, None]
    centered = columns - rounded_center(columns)
    differences = centered[1:60, 0] - centered[0, 0]
    assert_allclose(differences, columns[1:60, 0] - columns[0, 0], rtol=0, atol=1e-15)


@given(arrays(np.float64, (6, 2), elements=st.floats(-1.7e308, 1.7e308)))
def test_scalings_restore_the_values(values):
    scaling, in_units = TargetScaling.of(values)
    assert (np.abs(in_units) <= 2.0).all()
    assert_allclose(
        scaling.restore(in_units), values, rtol=1e-15, atol=1e-15 * np.abs(values).max()
    )


def test_means_are_restored_within_the_range_of_the_values():
    scaling, in_units = TargetScaling.of(np.array([[0.1], [0.7]]))
    beyond = in_units + np.array([[-1e-12], [1e-12]])
    assert_array_equal(scaling.restore_means(beyond), [[0.1], [0.7]])


def test_constant_column_is_its_own_center():
    assert rounded_center(np.full((4, 1), 0.1))[0] == 0.1


@pytest.mark.parametrize("unit", [1.0, 1e-300, 1e300])
def test_the_spread_is_the_smaller_of_deviation_and_interquartile_range(unit, rng):
    X, weights = rng.standard_t(2, (200, 2)) * unit, np.ones(200)
    quartiles = np.quantile(X, [0.25, 0.75], axis=0, method="inverted_cdf")
    scales = (X / unit).std(axis=0, ddof=1), np.diff(quartiles, axis=0)[0] / unit / 1.349
    assert_allclose(spread(X, weights) / unit, np.minimum(*scales), rtol=1e-12)
    assert_allclose(deviation(X, weights) / unit, scales[0], rtol=1e-12)


def test_spreads_of_weights_are_those_of_repeated_rows(rng):
    X, weights = rng.standard_normal((40, 2)), rng.integers(1, 4, 40)
    repeated = np.repeat(X, weights, axis=0)
    for scale in (spread, deviation):
        one, other = scale(X, weights.astype(float)), scale(repeated, np.ones(len(repeated)))
        assert_allclose(one, other, rtol=1e-12)


def test_constant_features_have_no_spread_and_ties_no_range():
    X = np.column_stack([np.full(5, 0.1), [1.0, 1.0, 1.0, 1.0, 2.0]])
    assert_allclose(spread(X, np.ones(5)), [np.inf, np.sqrt(0.2)], rtol=1e-12)
    assert_allclose(deviation(X, np.ones(5)), [np.inf, np.sqrt(0.2)], rtol=1e-12)


def test_mean_squares_are_weighted_whatever_the_scale_of_the_weights(rng):
    errors, weights = rng.standard_normal((3, 8, 2)), rng.random(8)
    expected = np.average(errors**2, axis=1, weights=weights)
    for factor in (1.0, 1e300, 1e-300):
        assert_allclose(mean_squares(errors, factor * weights), expected, rtol=1e-12)


def test_differences_and_squares_are_restored_in_units_of_targets():
    scaling, _ = TargetScaling.of(np.array([[1000.0], [3000.0]]))
    unit = 2.0 ** scaling.exponent[0]
    assert_allclose(scaling.restore_differences(np.array([[0.5]])), [[0.5 * unit]])
    assert_allclose(scaling.restore_squares(np.array([[0.5]])), [[0.5 * unit**2]])
    huge, _ = TargetScaling.of(np.array([[-1.7e308], [1.7e308]]))
    assert_array_equal(huge.restore(np.array([[9.0], [-9.0]]))[:, 0], [LARGEST, -LARGEST])
