"""One prediction: weights, data and fit over a feature."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from skattn import NadarayaWatsonRegressor, ParametricAttentionRegressor
from skattn.inspection import AttentionProfileDisplay


def heights(lines):
    return np.array([segment[1, 1] for segment in lines.get_segments()])


@pytest.mark.parametrize("degree", [0, 1])
def test_what_is_drawn_is_what_was_computed(wave, ax, degree):
    X, y = wave
    model = NadarayaWatsonRegressor(0.1, degree=degree).fit(X[::-1], y[::-1])

    def truth(rows):
        return np.sin(6.0 * rows[:, 0])

    display = AttentionProfileDisplay.from_estimator(
        model, [[0.0], [0.3]], query=1, truth=truth, ax=ax
    )
    assert display.ax_ is ax
    assert_allclose(heights(display.weight_lines_), model.attention_weights([[0.3]])[0][::-1])
    assert_allclose(np.asarray(display.points_.get_offsets()), np.column_stack([X[:, 0], y]))
    line = display.line_.get_xydata()
    assert_allclose(line[:, 1], model.predict(line[:, :1]), atol=1e-12)
    assert_array_equal(display.truth_line_.get_ydata(), truth(line[:, :1]))
    assert_allclose(display.prediction_.get_ydata(), model.predict([[0.3]]))
    assert display.query_line_.get_xdata()[0] == 0.3
    assert len(ax.collections) == 1
    assert ax.get_xlabel() == "x0"
    assert display.weight_ax_.get_ylabel() == "attention weight"


def test_heavier_rows_are_larger_and_negative_ones_hollow(wave):
    model = NadarayaWatsonRegressor(0.1, degree=1).fit(*wave)
    points = AttentionProfileDisplay.from_estimator(model, [[0.0]]).points_
    weights = model.attention_weights([[0.0]])[0]
    sizes, share = points.get_sizes(), np.abs(weights) / np.abs(weights).max()
    assert_allclose(sizes, sizes.min() + (sizes.max() - sizes.min()) * share, atol=1e-9)
    opaque = points.get_facecolors()[:, 3] > 0.0
    assert_array_equal(opaque, weights >= 0.0)
    assert not opaque.all()


def test_one_feature_of_several_and_one_target(rng):
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(rng.uniform(size=(40, 2)), columns=["age", "size"])
    y = np.column_stack([X["age"], X["size"] ** 2])
    model = NadarayaWatsonRegressor(0.3).fit(X, y)
    display = AttentionProfileDisplay.from_estimator(
        model, X, query=3, feature="size", target=1, n_points=7
    )
    rows = pd.DataFrame({"age": X["age"][3], "size": display.grid})
    assert_allclose(display.fit, model.predict(rows)[:, 1])
    assert_allclose(display.prediction, model.predict(X)[3, 1])
    assert_array_equal(display.targets, y[:, 1])
    with pytest.raises(ValueError, match="feature must be given, since there are 2: age, size"):
        AttentionProfileDisplay.from_estimator(model, X)
    for target in (None, 2, -1, True, 0.5, "a"):
        with pytest.raises(ValueError, match=r"target must be .* 2 outputs, from 0 to 1; got"):
            AttentionProfileDisplay.from_estimator(model, X, feature=0, target=target)


def test_positions_that_are_none(wave):
    model = NadarayaWatsonRegressor(0.1).fit(*wave)
    for query in (2, -3, 99, 0.5, True, None):
        words = rf"query must be the position of one of 2 queries, from 0 to 1; got {query}"
        with pytest.raises(ValueError, match=words):
            AttentionProfileDisplay.from_estimator(model, [[0.1], [0.2]], query=query)
    last = AttentionProfileDisplay.from_estimator(model, [[0.1], [0.2]], query=np.int64(-1))
    assert last.query_value == 0.2
    with pytest.raises(ValueError, match=r"n_points must be .* at least 2; got 9\.5"):
        AttentionProfileDisplay.from_estimator(model, [[0.1]], n_points=9.5)


def test_in_a_pipeline_features_are_those_the_regressor_sees(wave):
    X, y = wave
    pipeline = make_pipeline(MinMaxScaler((0.0, 10.0)), NadarayaWatsonRegressor(1.0)).fit(X, y)
    display = AttentionProfileDisplay.from_estimator(pipeline, [[0.5]])
    assert_allclose(display.query_value, 5.0)
    assert_allclose(display.prediction, pipeline.predict([[0.5]])[0])


@pytest.mark.parametrize("degree", [0, 1])
def test_learned_attention(wave, degree):
    pytest.importorskip("torch")
    X, y = wave
    model = ParametricAttentionRegressor(degree=degree).fit(X, y)
    display = AttentionProfileDisplay.from_estimator(model, [[0.4]])
    assert_allclose(display.weights @ display.targets, display.prediction)


def test_many_rows_are_left_out_and_said(wave):
    model = NadarayaWatsonRegressor(0.1).fit(*wave)
    display = AttentionProfileDisplay.from_estimator(model, [[0.4]], max_rows=10)
    assert len(display.points_.get_offsets()) == 10
    assert display.ax_.get_xlabel() == "x0 (10 of 40 shown)"


def test_styles_are_passed_on(wave):
    model = NadarayaWatsonRegressor(0.1).fit(*wave)
    display = AttentionProfileDisplay.from_estimator(
        model, [[0.4]], line_kwargs={"c": "green"}, point_kwargs={"s": 5.0}
    )
    assert display.line_.get_color() == "green"
    assert_array_equal(display.points_.get_sizes(), [5.0])
