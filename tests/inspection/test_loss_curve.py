"""Curves of training."""

import pytest
from numpy.testing import assert_array_equal
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import NadarayaWatsonRegressor, ParametricAttentionRegressor
from skattn.inspection import LossCurveDisplay


def test_losses_and_scores_of_several_models(wave, ax):
    pytest.importorskip("torch")
    plain = ParametricAttentionRegressor().fit(*wave)
    stopped = ParametricAttentionRegressor("diagonal", validation_fraction=0.1, random_state=0)
    pipeline = make_pipeline(StandardScaler(), stopped).fit(*wave)
    display = LossCurveDisplay.from_estimators({"plain": plain, "stopped": pipeline}, ax=ax)
    assert display.ax_ is ax
    assert len(ax.lines) == 2
    assert_array_equal(display.lines_[0].get_ydata(), plain.loss_curve_)
    assert_array_equal(display.lines_[1].get_ydata(), pipeline[-1].loss_curve_)
    (held_out,) = display.validation_lines_
    assert_array_equal(held_out.get_ydata(), pipeline[-1].validation_scores_)
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    assert names == ["plain", "stopped", "stopped, held out"]
    styles = {line.get_linestyle() for line in display.lines_}
    assert len(styles) == 2


def test_one_model_without_scores():
    display = LossCurveDisplay(losses={"one": [3.0, 2.0, 1.5]}).plot()
    assert display.validation_ax_ is None
    assert_array_equal(display.line_.get_xdata(), [0, 1, 2])


def test_models_without_losses(wave):
    model = NadarayaWatsonRegressor(0.1).fit(*wave)
    with pytest.raises(ValueError, match=r"'NadarayaWatsonRegressor' is a .*without\. Fit a Para"):
        LossCurveDisplay.from_estimator(model)
    with pytest.raises(NotFittedError):
        LossCurveDisplay.from_estimator(ParametricAttentionRegressor(), name="new")


def test_given_styles_win_over_defaults():
    display = LossCurveDisplay(losses={"one": [3.0, 2.0]}, validation_scores={"one": [0.0, 0.5]})
    display.plot(line_kwargs={"ls": ":"}, validation_kwargs={"markerfacecolor": "red"})
    assert display.line_.get_linestyle() == ":"
    assert display.validation_lines_[0].get_markerfacecolor() == "red"
