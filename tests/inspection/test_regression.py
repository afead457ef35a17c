"""Curves with their bands, and surfaces."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import NadarayaWatsonRegressor
from skattn.inspection import RegressionDisplay


@pytest.fixture
def model(wave):
    return NadarayaWatsonRegressor(0.1, degree=1).fit(*wave)


def test_curve_interval_and_data(wave, model, ax):
    X, y = wave
    display = RegressionDisplay.from_estimator(model, X, y, coverage=0.8, local=True, ax=ax)
    grid, prediction = display.line_.get_data()
    assert_array_equal(grid, np.linspace(0.0, 1.0, 200))
    assert_array_equal(prediction, model.predict(grid[:, None]))
    bounds = model.predict_interval(grid[:, None], 0.8, local=True)
    assert_array_equal(np.column_stack([display.lower, display.upper]), bounds)
    assert_allclose(display.band_.get_datalim(ax.transData).y0, bounds.min())
    assert_array_equal(np.asarray(display.points_.get_offsets()), np.column_stack([X[:, 0], y]))
    assert display.ax_ is ax
    assert len(ax.lines) == 1
    assert len(ax.collections) == 2
    assert display.surface_ is None
    assert display.band_.get_label() == "80 % prediction interval"


def test_standard_errors_also_of_other_regressors(wave, model):
    X, y = wave
    for regressor in (model, GaussianProcessRegressor(alpha=0.1).fit(X, y)):
        display = RegressionDisplay.from_estimator(regressor, X, band="std")
        mean, std = regressor.predict(display.grid[:, None], return_std=True)
        assert_array_equal(display.upper, mean + 2.0 * std)
        assert display.points_ is None
    local = RegressionDisplay.from_estimator(model, X, band="std", local=True)
    std = model.predict(local.grid[:, None], return_std="local")[1]
    assert_array_equal(local.upper, local.prediction + 2.0 * std)
    plain = RegressionDisplay.from_estimator(LinearRegression().fit(X, y), X, band=None)
    assert plain.band_ is None


@pytest.mark.parametrize("band", ["std", "interval"])
@pytest.mark.parametrize("local", [False, True])
def test_bands_of_searches_and_pipelines(wave, model, band, local):
    X, y = wave
    search = GridSearchCV(NadarayaWatsonRegressor(degree=1), {"bandwidth": [0.1]}).fit(X, y)
    expected = RegressionDisplay.from_estimator(model, X, band=band, local=local)
    display = RegressionDisplay.from_estimator(search, X, band=band, local=local)
    assert_array_equal(display.upper, expected.upper)
    assert_array_equal(display.lower, expected.lower)
    pipeline = make_pipeline(StandardScaler(), NadarayaWatsonRegressor(0.1 / X.std(), degree=1))
    search = GridSearchCV(pipeline, {"nadarayawatsonregressor__degree": [1]}).fit(X, y)
    display = RegressionDisplay.from_estimator(search, X, band=band, local=local)
    assert_allclose(display.upper, expected.upper)


def test_surface_and_slices_of_a_pipeline_on_a_frame(rng):
    pd = pytest.importorskip("pandas")
    X = pd.DataFrame(rng.uniform(1.0, 3.0, (50, 3)), columns=["age", "size", "dose"])
    y = np.column_stack([X["age"], X["size"] * X["dose"]])
    pipeline = make_pipeline(StandardScaler(), NadarayaWatsonRegressor(0.5)).fit(X, y)
    display = RegressionDisplay.from_estimator(
        pipeline, X, y, features=("size", "dose"), target=1, n_points=40
    )
    first, second = display.grid
    rows = pd.DataFrame({"age": X["age"].median(), "size": first[3], "dose": second})
    assert_allclose(display.prediction[:, 3], pipeline.predict(rows)[:, 1])
    assert_array_equal(np.asarray(display.surface_.get_array()), display.prediction)
    assert_array_equal(np.sort(display.points_.get_array()), np.sort(y[:, 1]))
    assert display.line_ is None
    assert display.ax_.get_xlabel() == "size (other features at their medians)"
    assert display.ax_.get_ylabel() == "dose"
    curve = RegressionDisplay.from_estimator(pipeline, X, y, features=2, target=1)
    rows = X.median().to_frame().T.loc[[0] * 200].assign(dose=curve.grid)
    bounds = pipeline[-1].predict_interval(pipeline[:-1].transform(rows))
    assert_allclose(curve.lower, bounds[:, 0, 1])
    with pytest.raises(
        ValueError, match=r"features must name one or two of the 3.*age, size, dose"
    ):
        RegressionDisplay.from_estimator(pipeline, X, y, target=0)
    with pytest.raises(ValueError, match="features must be one feature, or a pair"):
        RegressionDisplay.from_estimator(pipeline, X, y, features=[0, 1, 2])


def test_polars_frames(rng):
    pl = pytest.importorskip("polars")
    X = pl.DataFrame({"age": rng.uniform(size=30), "size": rng.uniform(size=30)})
    y = X["age"].to_numpy()
    model = NadarayaWatsonRegressor(0.3).fit(X, y)
    display = RegressionDisplay.from_estimator(model, X, y, features="size", n_points=5)
    rows = pl.DataFrame({"age": [np.median(y)] * 5, "size": display.grid})
    assert_allclose(display.prediction, model.predict(rows))


def test_predictions_of_tensors():
    torch = pytest.importorskip("torch")
    grid = torch.tensor([2.0, 1.0, 3.0])
    curve = grid.clone().requires_grad_()
    display = RegressionDisplay.from_predictions(
        grid, curve * 2.0, lower=curve - 1.0, upper=curve + 1.0, band_name="one more"
    )
    assert_array_equal(display.line_.get_data(), [[1.0, 2.0, 3.0], [2.0, 4.0, 6.0]])
    assert_array_equal(display.upper, [2.0, 3.0, 4.0])
    assert display.band_.get_label() == "one more"


def test_many_rows_are_left_out_and_said(wave, model):
    display = RegressionDisplay.from_estimator(model, *wave, max_rows=7)
    assert len(display.points_.get_offsets()) == 7
    assert display.ax_.get_xlabel() == "x0 (7 of 40 shown)"


def test_styles_are_passed_on(wave, model):
    style = {"color": "tab:green", "ls": "--"}
    display = RegressionDisplay.from_estimator(model, *wave, line_kwargs=style, band="std")
    assert display.line_.get_color() == "tab:green"
    assert display.line_.get_linestyle() == "--"


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (["a", "a"], r"features must be one feature, or a pair of different ones; got \['a', 'a'"),
        (["a", 0], r"a pair of different ones; got \['a', 0\]"),
        ([], r"a pair of different ones; got \[\]"),
        (0.5, r"features must be .* position, from 0 to 1, of one of 2 features; got 0.5.*a, b"),
        ([0, 1.5], r"features must be .* of 2 features; got 1.5"),
        ([None, 1], r"features must be .* of 2 features; got None"),
        (True, r"features must be .* of 2 features; got True"),
    ],
)
def test_features_that_are_none(wave, features, message):
    pd = pytest.importorskip("pandas")
    X, y = wave
    frame = pd.DataFrame({"a": X[:, 0], "b": X[::-1, 0] ** 2})
    with pytest.raises(ValueError, match=message):
        RegressionDisplay.from_estimator(
            NadarayaWatsonRegressor(0.5).fit(frame, y), frame, features=features
        )


def test_errors_name_value_rule_and_remedy(wave, model):
    with pytest.raises(ValueError, match="band must be 'interval', 'std' or None; got 'se'"):
        RegressionDisplay.from_estimator(model, *wave, band="se")
    for n_points in (1, 2.5, True, "a"):
        with pytest.raises(ValueError, match="n_points must be a whole number, at least 2; got"):
            RegressionDisplay.from_estimator(model, *wave, n_points=n_points)
    linear = LinearRegression().fit(*wave)
    words = r"band='std' needs .* return_std.*got LinearRegression\. Pass .*band=None"
    with pytest.raises(TypeError, match=words):
        RegressionDisplay.from_estimator(linear, *wave, band="std")
    with pytest.raises(ValueError, match=r"one length.*lengths \{'grid': 2, 'prediction': 3\}"):
        RegressionDisplay.from_predictions([0.0, 1.0], [0.0, 1.0, 2.0])
    with pytest.raises(ValueError, match="lower and upper be given together"):
        RegressionDisplay.from_predictions([0.0, 1.0], [0.0, 1.0], lower=[0.0, 1.0])
