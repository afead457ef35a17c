"""Local fits of queries: how they are computed does not matter."""

import numpy as np
import pytest
from definitions import (
    attention_of,
    attention_weights,
    component_of,
    regression_of,
    training_set_of,
)
from numpy.testing import assert_allclose, assert_array_equal

from skattn._attention import Resources
from skattn._geometry.training_set import Exclusion
from skattn._smoother import predict, smoother_matrix


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("adaptive", [None, "query", "key"])
def test_blocks_threads_and_the_order_of_queries_do_not_matter(adaptive, degree, rng):
    X, y = rng.standard_normal((700, 3)), rng.standard_normal((700, 2))
    queries = 1.3 * rng.standard_normal((640, 3))
    component = component_of(training_set_of(X, y), 0.8, degree=degree)
    if adaptive is not None:
        component = component.with_neighbors(adaptive, 12)

    def predicted(rows, **resources):
        return predict(component.at(rows), Resources(**resources))[0]

    expected = predicted(queries)
    tolerance = 1e-9 * np.maximum(1.0, np.abs(expected))
    assert_array_equal(predicted(queries, n_threads=2), expected)
    assert (np.abs(predicted(queries, block_bytes=1) - expected) <= tolerance).all()
    order = rng.permutation(640)
    shuffled = predicted(queries[order])
    assert (np.abs(shuffled - expected[order]) <= tolerance[order]).all()
    for chosen in (slice(0, 1), slice(5, 12), slice(100, 300)):
        few = predicted(queries[chosen])
        assert (np.abs(few - expected[chosen]) <= tolerance[chosen]).all()


def test_other_values_exclusions_and_bandwidths_under_the_same_weights(rng):
    queries, keys = rng.standard_normal((9, 2)), rng.standard_normal((30, 2))
    attention = attention_of(queries, keys, "student")
    regression = regression_of(attention, rng.standard_normal((30, 1)), (queries, keys))
    columns = rng.standard_normal((30, 4))
    weights, _ = attention_weights(attention)
    assert_allclose(predict(regression.means_of(columns), Resources())[0], weights @ columns)
    wide = regression.means_of(columns).widened(2.0)
    weights, _ = attention_weights(attention_of(queries / 2.0, keys / 2.0, "student"))
    assert_allclose(predict(wide, Resources())[0], weights @ columns)
    excluded = Exclusion(np.zeros(9, int), np.full(9, 3), np.zeros(9))
    matrix, _ = smoother_matrix(regression.excluding(excluded), Resources())
    assert_array_equal(matrix[:, :3], 0.0)
    assert_allclose(matrix.sum(axis=1), 1.0)
    some = np.array([4, 1])
    assert_allclose(
        predict(regression.take(some), Resources())[0], predict(regression, Resources())[0][some]
    )
