"""Blocks of attention weights, and the largest of them."""

import numpy as np
import pytest
from definitions import KERNEL_CASES, attention_of, attention_weights, column
from numpy.testing import assert_allclose, assert_array_equal

from skattn._attention import BlockReader, KeyScale, Resources, TopWeights, read_blocks
from skattn._geometry.training_set import Exclusion


def read(attention, resources=Resources(), top_k=None):
    """Weights of all queries, or the largest of them, and what else is in the blocks."""
    n_queries, n_keys = len(attention.queries), len(attention.keys)
    weights, own, log_total, nearest = (np.empty((n_queries, n_keys)), *np.empty((3, n_queries)))
    outside, top = np.empty(n_queries, bool), TopWeights(n_queries, top_k or 1)

    def receive(block):
        rows = block.queries
        weights[rows], own[rows], log_total[rows] = block.weights, block.own, block.log_total
        outside[rows], nearest[rows] = block.outside, block.nearest
        top.write(rows, block.weights)

    read_blocks(BlockReader(attention, resources), resources, receive)
    if top_k is not None:
        return top.array(n_keys)
    return weights, own, outside, log_total, nearest


def problem(name, spread, left_out, **scales):
    rng = np.random.default_rng([int(10 * spread), left_out])
    queries, keys = (
        1.3 * spread * rng.standard_normal((70, 3)),
        spread * rng.standard_normal((120, 3)),
    )
    start = np.arange(70)
    retained = rng.choice([0.0, 0.5], 70)
    excluded = Exclusion(start, start + rng.integers(0, 4, 70), retained) if left_out else None
    weights = rng.integers(1, 4, 120).astype(float)
    return attention_of(queries, keys, name, weights, excluded, **scales)


RESOURCES = [
    Resources(),
    Resources(n_threads=2, block_bytes=20_000),
    Resources(block_bytes=1),
    Resources(dtype=np.dtype(np.float32)),
    Resources(algorithm="exact"),
]


@pytest.mark.parametrize("left_out", [False, True])
@pytest.mark.parametrize("spread", [0.3, 30.0])
@pytest.mark.parametrize("name", KERNEL_CASES)
def test_weights_are_those_of_the_definition(name, spread, left_out):
    attention = problem(name, spread, left_out)
    expected, log_sums = attention_weights(attention)
    for resources in RESOURCES:
        weights, own, outside, log_total, nearest = read(attention, resources)
        assert_allclose(weights, expected, rtol=0, atol=1e-13)
        assert_array_equal(outside, np.isneginf(log_sums))
        assert_allclose(log_total[~outside], log_sums[~outside], rtol=1e-13, atol=1e-12)
        assert_array_equal(np.isinf(nearest), ~outside)
        if left_out:
            ranges = zip(expected, attention.excluded.start, attention.excluded.stop, strict=True)
            sums = [row[start:stop].sum() for row, start, stop in ranges]
            assert_allclose(own, sums, rtol=0, atol=1e-13)
        top = read(attention, resources, top_k=5)
        largest = np.sort(expected, axis=1)[:, :-6:-1]
        for row, start, stop in zip(largest, top.indptr[:-1], top.indptr[1:], strict=True):
            assert_allclose(top.data[start:stop], row[: stop - start], rtol=0, atol=1e-13)
            assert_allclose(row[stop - start :], 0.0, atol=1e-17)
        stored = top.toarray() > 0
        assert_allclose(top.toarray()[stored], expected[stored], rtol=0, atol=1e-13)


@pytest.mark.parametrize("scale", ["query", "key", "key without"])
@pytest.mark.parametrize("name", KERNEL_CASES)
def test_weights_at_varying_bandwidths_are_those_of_the_definition(name, scale, rng):
    radius = rng.uniform(0.3, 1.5, 120)
    scales = {
        "query": {"query_scale": rng.uniform(0.3, 1.5, 70)},
        "key": {"key_scale": KeyScale(radius)},
        "key without": {"key_scale": KeyScale(radius, 1.2 * radius)},
    }[scale]
    attention = problem(name, 0.6, True, **scales)
    expected, log_sums = attention_weights(attention)
    weights, _, outside, log_total, _ = read(attention)
    assert_allclose(weights, expected, rtol=0, atol=1e-13)
    assert_array_equal(outside, np.isneginf(log_sums))
    assert_allclose(log_total[~outside], log_sums[~outside], rtol=1e-12, atol=1e-12)


def test_top_weights_are_the_largest_and_ties_go_by_position():
    attention = attention_of(column(0.0), column(0.0, 1.0, -1.0, 1.0, 5.0))
    top = read(attention, top_k=3)
    assert_array_equal(top.indices, [0, 1, 2])
    assert_allclose(top.data, read(attention)[0][0, [0, 1, 2]], rtol=1e-14)


def test_top_weights_of_a_narrow_support_are_fewer():
    attention = attention_of(column(0.1, 9.0), column(0.0, 0.5, 3.0, 4.0), "epanechnikov")
    top = read(attention, top_k=3)
    assert_array_equal(top.indptr, [0, 2, 3])
    assert_array_equal(top.indices, [0, 1, 3])
    assert_array_equal(read(attention)[2], [False, True])


def test_underflowed_weights_read_as_zero():
    assert_array_equal(read(attention_of(column(0.0), column(0.0, 60.0)))[0], [[1.0, 0.0]])
