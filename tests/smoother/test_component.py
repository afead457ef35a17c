"""Training rows at rest: leave-one-out is a refit without the row."""

import numpy as np
import pytest
from definitions import column, component_of, leave_one_out, training_set_of
from numpy.testing import assert_allclose, assert_array_equal

from skattn import NadarayaWatsonRegressor
from skattn._attention import Resources
from skattn._smoother import mean_of, neighbor_key_scale, predict


def rows_of(kind, rng, n=50):
    X = np.round(rng.standard_normal((n, 2)), 0 if kind == "importances" else 8)
    y = np.sin(2.0 * X[:, 0]) + rng.standard_normal(n)
    weights = {"multiplicities": rng.integers(1, 4, n), "importances": rng.random(n)}.get(kind)
    return X, y, weights, rng.integers(0, 12, n) if kind == "groups" else None


@pytest.mark.parametrize("kind", ["rows", "multiplicities", "importances", "groups"])
@pytest.mark.parametrize("name", ["gaussian", "student", "epanechnikov"])
@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("bandwidth", [0.3, 1.5])
def test_leave_one_out_is_a_refit_without_the_row(kind, name, degree, bandwidth, rng):
    data = rows_of(kind, rng)
    model = NadarayaWatsonRegressor(bandwidth, kernel=name, degree=degree)
    expected = leave_one_out(model, *data)
    found = model.fit(*data).predict(None)
    assert_allclose(found, expected, rtol=0, atol=1e-6 * max(1.0, np.abs(expected).max()))


@pytest.mark.parametrize("kind", ["rows", "multiplicities"])
@pytest.mark.parametrize("adaptive", ["query", "key"])
@pytest.mark.parametrize("degree", [0, 1])
def test_adaptive_leave_one_out_is_a_refit_without_the_row(kind, adaptive, degree, rng):
    data = rows_of(kind, rng)
    model = NadarayaWatsonRegressor(1.0, degree=degree, adaptive=adaptive, n_neighbors=12)
    assert_allclose(model.fit(*data).predict(None), leave_one_out(model, *data), atol=1e-8)


def test_radii_of_keys_reach_their_nth_neighbor_and_the_next_one():
    X = column(0.0, 1.0, 3.0, 7.0)
    scale = neighbor_key_scale(training_set_of(X, X), X, 2)
    assert_array_equal(scale.radius, [3.0, 2.0, 3.0, 6.0])
    assert_array_equal(scale.without, [7.0, 6.0, 4.0, 7.0])


@pytest.mark.parametrize("kind", ["importances", "groups"])
def test_radii_without_a_row_count_only_where_one_unit_is_left_out(kind, rng):
    training_set = training_set_of(*rows_of(kind, rng))
    component = component_of(training_set, 1.0).with_neighbors("key", 5)
    assert component.key_scale.without is not None
    for regression in (
        component.leave_one_out(),
        component.in_sample(),
        component.at(rng.random((3, 2))),
    ):
        assert regression.attention.key_scale.without is None


def test_the_mean_of_members_is_that_of_their_predictions(rng):
    training_set, queries = training_set_of(*rows_of("rows", rng)), rng.standard_normal((9, 2))
    members = [component_of(training_set, h, degree=d) for h, d in ((0.3, 1), (0.6, 1), (1.2, 1))]
    nested = mean_of([mean_of(members[:2]), members[2]])
    one, two, three = (predict(each.at(queries), Resources())[0] for each in members)
    assert_allclose(
        predict(mean_of(members).at(queries), Resources())[0], (one + two + three) / 3.0
    )
    found = predict(nested.at(queries), Resources())[0]
    assert_allclose(found, (0.5 * (one + two) + three) / 2.0)
    assert mean_of(members[:1]) is members[0]
