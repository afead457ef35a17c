"""The distance to the k-th nearest key, whatever counts as a key and however it is found."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skattn._geometry.neighbors import neighbor_distances
from skattn._geometry.training_set import Exclusion, TrainingSet


def by_sorting(queries, keys, counts, numbers, excluded=None):
    """Every distance, nearest first; own keys count as often as they stay."""
    radii = np.empty((len(queries), len(numbers)))
    for i, query in enumerate(queries):
        present = counts.copy()
        if excluded is not None:
            present[excluded.start[i] : excluded.stop[i]] *= excluded.retained[i]
        distances = np.sqrt(((keys - query) ** 2).sum(axis=1))[present > 0.0]
        order = np.argsort(distances)
        distances, totals = distances[order], present[present > 0.0][order].cumsum()
        positive = distances > 0.0
        for j, number in enumerate(numbers):
            reached = positive & (totals >= number - 1e-6)
            if reached.any():
                radii[i, j] = distances[reached][0]
            else:
                radii[i, j] = distances[positive][-1] if positive.any() else 1.0
    return radii


def check(queries, keys, counts, numbers, excluded=None):
    numbers = np.asarray(numbers)
    radii = neighbor_distances(queries, keys, counts, numbers, excluded)
    expected = by_sorting(queries, keys, counts, numbers, excluded)
    assert_allclose(radii, expected, rtol=1e-12, atol=0)
    assert (radii > 0.0).all()
    assert (np.diff(radii, axis=1) >= -1e-12 * radii[:, 1:]).all()
    return radii


def test_third_of_the_keys_on_a_line():
    keys = np.array([[0.0], [1.0], [3.0], [7.0]])
    queries = np.array([[0.0], [2.5]])
    radii = neighbor_distances(queries, keys, np.ones(4), np.array([1, 2, 3, 4]), None)
    # at the first query the nearest key is at distance zero, the next one is not
    assert_array_equal(radii, [[1.0, 1.0, 3.0, 7.0], [0.5, 1.5, 2.5, 4.5]])


@pytest.mark.parametrize("d", [1, 3, 12, 13, 20])
@pytest.mark.parametrize("n", [40, 900])
def test_radii_are_those_of_sorted_distances(d, n, rng):
    keys, queries = rng.standard_normal((n, d)), 1.5 * rng.standard_normal((60, d))
    numbers = [1, 2, 7, 15, 39, *[40, 44, 45, 46, 300, 899, 900][: 7 if n > 40 else 0]]
    check(queries, keys, np.ones(n), numbers)


@pytest.mark.parametrize("d", [12, 13])
@pytest.mark.parametrize("k", [3, 400])
def test_another_constant_feature_changes_nothing(d, k, rng):
    # 12 features and few neighbours are looked up in a tree, others by sorting
    keys, queries = rng.standard_normal((900, d)), rng.standard_normal((30, d))
    radii = neighbor_distances(queries, keys, np.ones(900), np.array([k]), None)
    padded = [np.column_stack([rows, np.ones(len(rows))]) for rows in (queries, keys)]
    again = neighbor_distances(*padded, np.ones(900), np.array([k]), None)
    assert_allclose(again, radii, rtol=1e-13)


@pytest.mark.parametrize("d", [1, 2, 13])
def test_ties_on_a_lattice(d, rng):
    keys = rng.integers(0, 3, (150, d)).astype(float)
    queries = rng.integers(0, 3, (40, d)).astype(float)
    check(queries, keys, np.ones(150), np.arange(1, 151))


@pytest.mark.parametrize("d", [2, 14])
def test_multiplicities_are_repeated_rows(d, rng):
    keys, queries = rng.standard_normal((70, d)), rng.standard_normal((30, d))
    counts, numbers = rng.integers(1, 5, 70).astype(float), np.arange(1, 120)
    radii = check(queries, keys, counts, numbers)
    repeated = np.repeat(keys, counts.astype(int), axis=0)
    again = neighbor_distances(queries, repeated, np.ones(len(repeated)), numbers, None)
    assert_allclose(again, radii, rtol=1e-13)


@pytest.mark.parametrize("d", [1, 13])
def test_importances_are_counted_in_rows_of_mean_weight(d, rng):
    X, weights = rng.standard_normal((80, d)), rng.random(80)
    training_set = TrainingSet.canonical(X, X[:, :1], weights)
    queries = rng.standard_normal((30, d))
    radii = check(queries, training_set.X, training_set.counts(), np.arange(1, 81))
    scaled = TrainingSet.canonical(X, X[:, :1], 1e-7 * weights)
    again = neighbor_distances(queries, scaled.X, scaled.counts(), np.arange(1, 81), None)
    assert_allclose(again, radii, rtol=1e-13)


@pytest.mark.parametrize("d", [1, 2, 13])
@pytest.mark.parametrize("kind", ["multiplicities", "importances", "groups"])
def test_what_is_left_out_does_not_count(d, kind, rng):
    X = np.round(rng.standard_normal((130, d)), 1 if d == 1 else 8)
    weights = rng.integers(1, 4, 130).astype(float) if kind != "importances" else rng.random(130)
    # groups are clusters: the nearest fifty keys may all be left out
    groups = np.searchsorted([-0.6, 0.6, 1.5], X[:, 0]) if kind == "groups" else None
    training_set = TrainingSet.canonical(X, rng.random((130, 1)), weights, groups)
    check(
        training_set.X,
        training_set.X,
        training_set.counts(),
        [1, 2, 5, 20, 60, 129],
        training_set.leave_one_out(),
    )


def test_one_unit_of_a_row_left_out_is_the_row_once_less(rng):
    X, counts = rng.standard_normal((50, 2)), rng.integers(1, 4, 50).astype(float)
    training_set = TrainingSet.canonical(X, X[:, :1], counts)
    numbers = np.arange(1, 60)
    radii = neighbor_distances(
        training_set.X, training_set.X, training_set.counts(), numbers, training_set.leave_one_out()
    )
    for i in (0, 7, 23):
        fewer = training_set.counts() - (np.arange(50) == i)
        rest = np.repeat(training_set.X, fewer.astype(int), axis=0)
        alone = neighbor_distances(
            training_set.X[i : i + 1], rest, np.ones(len(rest)), numbers, None
        )
        assert_allclose(radii[i], alone[0], rtol=1e-13)


def test_copies_at_distance_zero_do_not_make_a_radius_zero():
    keys = np.array([[0.0], [0.0], [0.0], [2.0], [5.0]])
    numbers = np.array([1, 2, 3, 4, 5])
    radii = neighbor_distances(np.zeros((1, 1)), keys, np.ones(5), numbers, None)
    assert_array_equal(radii, [[2.0, 2.0, 2.0, 2.0, 5.0]])


@pytest.mark.parametrize("d", [1, 13])
def test_fewer_keys_than_k_reach_the_farthest(d):
    keys = np.zeros((3, d))
    keys[:, 0] = [1.0, -4.0, 2.0]
    radii = neighbor_distances(np.zeros((1, d)), keys, np.ones(3), np.array([3, 4, 1000]), None)
    assert_array_equal(radii, [[4.0, 4.0, 4.0]])


def test_the_farthest_of_few_is_one_that_counts():
    keys = np.array([[0.0], [1.0], [2.0], [9.0]])
    excluded = Exclusion(np.array([3]), np.array([4]), np.zeros(1))
    radii = neighbor_distances(np.zeros((1, 1)), keys, np.ones(4), np.array([3, 4]), excluded)
    assert_array_equal(radii, [[2.0, 2.0]])


@pytest.mark.parametrize("d", [1, 13])
def test_one_location_has_radius_one(d):
    keys = np.full((20, d), 3.0)
    assert_array_equal(neighbor_distances(keys[:2], keys, np.ones(20), np.array([1, 5]), None), 1.0)
    away = np.full((1, d), 3.0)
    away[0, 0] = 5.5
    radii = neighbor_distances(away, keys, np.ones(20), np.array([1, 20, 50]), None)
    assert_array_equal(radii, 2.5)


@pytest.mark.parametrize("d", [2, 13])
def test_many_queries_are_those_of_few(d, rng):
    # more pairs of queries and neighbours than are looked at together
    keys = rng.standard_normal((1200, d))
    numbers = np.array([10, 1000])
    radii = neighbor_distances(keys, keys, np.ones(1200), numbers, None)
    chosen = [0, 411, 999, 1000, 1199]
    few = neighbor_distances(keys[chosen], keys, np.ones(1200), numbers, None)
    assert_allclose(radii[chosen], few, rtol=1e-13)
    assert_allclose(few, by_sorting(keys[chosen], keys, np.ones(1200), numbers), rtol=1e-12)
