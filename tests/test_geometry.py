"""Geometry: centres, coordinates, canonical order, own keys."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

from skattn._geometry import Frame, Own, Table, Unit, are_multiplicities, rounded_center


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
def test_units_restore_the_values(values):
    unit, in_units = Unit.of(values)
    assert (np.abs(in_units) <= 2.0).all()
    assert_allclose(unit.restore(in_units), values, rtol=1e-15, atol=1e-15 * np.abs(values).max())


def test_means_in_units_are_restored_within_the_range_of_the_values():
    unit, in_units = Unit.of(np.array([[0.1], [0.7]]))
    beyond = in_units + np.array([[-1e-12], [1e-12]])
    assert_array_equal(unit.restore(beyond), [[0.1], [0.7]])


def test_numbers_too_large_for_fractions_are_no_multiplicities():
    assert not are_multiplicities(np.array([1e308, 1e308]))
    assert are_multiplicities(np.array([2.0**52, 1.0]))


def test_constant_column_is_its_own_center():
    assert rounded_center(np.full((4, 1), 0.1))[0] == 0.1


def test_coordinates_are_centered_and_scaled():
    rows = np.array([[0.0, 10.0], [4.0, 30.0]])
    frame = Frame.around(rows, np.array([2.0, 5.0]))
    coordinates = frame.coordinates(rows)
    assert_allclose(coordinates[1] - coordinates[0], [2.0, 4.0])


def test_infinite_bandwidth_smooths_a_feature_out():
    rows = np.array([[0.0, 1.0], [1.0, 1e300]])
    frame = Frame.around(rows, np.array([1.0, np.inf]))
    assert_array_equal(frame.features, [0])
    moved = frame.coordinates(np.array([[0.0, -1e308], [1.0, np.pi]]))
    assert_array_equal(moved, frame.coordinates(rows))


def test_all_features_smoothed_out_leave_one_that_is_zero():
    rows = np.array([[0.0, 1.0], [1.0, 1e300]])
    frame = Frame.around(rows, np.array([np.inf, np.inf]))
    assert_array_equal(frame.coordinates(rows), [[0.0], [0.0]])


@pytest.mark.parametrize("bandwidth", [1e-300, 1e-10, 1.0])
def test_far_rows_keep_their_direction_and_stay_finite(bandwidth):
    frame = Frame(np.arange(2), np.zeros(2), np.full(2, bandwidth))
    coordinates = frame.coordinates(np.array([[1.7e308, -0.85e308]]))
    assert np.isfinite(coordinates).all()
    assert_allclose(coordinates[0, 0] / coordinates[0, 1], -2.0)
    assert_allclose(np.abs(coordinates).max(), 1e100)


def test_rows_within_reach_are_not_pulled_back():
    frame = Frame(np.arange(1), np.zeros(1), np.ones(1))
    assert_array_equal(frame.coordinates(np.array([[1e99], [1e101]]))[:, 0], [1e99, 1e100])


def test_keys_stay_finite_for_any_bandwidth():
    rows = np.array([[-1.7e308], [0.0], [1.7e308]])
    coordinates = Frame.around(rows, np.array([1e-300])).coordinates(rows)
    assert_allclose(np.diff(coordinates[:, 0]), 1e90)


def test_whole_numbers_are_multiplicities():
    assert are_multiplicities(np.array([0.0, 1.0, 3.0]))
    assert not are_multiplicities(np.array([1.0, 0.5]))


def test_canonical_table_does_not_depend_on_the_order_of_rows(rng):
    X = rng.integers(0, 2, (30, 6)).astype(float)
    y, weights = rng.integers(0, 2, (30, 1)).astype(float), rng.integers(0, 3, 30).astype(float)
    order = rng.permutation(30)
    one = Table.canonical(X, y, weights)
    other = Table.canonical(X[order], y[order], weights[order])
    for name in ("X", "y", "weights", "n_keys"):
        assert_array_equal(getattr(one, name), getattr(other, name))
    assert_array_equal(X[one.rows], one.X)
    assert_array_equal(X[order][other.rows], one.X)


def test_rows_of_zero_weight_come_last_and_are_no_keys():
    X = np.array([[0.0], [1.0], [2.0]])
    table = Table.canonical(X, X.copy(), np.array([0.0, 1.0, 1.0]))
    assert table.n_keys == 2
    assert_array_equal(table.rows, [1, 2, 0])
    own = table.own()
    assert_array_equal(own.stop - own.start, [1, 1, 0])


def test_multiplicities_leave_one_unit_out():
    table = Table.canonical(np.zeros((3, 1)), np.arange(3.0)[:, None], np.array([1.0, 2.0, 4.0]))
    own = table.own()
    assert_array_equal(own.start, [0, 1, 2])
    assert_allclose(own.kept, [0.0, 0.5, 0.75])


def test_importances_leave_out_every_key_of_the_same_features():
    X = np.array([[1.0], [0.0], [1.0], [2.0], [1.0]])
    own = Table.canonical(X, np.arange(5.0)[:, None], np.full(5, 0.5)).own()
    assert_array_equal(own.start, [0, 1, 1, 1, 4])
    assert_array_equal(own.stop, [1, 4, 4, 4, 5])
    assert_array_equal(own.kept, 0.0)


def test_own_entries_fall_into_their_block_of_keys():
    own = Own(np.array([0, 2, 5]), np.array([1, 5, 5]), np.zeros(3))
    queries, keys = own.entries(3, 6)
    assert_array_equal(queries, [1, 1])
    assert_array_equal(keys, [0, 1])
    queries, keys = own.entries(0, 6)
    assert_array_equal(np.stack([queries, keys]), [[0, 1, 1, 1], [0, 2, 3, 4]])


def test_groups_are_left_out_together():
    X, groups = np.array([[3.0], [1.0], [2.0], [0.0]]), np.array([1, 0, 1, 0])
    table = Table.canonical(X, X, np.array([1.0, 1.0, 1.0, 0.0]), groups)
    assert_array_equal(table.X[:, 0], [1.0, 2.0, 3.0, 0.0])
    own = table.own()
    assert_array_equal(own.start, [0, 1, 1, 0])
    assert_array_equal(own.stop, [1, 3, 3, 1])  # the absent row too leaves its group out
    assert_array_equal(own.kept, 0.0)
    assert_array_equal(own.covers(2), [False, True, True, False])


def test_merging_joins_equal_rows_of_a_group():
    X, y = np.array([[1.0], [1.0], [1.0], [2.0]]), np.array([[0.0], [0.0], [5.0], [0.0]])
    table = Table.canonical(X, y, np.array([1.0, 2.0, 1.0, 0.0]))
    merged = table.merged()
    assert_array_equal(merged.weights, [3.0, 1.0])
    assert_array_equal(merged.y[:, 0], [0.0, 5.0])
    grouped = Table.canonical(X, y, np.ones(4), np.array([0, 1, 0, 0])).merged()
    assert_array_equal(grouped.weights, 1.0)


def test_an_outlier_does_not_widen_tiny_bandwidths():
    rows = np.array([[0.0], [1.0], [2.0], [3.0], [1e250]])
    coordinates = Frame.around(rows, np.array([0.5])).coordinates(rows)
    assert_array_equal(np.diff(coordinates[:4, 0]), 2.0)
    assert coordinates[4, 0] == 1e100
