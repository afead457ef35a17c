"""Squared distances, from differences and by matrix products where those are accurate."""

import numpy as np
import pytest
from definitions import column
from numpy.testing import assert_allclose, assert_array_equal

from skattn._geometry.distances import (
    Expansion,
    candidates_near,
    differences,
    distances,
    excess_over_nearest,
    squared_distances,
    weighted_squares,
)

FLOAT32, FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)


def naive(queries, keys):
    return ((queries[:, None] - keys) ** 2).sum(axis=2)


@pytest.mark.parametrize("d", [1, 3])
def test_distances_are_those_of_differences(d, rng):
    queries, keys = rng.standard_normal((6, d)) + 1e8, rng.standard_normal((9, d)) + 1e8
    expected, out = naive(queries, keys), np.empty((6, 9))
    assert_allclose(squared_distances(queries, keys), expected, rtol=1e-14)
    assert squared_distances(queries, keys, out) is out
    assert_allclose(out, expected, rtol=1e-14)
    assert_allclose(distances(queries, keys) ** 2, expected, rtol=1e-13)
    assert_allclose((differences(queries, keys) ** 2).sum(axis=0), expected, rtol=1e-13)
    weights = rng.standard_normal((6, 9))
    by_feature = np.einsum("qk,jqk->qj", weights, differences(queries - 1e8, keys - 1e8) ** 2)
    assert_allclose(weighted_squares(weights, queries - 1e8, keys - 1e8), by_feature, atol=1e-12)


@pytest.mark.parametrize("rate", [1.0, -0.5])
@pytest.mark.parametrize(
    ("radius", "tolerances", "kind"),
    [
        (1.0, {FLOAT32: 1e-5, FLOAT64: 1e-12}, FLOAT32),
        (30.0, {FLOAT32: 1e-5, FLOAT64: 1e-12}, FLOAT64),
        (1e6, {FLOAT32: 1e-5, FLOAT64: 1e-12}, None),
        (1.0, {}, None),
    ],
)
def test_distances_are_expanded_where_the_error_is_below_the_tolerance(
    radius, tolerances, kind, rate, rng
):
    queries, keys = radius * rng.uniform(-0.5, 0.5, (2, 50, 3))
    expansion = Expansion(queries, keys, rate, tolerances)
    rows, columns = slice(10, 45), slice(3, 40)
    assert expansion.dtype(rows) == kind
    lift = 0.0 if kind is None else 7.0
    found = expansion.scaled(rows, columns, np.empty(35 * 37 * 8, np.uint8), lift)
    assert found.dtype == (kind or FLOAT64)
    error = np.abs(found - lift - rate * naive(queries[rows], keys[columns]))
    assert error.max() < 4.0 * (tolerances[kind] if kind else 1e-15 * radius**2)


def test_few_queries_are_not_worth_an_expansion():
    few = Expansion(np.zeros((3, 2)), np.zeros((9, 2)), 1.0, {FLOAT64: 1e-12})
    assert few.dtype(slice(0, 3)) is None


def test_candidates_are_the_keys_within_reach_of_the_nearest_that_is_seen():
    keys, queries = column(0.0, 1.0, 2.0, 5.0), column(-1.0, 3.0)
    hidden = np.array([[True, False, False, False], [False, False, False, False]])
    entries, candidates = candidates_near(queries, keys, lambda near: 5.0 + 0.0 * near, hidden)
    assert_array_equal(entries, [0, 0, 1, 1, 1])
    assert_array_equal(candidates, [1, 2, 1, 2, 3])
    nearest, excess = excess_over_nearest(queries, keys, entries, candidates)
    assert_array_equal(nearest, [1, 2])
    assert_array_equal(excess, [0.0, 5.0, 3.0, 0.0, 3.0])


def test_the_excess_over_the_nearest_key_is_exact_far_away():
    keys, queries = column(0.0, 0.25, 1.0), column(2.0**60, -(2.0**60))
    entries, candidates = np.repeat([0, 1], 3), np.tile(np.arange(3), 2)
    nearest, excess = excess_over_nearest(queries, keys, entries, candidates)
    assert_array_equal(nearest, [2, 0])
    assert_allclose(excess / 2.0**61, [1.0, 0.75, 0.0, 0.0, 0.25, 1.0], rtol=1e-15)
