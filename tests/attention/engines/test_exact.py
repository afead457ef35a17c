"""The exact engine agrees with the dense one on everything, and goes further."""

import numpy as np
import pytest
from definitions import KERNEL_CASES, attention_of, attention_weights, column
from numpy.testing import assert_allclose, assert_array_equal

from skattn import NadarayaWatsonRegressor
from skattn._attention import KeyScale, Products, Resources, Want, attend
from skattn._geometry.training_set import Exclusion

SCALES = [None, "query", "key", "key without"]


def problem(name, scale, rng, distance=1.0):
    queries, keys = distance * rng.standard_normal((30, 2)), rng.standard_normal((40, 2))
    start = np.minimum(np.arange(30), 36)
    excluded = Exclusion(start, start + rng.integers(0, 4, 30), rng.choice([0.0, 0.4, 1.0], 30))
    radius = rng.uniform(0.5, 1.5, 40)
    scales = {
        None: {},
        "query": {"query_scale": rng.uniform(0.5, 1.5, 30)},
        "key": {"key_scale": KeyScale(radius)},
        "key without": {"key_scale": KeyScale(radius, 1.3 * radius)},
    }[scale]
    weights = rng.integers(1, 4, 40).astype(float)
    return attention_of(queries, keys, name, weights, excluded, **scales)


def normalized(moments):
    """All sums over the totals, regressors centred at the origin."""
    if moments.center is not None:
        moments = moments.recentered(np.zeros_like(moments.center))
    total = moments.total[:, None]
    log_total = moments.log_shift + np.log(moments.total)
    own = moments.own / moments.total
    return moments.sums / total, own, moments.squares / total**2, log_total


@pytest.mark.parametrize("distance", [1.0, 5.0])
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", KERNEL_CASES)
def test_engines_agree(name, scale, degree, distance, rng):
    attention = problem(name, scale, rng, distance)
    products = Products(
        rng.standard_normal((40, 2)), rng.standard_normal((40, 3)) if degree else None
    )
    dense, exact = (
        attend(attention, products, Want.SQUARES, Resources(algorithm=each))
        for each in ("dense", "exact")
    )
    assert_array_equal(dense.outside, exact.outside)
    assert_allclose(dense.nearest, exact.nearest, rtol=1e-12)
    for found, expected in zip(normalized(dense), normalized(exact), strict=True):
        assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("name", KERNEL_CASES)
def test_moments_are_those_of_the_definition(name, scale, rng):
    attention = problem(name, scale, rng, 2.0)
    weights, log_sums = attention_weights(attention)
    products = Products(rng.standard_normal((40, 2)), rng.standard_normal((40, 3)))
    moments = attend(attention, products, Want.SQUARES, Resources(algorithm="exact"))
    expected = [w @ products.columns(c) for w, c in zip(weights, moments.center, strict=True)]
    assert_allclose(moments.sums / moments.total[:, None], expected, atol=1e-12)
    # regressors are centred at their means
    assert_allclose(moments.center, weights @ products.regressors, atol=1e-12)
    assert_array_equal(moments.outside, np.isneginf(log_sums))


@pytest.mark.parametrize("distance", [1e2, 1e9, 1e80])
def test_tails_are_exact_at_any_distance(distance):
    keys, values = column(0.0, 1.0, 2.0), column(10.0, 20.0, 30.0)
    edge = np.exp([-2.0, -1.0, 0.0])
    for name, expected in (("gaussian", 30.0), ("laplace", edge @ values / edge.sum())):
        attention = attention_of(column(distance), keys, name)
        moments = attend(attention, Products(values), resources=Resources(algorithm="exact"))
        assert_allclose(moments.sums / moments.total[:, None], [np.ravel(expected)], rtol=1e-10)


ESTIMATORS = {
    "means": {"bandwidth": 0.2},
    "lines": {"bandwidth": 0.2, "degree": 1},
    "radii of queries": {"bandwidth": 1.0, "adaptive": "query", "n_neighbors": 5},
    "lines, radii of keys": {"bandwidth": 1.0, "adaptive": "key", "n_neighbors": 5, "degree": 1},
    "callable": {"bandwidth": 0.2, "kernel": lambda squared: -(squared**0.7)},
    "compact": {"bandwidth": 0.2, "kernel": "tricube"},
}


@pytest.mark.parametrize("parameters", ESTIMATORS.values(), ids=ESTIMATORS)
def test_estimators_infer_the_same_by_either_engine(parameters, wave):
    X, y = wave
    queries = np.linspace(-0.5, 1.5, 21)[:, None]
    dense, exact = (
        NadarayaWatsonRegressor(algorithm=each, **parameters).fit(X, y)
        for each in ("dense", "exact")
    )
    for call in (
        lambda model: model.predict(queries, return_std=True),
        lambda model: model.predict(None),
        lambda model: model.effective_neighbors(queries),
        lambda model: model.leverage(),
        lambda model: model.attention_weights(queries),
        lambda model: model.predict_interval(queries, 0.8),
        lambda model: model.predict_quantiles(queries, [0.1, 0.8]),
    ):
        assert_allclose(call(exact), call(dense), rtol=1e-9, atol=1e-12)
