"""Canonical order of training rows, and what leave-one-out excludes."""

import pickle

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from skattn._geometry.training_set import (
    Exclusion,
    TrainingSet,
    are_multiplicities,
    evenly_spaced,
    number_of_rows,
)


def test_numbers_too_large_for_fractions_are_no_multiplicities():
    assert not are_multiplicities(np.array([1e308, 1e308]))
    assert are_multiplicities(np.array([2.0**52, 1.0]))


def test_whole_numbers_are_multiplicities():
    assert are_multiplicities(np.array([0.0, 1.0, 3.0]))
    assert not are_multiplicities(np.array([1.0, 0.5]))


def test_canonical_training_set_does_not_depend_on_the_order_of_rows(rng):
    X = rng.integers(0, 2, (30, 6)).astype(float)
    y, weights = rng.integers(0, 2, (30, 1)).astype(float), rng.integers(0, 3, 30).astype(float)
    order = rng.permutation(30)
    one = TrainingSet.canonical(X, y, weights)
    other = TrainingSet.canonical(X[order], y[order], weights[order])
    for name in ("X", "y", "weights", "n_keys"):
        assert_array_equal(getattr(one, name), getattr(other, name))
    assert_array_equal(X[one.order], one.X)
    assert_array_equal(X[order][other.order], one.X)


def test_rows_of_zero_weight_come_last_and_are_no_keys():
    X = np.array([[0.0], [1.0], [2.0]])
    training_set = TrainingSet.canonical(X, X.copy(), np.array([0.0, 1.0, 1.0]))
    assert training_set.n_keys == 2
    assert_array_equal(training_set.order, [1, 2, 0])
    excluded = training_set.leave_one_out()
    assert_array_equal(excluded.stop - excluded.start, [1, 1, 0])


def test_multiplicities_leave_one_unit_out():
    training_set = TrainingSet.canonical(
        np.zeros((3, 1)), np.arange(3.0)[:, None], np.array([1.0, 2.0, 4.0])
    )
    excluded = training_set.leave_one_out()
    assert_array_equal(excluded.start, [0, 1, 2])
    assert_allclose(excluded.retained, [0.0, 0.5, 0.75])


def test_importances_leave_out_every_key_of_the_same_features():
    X = np.array([[1.0], [0.0], [1.0], [2.0], [1.0]])
    excluded = TrainingSet.canonical(X, np.arange(5.0)[:, None], np.full(5, 0.5)).leave_one_out()
    assert_array_equal(excluded.start, [0, 1, 1, 1, 4])
    assert_array_equal(excluded.stop, [1, 4, 4, 4, 5])
    assert_array_equal(excluded.retained, 0.0)


def test_excluded_entries_fall_into_their_block_of_keys():
    excluded = Exclusion(np.array([0, 2, 5]), np.array([1, 5, 5]), np.zeros(3))
    queries, keys = excluded.entries(3, 6)
    assert_array_equal(queries, [1, 1])
    assert_array_equal(keys, [0, 1])
    queries, keys = excluded.entries(0, 6)
    assert_array_equal(np.stack([queries, keys]), [[0, 1, 1, 1], [0, 2, 3, 4]])


def test_groups_are_left_out_together():
    X, groups = np.array([[3.0], [1.0], [2.0], [0.0]]), np.array([1, 0, 1, 0])
    training_set = TrainingSet.canonical(X, X, np.array([1.0, 1.0, 1.0, 0.0]), groups)
    assert_array_equal(training_set.X[:, 0], [1.0, 2.0, 3.0, 0.0])
    excluded = training_set.leave_one_out()
    assert_array_equal(excluded.start, [0, 1, 1, 0])
    assert_array_equal(excluded.stop, [1, 3, 3, 1])  # the absent row too leaves its group out
    assert_array_equal(excluded.retained, 0.0)
    assert not excluded.covers(training_set.n_keys).any()
    alone = TrainingSet.canonical(X, X, np.array([0.0, 1.0, 0.0, 1.0]), groups)
    assert_array_equal(alone.leave_one_out().covers(2), [True, True, False, False])


def test_deduplication_joins_equal_rows_of_a_group():
    X, y = np.array([[1.0], [1.0], [1.0], [2.0]]), np.array([[0.0], [0.0], [5.0], [0.0]])
    training_set = TrainingSet.canonical(X, y, np.array([1.0, 2.0, 1.0, 0.0]))
    joined = training_set.deduplicated
    assert_array_equal(joined.weights, [3.0, 1.0])
    assert_array_equal(joined.y[:, 0], [0.0, 5.0])
    grouped = TrainingSet.canonical(X, y, np.ones(4), np.array([0, 1, 0, 0])).deduplicated
    assert_array_equal(grouped.weights, 1.0)


def test_places_of_keys_when_deduplicated():
    X, y = np.array([[1.0], [0.0], [1.0], [1.0]]), np.array([[0.0], [0.0], [0.0], [5.0]])
    training_set = TrainingSet.canonical(X, y, np.ones(4))
    assert_array_equal(training_set.places_when_deduplicated(), [0, 1, 1, 2])
    assert training_set.deduplicated is training_set.deduplicated
    assert "deduplicated" not in pickle.loads(pickle.dumps(training_set))._cache


def test_callers_order_is_the_inverse_of_the_order(rng):
    training_set = TrainingSet.canonical(rng.random((9, 2)), rng.random((9, 1)), np.ones(9))
    assert_array_equal(training_set.order[training_set.callers_order], np.arange(9))


def test_counts_are_multiplicities_or_importances_of_mean_one():
    X = np.arange(3.0)[:, None]
    whole = TrainingSet.canonical(X, X, np.array([2.0, 0.0, 4.0]))
    assert_array_equal(whole.counts(), [2.0, 4.0])
    assert_array_equal(whole.multiplicity, [2.0, 4.0])
    importances = TrainingSet.canonical(X, X, np.array([0.5, 1.0, 3.0]))
    assert_allclose(importances.counts(), [1.0 / 3.0, 2.0 / 3.0, 2.0])
    assert_array_equal(importances.multiplicity, 1.0)
    assert_array_equal(
        [number_of_rows(w) for w in (whole.weights, importances.weights)], [6.0, 3.0]
    )


def test_evenly_spaced_positions_include_both_ends():
    assert_array_equal(evenly_spaced(4, 9), np.arange(4))
    assert_array_equal(evenly_spaced(101, 3), [0, 50, 100])
