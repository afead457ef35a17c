"""Every way to compute the sums gives the numbers of the plain definition, and of peers."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from skattn._attention._reference import reference_weights
from sklearn.neighbors import RadiusNeighborsRegressor

from skattn import NadarayaWatsonRegressor
from skattn._attention import Resources, attend, attend_weights
from skattn._geometry import Own
from skattn.kernels import KERNELS, get_kernel

FLOAT32 = np.dtype(np.float32)
RESOURCES = {
    "default": (Resources(), 1e-12),
    "two threads, small blocks": (Resources(n_threads=2, block_bytes=20_000), 1e-12),
    "one row at a time": (Resources(block_bytes=1), 1e-12),
    "float32": (Resources(dtype=FLOAT32), 5e-5),
}
KERNEL_CASES = [*KERNELS, "callable"]


def kernel_of(name):
    return get_kernel(name if name in KERNELS else lambda squared: -(squared**0.7))


def problem(d, spread, left_out):
    rng = np.random.default_rng([d, int(10 * spread), left_out])
    keys = spread * rng.standard_normal((120, d))
    queries = 1.3 * spread * rng.standard_normal((70, d))
    values = rng.standard_normal((120, 2))
    log_weights = np.log(rng.integers(1, 4, 120))
    start = np.arange(70)
    kept = rng.choice([0.0, 0.5], 70)
    own = Own(start, start + rng.integers(0, 4, 70), kept) if left_out else None
    return queries, keys, values, log_weights, own


@pytest.mark.parametrize("left_out", [False, True])
@pytest.mark.parametrize("spread", [0.3, 3.0, 30.0, 300.0])
@pytest.mark.parametrize("d", [1, 2, 5])
@pytest.mark.parametrize("name", KERNEL_CASES)
def test_sums_are_those_of_the_definition(name, d, spread, left_out):
    queries, keys, values, log_weights, own = problem(d, spread, left_out)
    kernel = kernel_of(name)
    weights, log_normalizer = reference_weights(queries, keys, kernel, log_weights, own)
    remaining = np.ones_like(weights)
    if own is not None:
        for row, start, stop, kept in zip(remaining, own.start, own.stop, own.kept, strict=True):
            row[start:stop] = kept if kept > 0.0 else 1.0
    for resources, tolerance in RESOURCES.values():
        attended = attend(
            queries,
            keys,
            values,
            kernel,
            log_weights,
            own=own,
            repeats=np.ones(120),
            resources=resources,
        )
        assert_allclose(attended.mean, weights @ values, rtol=0, atol=tolerance)
        squares = ((weights**2) / remaining).sum(axis=1)
        assert_allclose(attended.squares, squares, rtol=0, atol=tolerance)
        assert_allclose(attended.log_normalizer, log_normalizer, rtol=1e-13, atol=tolerance)
        assert_array_equal(attended.outside, np.isneginf(log_normalizer))
        if own is not None:
            rows = zip(weights, own.start, own.stop, strict=True)
            own_weight = [row[start:stop].sum() for row, start, stop in rows]
            assert_allclose(attended.own_weight, own_weight, rtol=0, atol=tolerance)


@pytest.mark.parametrize("left_out", [False, True])
@pytest.mark.parametrize("spread", [0.3, 30.0])
@pytest.mark.parametrize("name", KERNEL_CASES)
def test_weights_are_those_of_the_definition(name, spread, left_out):
    queries, keys, _, log_weights, own = problem(3, spread, left_out)
    expected, _ = reference_weights(queries, keys, kernel_of(name), log_weights, own)
    largest = np.sort(expected, axis=1)[:, :-6:-1]
    for resources, _ in RESOURCES.values():
        arguments = (queries, keys, kernel_of(name), log_weights)
        weights, _ = attend_weights(*arguments, own=own, resources=resources)
        assert_allclose(weights, expected, rtol=0, atol=1e-13)
        top, _ = attend_weights(*arguments, own=own, top_k=5, resources=resources)
        for row, start, stop in zip(largest, top.indptr[:-1], top.indptr[1:], strict=True):
            assert_allclose(top.data[start:stop], row[: stop - start], rtol=0, atol=1e-13)
            assert_allclose(row[stop - start :], 0.0, atol=1e-17)
        assert_allclose(top.toarray()[top.toarray() > 0], expected[top.toarray() > 0], atol=1e-13)


@pytest.mark.parametrize("name", ["gaussian", "epanechnikov", "laplace"])
def test_results_do_not_depend_on_blocks_threads_or_batch(name, rng):
    X, y = rng.standard_normal((700, 4)), rng.standard_normal(700)
    queries = 2.0 * rng.standard_normal((600, 4))
    model = NadarayaWatsonRegressor(bandwidth=0.5, kernel=name).fit(X, y)
    expected = model.predict(queries)
    threads = NadarayaWatsonRegressor(bandwidth=0.5, kernel=name, n_jobs=2).fit(X, y)
    assert_array_equal(threads.predict(queries), expected)
    for size in (1, 3, 599):
        batch = [model.predict(queries[i : i + size]) for i in range(0, 600, size)]
        assert_allclose(np.concatenate(batch), expected, rtol=0, atol=1e-12)


def test_sharing_the_machine_with_others_changes_nothing(rng):
    from sklearn import config_context

    X, y = rng.standard_normal((900, 3)), rng.standard_normal(900)
    model = NadarayaWatsonRegressor().fit(X, y)
    expected = model.predict(X), model.attention_weights(X, top_k=3).toarray()
    with config_context(working_memory=0.01):
        assert_allclose(model.predict(X), expected[0], rtol=0, atol=1e-12)
        assert_allclose(model.attention_weights(X, top_k=3).toarray(), expected[1], atol=1e-13)


def test_uniform_window_is_radius_neighbors(rng):
    X, y = rng.random((200, 2)), rng.random(200)
    queries = rng.random((100, 2))
    ours = NadarayaWatsonRegressor(bandwidth=0.2, kernel="uniform").fit(X, y).predict(queries)
    theirs = RadiusNeighborsRegressor(radius=0.2).fit(X, y).predict(queries)
    assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.filterwarnings("ignore:.*copies of others")
@pytest.mark.parametrize("bandwidth", ["loo", "scott", 0.3])
def test_row_order_does_not_change_a_bit(bandwidth, rng):
    X, y = np.round(rng.standard_normal((300, 2)), 1), rng.standard_normal(300)
    weights = rng.integers(0, 3, 300)
    order = rng.permutation(300)
    queries = rng.standard_normal((50, 2))
    one = NadarayaWatsonRegressor(bandwidth).fit(X, y, weights)
    other = NadarayaWatsonRegressor(bandwidth).fit(X[order], y[order], weights[order])
    assert_array_equal(one.bandwidth_, other.bandwidth_)
    assert_array_equal(one.predict(queries), other.predict(queries))
    assert_array_equal(one.predict(None)[order], other.predict(None))
    assert_array_equal(one.attention_weights(queries)[:, order], other.attention_weights(queries))
