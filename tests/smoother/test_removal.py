"""Predictions without some keys are those of keys that were never there."""

import numpy as np
import pytest
from definitions import attention_weights, component_of, lines, training_set_of
from numpy.testing import assert_allclose

from skattn._attention import Resources
from skattn._smoother import LeftOut
from skattn._smoother.removal import NEGLIGIBLE_WEIGHT, Removal

RESOURCES = Resources()


def rows_of(kind, rng, n):
    X = np.round(4.0 * rng.random((n, 2))) if kind == "importances" else 4.0 * rng.random((n, 2))
    weights = {"multiplicities": rng.integers(1, 4, n), "importances": rng.random(n)}.get(kind)
    return training_set_of(
        X, rng.standard_normal((n, 2)), weights, rng.integers(0, 9, n) if kind == "groups" else None
    )


def changes(component, queries, output):
    """Changes of the predictions without what is left out with each key, 0 where there is none."""
    training_set, regression = component.training_set, component.at(queries)
    counts, excluded = training_set.counts(), training_set.leave_one_out()
    left_out = LeftOut(component.values, counts, training_set.multiplicity, excluded)
    block = regression.reader(RESOURCES).read(slice(0, len(queries)))
    moves = Removal(block, regression, left_out, RESOURCES).moves(output)
    found = np.zeros((len(queries), regression.n_keys))
    found[moves.queries, moves.keys] = moves.changes
    return found


def by_definition(component, queries, output):
    regression, excluded = component.at(queries), component.training_set.leave_one_out()
    found = np.empty((len(queries), regression.n_keys))
    for i, row in enumerate(found):
        some = regression.take(np.full(regression.n_keys, i))
        predictions = []
        for each in (some, some.excluding(excluded)):
            weights, _ = attention_weights(each.attention)
            predictions.append(weights @ component.values)
            if component.degree:
                points = each.products.regressors, component.values, each.regressors
                predictions[-1] = lines(weights, *points)[0]
        row[:] = (predictions[1] - predictions[0])[:, output]
    return found


@pytest.mark.parametrize("kind", ["rows", "multiplicities", "importances", "groups"])
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("bandwidth", [0.3, 1.0, 8.0])
def test_changes_are_those_of_excluding_each_key(kind, degree, bandwidth, rng):
    component = component_of(rows_of(kind, rng, 40), bandwidth, "student", degree)
    queries = 4.0 * rng.random((9, 2))
    for output in range(2):
        found, expected = (
            compute(component, queries, output) for compute in (changes, by_definition)
        )
        assert_allclose(found, expected, atol=1e-8 * max(1.0, np.abs(expected).max()))


def test_of_many_keys_those_of_little_weight_do_not_move_predictions(rng):
    component, queries = component_of(rows_of("rows", rng, 2100), 0.2), 4.0 * rng.random((5, 2))
    weights, _ = attention_weights(component.at(queries).attention)
    found, values = changes(component, queries, 0), component.values[:, 0]
    expected = weights * ((weights @ values)[:, None] - values) / (1.0 - weights)
    counts = weights > NEGLIGIBLE_WEIGHT
    assert_allclose(found, np.where(counts, expected, 0.0), atol=1e-12)
    assert 0 < counts.sum() < counts.size


def test_ranges_of_keys_are_left_out_as_one(rng):
    training_set = rows_of("groups", rng, 20)
    excluded = training_set.leave_one_out()
    left_out = LeftOut(training_set.y, np.ones(20), np.ones(20), excluded)
    assert not left_out.are_single
    columns = rng.random((3, 20))
    expected = [
        columns[:, training_set.groups == g].sum(axis=1) for g in np.unique(training_set.groups)
    ]
    assert_allclose(left_out.sums(columns), np.transpose(expected))
    assert left_out.smallest_weight == 0.0
