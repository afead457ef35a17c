"""A new variant: one class with both halves, by the public names of `skattn.variants` alone."""

from dataclasses import replace
from numbers import Real

import numpy as np
import pytest
from numpy.testing import assert_allclose
from sklearn.model_selection import GridSearchCV

from skattn import ParametricAttentionRegressor
from skattn._sklearn import Interval
from skattn.variants import Model, ParameterBlock, RowNumbers, Variant

pytest.importorskip("torch")


# [variant
class Trust(Variant):
    """Weights of training rows that grow or shrink exponentially with the features."""

    _parameter_constraints = {"spread": [Interval(Real, 0, None, closed="neither")]}  # noqa: RUF012

    def __init__(self, spread=1.0):
        self.spread = spread

    def models(self, beginning):
        rates = ParameterBlock(np.zeros(beginning.metric.n_plain), self.spread)
        return [TrustModel(beginning.metric, [beginning.metric.block(), rates])]


class TrustModel(Model):
    def forward(self, parts, features):
        factors, rates = parts
        log_factors = features[:, : self.metric.n_plain] @ rates
        coordinates = self.metric.coordinates(factors, features)
        return RowNumbers([coordinates], log_factors=log_factors)

    def smoother(self, parts, components, standard):
        (component,), (_, rates) = components, parts
        training_set = component.training_set
        log_factors = standard.coordinates(training_set.X[training_set.keys]) @ rates
        return replace(component, log_factors=log_factors - log_factors.max())


# variant]


def shaky(seed, n=200):
    """Rows that are the less to be trusted, the larger their second feature is."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n + 20, 2))
    y = np.sin(4.0 * X[:, 0]) + np.exp(1.5 * X[:, 1]) * 0.3 * rng.standard_normal(n + 20)
    return X[:n], y[:n], X[n:]


@pytest.mark.parametrize("degree", [0, 1])
def test_a_new_variant_is_learned_and_predicts(degree):
    slopes = []
    for seed in range(5):
        X, y, queries = shaky(seed)
        parameters = {"metric": "diagonal", "degree": degree}
        plain = ParametricAttentionRegressor(**parameters).fit(X, y)
        model = ParametricAttentionRegressor(**parameters, variant=Trust()).fit(X, y)
        assert model.loss_curve_[-1] <= plain.loss_curve_[-1]
        assert_allclose(model.attention_weights(queries) @ y, model.predict(queries), atol=1e-9)
        log_factors = np.log(model.members_[0].sample_factors)
        terms = np.column_stack([X, np.ones(len(X))])
        slope, left, *_ = np.linalg.lstsq(terms, log_factors, rcond=None)
        assert_allclose(left, 0.0, atol=1e-12)
        slopes.append(slope[1])
    assert np.median(slopes) < -0.1 if degree == 0 else np.abs(slopes).min() > 1e-3


def test_parameters_of_a_new_variant_are_searched_and_checked():
    X, y, _ = shaky(0, 60)
    model = ParametricAttentionRegressor("diagonal", variant=Trust(), degree=0)
    search = GridSearchCV(model, {"variant__spread": [0.1, 1.0]}, cv=2).fit(X, y)
    assert search.best_params_["variant__spread"] in (0.1, 1.0)
    with pytest.raises(ValueError, match=r"spread.*Trust"):
        model.set_params(variant__spread=0.0).fit(X, y)
