"""What weight each key has, and which products are summed."""

from dataclasses import replace

import numpy as np
from definitions import attention_of, attention_weights, column
from numpy.testing import assert_allclose, assert_array_equal

from skattn._attention import KeyScale, Products
from skattn._geometry.training_set import Exclusion


def test_the_largest_log_weight_is_subtracted_and_remembered():
    attention = attention_of(column(0.0), column(0.0, 1.0), weights=np.array([2.0, 8.0]))
    assert_allclose(attention.log_weights, [np.log(0.25), 0.0])
    assert_allclose(attention.log_offset, np.log(8.0))
    again = replace(attention, queries=column(1.0))
    assert_array_equal(again.log_weights, attention.log_weights)
    assert again.log_offset == attention.log_offset


def test_attention_of_some_queries_or_over_some_keys_has_their_weights(rng):
    start = np.array([0, 2, 5, 6, 9, 3])
    excluded = Exclusion(
        start, start + np.array([1, 2, 3, 0, 1, 7]), np.array([0.0, 0.5, 0.0, 1.0, 0.2, 0.0])
    )
    queries, keys = rng.standard_normal((6, 2)), rng.standard_normal((10, 2))
    radius = rng.uniform(0.5, 2.0, 10)
    for scales in (
        {},
        {"query_scale": rng.uniform(0.5, 2.0, 6)},
        {"key_scale": KeyScale(radius)},
        {"key_scale": KeyScale(radius, 1.3 * radius)},
    ):
        attention = attention_of(queries, keys, "student", rng.random(10), excluded, **scales)
        weights, log_sums = attention_weights(attention)
        some = np.array([4, 0])
        assert_array_equal(attention_weights(attention.take(some))[0], weights[some])
        for cut in (slice(0, 4), slice(4, 9), slice(9, 10)):
            part = attention.over(cut)
            mine, sums = attention_weights(part.take(np.arange(5)))
            log_shares = sums + part.log_offset - log_sums[:5]
            assert_allclose(mine * np.exp(log_shares)[:, None], weights[:5, cut], atol=1e-15)


def test_wider_attention_is_that_at_a_multiple_of_the_bandwidths(rng):
    queries, keys = rng.standard_normal((4, 2)), rng.standard_normal((9, 2))
    wide = attention_of(queries, keys).widened(3.0)
    assert_allclose(
        attention_weights(wide)[0],
        attention_weights(attention_of(queries, keys, query_scale=np.full(4, 3.0)))[0],
    )


def test_products_are_values_regressors_their_pairs_and_with_values(rng):
    values, regressors = rng.standard_normal((7, 2)), rng.standard_normal((7, 3))
    center = np.array([0.1, -2.0, 0.5])
    products = Products(values, regressors)
    r = regressors - center
    pairs = [r[:, i] * r[:, j] for i in range(3) for j in range(i, 3)]
    cross = [r[:, i] * values[:, p] for i in range(3) for p in range(2)]
    expected = np.column_stack([values, r, *pairs, *cross])
    assert_allclose(products.columns(center), expected, rtol=1e-14)
    assert (products.degree, products.n_columns) == (1, expected.shape[1])
    assert_array_equal(products.over(slice(2, 5)).columns(center), products.columns(center)[2:5])
    assert_array_equal(Products(values).columns(center), values)
    assert (Products(values).degree, Products(values).n_columns) == (0, 2)
