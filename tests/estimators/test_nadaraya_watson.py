"""NadarayaWatsonRegressor, used as scikit-learn users do."""

import io
import pickle
import tracemalloc

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from numpy.testing import assert_allclose, assert_array_equal
from scipy.sparse import csr_array
from sklearn.base import clone
from sklearn.datasets import load_diabetes
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import NadarayaWatsonRegressor
from skattn.kernels import KERNELS

BANDWIDTHS = [0.5, 1.0, 2.0]
GRID = {"nadarayawatsonregressor__bandwidth": BANDWIDTHS}


@pytest.fixture(scope="module")
def diabetes():
    return load_diabetes(return_X_y=True)


def search(**parameters):
    pipeline = make_pipeline(StandardScaler(), NadarayaWatsonRegressor())
    return GridSearchCV(pipeline, GRID, **parameters)


def by_hand(X, y, queries, bandwidth, weights=None):
    squared = (((queries[:, None] - X) / bandwidth) ** 2).sum(axis=2)
    kernel = np.exp(-squared / 2) * (1.0 if weights is None else weights)
    return kernel @ y / kernel.sum(axis=1)


def test_grid_search_in_a_pipeline_finds_the_best_bandwidth(diabetes):
    X, y = diabetes
    fitted = search().fit(X, y)
    assert fitted.best_params_ == {"nadarayawatsonregressor__bandwidth": 1.0}
    scores = [
        cross_val_score(make_pipeline(StandardScaler(), NadarayaWatsonRegressor(h)), X, y).mean()
        for h in BANDWIDTHS
    ]
    assert_allclose(fitted.cv_results_["mean_test_score"], scores, rtol=1e-12)
    scaled = StandardScaler().fit_transform(X)
    assert_allclose(fitted.predict(X[:7]), by_hand(scaled, y, scaled[:7], 1.0), rtol=1e-12)


def test_diabetes_errors_are_between_those_of_ridge_and_of_the_mean(diabetes):
    X, y = diabetes
    attention = cross_val_score(search(), X, y).mean()
    neighbors = cross_val_score(
        make_pipeline(StandardScaler(), KNeighborsRegressor(20)), X, y
    ).mean()
    ridge = cross_val_score(make_pipeline(StandardScaler(), RidgeCV()), X, y).mean()
    assert 0.4 < attention < ridge
    assert abs(attention - neighbors) < 0.05


def test_two_jobs_give_the_scores_of_one(diabetes):
    X, y = diabetes
    one, two = search().fit(X, y), search(n_jobs=2).fit(X, y)
    assert_array_equal(one.cv_results_["mean_test_score"], two.cv_results_["mean_test_score"])
    assert_array_equal(
        cross_val_score(NadarayaWatsonRegressor(n_jobs=2), X, y, n_jobs=2),
        cross_val_score(NadarayaWatsonRegressor(), X, y),
    )


def test_sample_weights_are_routed_to_fit_and_score(diabetes, rng):
    X, y = diabetes
    weights = rng.integers(0, 3, len(y)).astype(float)
    grid = {"bandwidth": [0.02, 0.05, 0.1]}
    with sklearn.config_context(enable_metadata_routing=True):
        regressor = NadarayaWatsonRegressor().set_fit_request(sample_weight=True)
        regressor.set_score_request(sample_weight=True)
        routed = GridSearchCV(regressor, grid, cv=2).fit(X, y, sample_weight=weights)
    repeated = np.repeat(np.arange(len(y)), weights.astype(int))
    groups = np.repeat(np.arange(len(y)) < len(y) // 2, weights.astype(int))
    plain = GridSearchCV(NadarayaWatsonRegressor(), grid, cv=GroupKFold(2))
    plain.fit(X[repeated], y[repeated], groups=groups)
    scores, expected = (
        np.sort([s.cv_results_[f"split{i}_test_score"] for i in range(2)], axis=0)
        for s in (routed, plain)
    )
    assert_allclose(scores, expected, rtol=1e-10)
    assert_allclose(routed.predict(X), plain.predict(X), rtol=1e-10)


def test_sample_weights_are_routed_through_a_pipeline(diabetes, rng):
    X, y = diabetes
    weights = rng.integers(0, 3, len(y)).astype(float)
    with sklearn.config_context(enable_metadata_routing=True):
        regressor = NadarayaWatsonRegressor(1.0).set_fit_request(sample_weight=True)
        scaler = StandardScaler().set_fit_request(sample_weight=True)
        routed = make_pipeline(scaler, regressor).fit(X, y, sample_weight=weights)
    repeated = np.repeat(np.arange(len(y)), weights.astype(int))
    plain = make_pipeline(StandardScaler(), NadarayaWatsonRegressor(1.0))
    plain.fit(X[repeated], y[repeated])
    assert_allclose(routed.predict(X), plain.predict(X), rtol=1e-10)


def test_frames_are_taken_by_position_and_their_names_remembered(diabetes):
    X, y = diabetes
    names = [f"measurement {i}" for i in range(10)]
    expected = NadarayaWatsonRegressor().fit(X, y).predict(X[:5])
    pandas = pd.DataFrame(X, columns=names, index=np.arange(442)[::-1])
    polars = pl.DataFrame(X, schema=names)
    for frame, target in ((pandas, pd.Series(y)), (polars, pl.Series(y))):
        model = NadarayaWatsonRegressor().fit(frame, target)
        assert_array_equal(model.feature_names_in_, names)
        assert_array_equal(model.predict(frame[:5]), expected)
        assert search().fit(frame, target).best_params_ == search().fit(X, y).best_params_
        with pytest.raises(ValueError, match="feature names"):
            model.predict(frame[names[::-1]])


def test_fitted_searches_are_pickled_dumped_and_cloned(diabetes, tmp_path):
    X, y = diabetes
    fitted = search().fit(X, y)
    expected = fitted.predict(X)
    assert_array_equal(pickle.loads(pickle.dumps(fitted)).predict(X), expected)
    joblib.dump(fitted, tmp_path / "search.joblib")
    mapped = joblib.load(tmp_path / "search.joblib", mmap_mode="r")
    assert_array_equal(mapped.predict(X), expected)
    cloned = clone(fitted)
    assert not hasattr(cloned, "best_estimator_")
    assert_array_equal(cloned.fit(X, y).predict(X), expected)


def test_fitted_state_is_numpy_and_plain_python(diabetes):
    buffer = io.BytesIO()
    pickle.dump(NadarayaWatsonRegressor().fit(*diabetes), buffer)
    allowed = ("skattn.", "numpy", "builtins", "collections")

    class Strict(pickle.Unpickler):
        def find_class(self, module, name):
            assert module.startswith(allowed), module
            return super().find_class(module, name)

    buffer.seek(0)
    Strict(buffer).load()


def test_bandwidths_for_each_feature_are_a_scaling(diabetes):
    X, y = diabetes
    bandwidth = np.geomspace(0.02, 0.2, 10)
    model = NadarayaWatsonRegressor(bandwidth).fit(X, y)
    assert_array_equal(model.bandwidth_, bandwidth)
    assert_allclose(model.predict(X[:9]), by_hand(X, y, X[:9], bandwidth), rtol=1e-12)


def test_scotts_rule_is_in_the_units_of_each_feature(diabetes):
    X, y = diabetes
    quartiles = np.quantile(X, [0.25, 0.75], axis=0, method="inverted_cdf")
    spread = np.minimum(X.std(axis=0, ddof=1), (quartiles[1] - quartiles[0]) / 1.349)
    spread = np.where(quartiles[1] > quartiles[0], spread, X.std(axis=0, ddof=1))
    expected = 1.06 * spread * len(X) ** (-1 / 14)
    assert_allclose(NadarayaWatsonRegressor("scott").fit(X, y).bandwidth_, expected, rtol=1e-12)


def test_several_targets_share_their_weights(diabetes, rng):
    X, y = diabetes
    Y = np.column_stack([y, rng.standard_normal(442)])
    together = NadarayaWatsonRegressor(0.05).fit(X, Y)
    apart = MultiOutputRegressor(NadarayaWatsonRegressor(0.05)).fit(X, Y)
    assert_allclose(together.predict(X), apart.predict(X), rtol=1e-12)
    assert_allclose(
        together.predict(None)[:, 0], NadarayaWatsonRegressor(0.05).fit(X, y).predict(None)
    )
    column = NadarayaWatsonRegressor(0.05).fit(X, y[:, None]).predict(X)
    assert_array_equal(column, NadarayaWatsonRegressor(0.05).fit(X, y).predict(X)[:, None])


def test_leave_one_out_predictions_come_in_the_order_of_the_rows(rng):
    X, y = rng.standard_normal((30, 2)), rng.standard_normal(30)
    weights = rng.integers(0, 3, 30)
    model = NadarayaWatsonRegressor(0.5).fit(X, y, sample_weight=weights)
    expected = [
        by_hand(X, y, X[[i]], 0.5, np.maximum(weights - (np.arange(30) == i), 0))[0]
        for i in range(30)
    ]
    assert_allclose(model.predict(None), expected, rtol=1e-11)
    shares = model.attention_weights(None)
    assert_array_equal(shares[:, weights == 0], 0.0)
    assert_array_equal(np.diag(shares)[weights == 1], 0.0)
    assert (np.diag(shares)[weights == 2] > 0.0).all()


def test_importances_leave_out_all_rows_of_the_same_features():
    X, y = [[0.0], [1.0], [1.0], [2.0]], [0.0, 10.0, 20.0, 5.0]
    model = NadarayaWatsonRegressor(1.0).fit(X, y, sample_weight=[0.5, 1.5, 0.5, 0.5])
    assert_allclose(model.predict(None)[[1, 2]], 2.5)  # of the rows at 0 and 2 alone


def test_top_weights_are_those_of_the_full_matrix(diabetes):
    X, y = diabetes
    model = NadarayaWatsonRegressor(0.05).fit(X, y)
    full, top = model.attention_weights(X[:20]), model.attention_weights(X[:20], top_k=4)
    assert isinstance(top, csr_array)
    assert_array_equal(np.diff(top.indptr), 4)
    order = np.argsort(-full, axis=1, kind="stable")[:, :4]
    assert_array_equal(top.indices.reshape(20, 4), order)
    assert_allclose(top.data.reshape(20, 4), np.take_along_axis(full, order, 1), rtol=1e-12)
    left_out = model.attention_weights(None, top_k=1)
    assert (left_out.indices != np.arange(442)).all()


def test_effective_dof_is_the_trace_of_the_smoother_matrix(diabetes):
    X, y = diabetes
    model = NadarayaWatsonRegressor(0.05).fit(X, y)
    diagonal = np.diag(model.attention_weights(X))
    assert_allclose(model.leverage(), diagonal, rtol=1e-12)
    assert_allclose(model.effective_dof_, diagonal.sum(), rtol=1e-12)


def test_displays_do_not_compute_the_trace(diabetes, monkeypatch):
    model = NadarayaWatsonRegressor().fit(*diabetes)
    monkeypatch.setattr(NadarayaWatsonRegressor, "leverage", lambda self: pytest.fail("computed"))
    assert "NadarayaWatsonRegressor" in model._repr_html_()


def test_results_are_single_precision_only_when_all_data_are(rng):
    X, y = rng.standard_normal((50, 2)), rng.standard_normal(50)
    X32, y32 = np.float32(X), np.float32(y)
    assert NadarayaWatsonRegressor().fit(X32, y32).predict(X32).dtype == np.float32
    assert NadarayaWatsonRegressor().fit(X32, y32).predict(None).dtype == np.float32
    for rows, targets, queries in (
        (X, y32, X32),
        (X32, y, X32),
        (X32, y32, X),
        (X32, [1] * 50, X32),
    ):
        model = NadarayaWatsonRegressor().fit(rows, targets)
        assert model.predict(queries).dtype == np.float64


@pytest.mark.parametrize(
    "convert",
    [
        np.asfortranarray,
        lambda X: X[::-1][::-1],
        lambda X: X.astype(np.int64),
        lambda X: X.astype(np.int64).tolist(),
        lambda X: X.astype(bool).astype(float) * X,
    ],
    ids=["Fortran order", "negative strides", "integers", "lists", "copies"],
)
def test_any_layout_of_the_same_numbers(convert, rng):
    X, y = rng.integers(0, 9, (40, 3)).astype(float), rng.standard_normal(40)
    expected = NadarayaWatsonRegressor(1.5).fit(X, y).predict(X)
    model = NadarayaWatsonRegressor(1.5).fit(convert(X), y)
    assert_array_equal(model.predict(convert(X)), expected)


def test_callers_arrays_are_not_written_to(rng):
    X, y, weights = rng.standard_normal((40, 2)), rng.standard_normal(40), np.ones(40)
    copies = X.copy(), y.copy(), weights.copy()
    model = NadarayaWatsonRegressor(kernel="tricube").fit(X, y, sample_weight=weights)
    model.predict(X)
    model.attention_weights(X, top_k=2)
    for array, copy in zip((X, y, weights), copies, strict=True):
        assert_array_equal(array, copy)
    X[:], y[:] = 0.0, 0.0  # nor does the model hold on to them
    assert_array_equal(model.predict(copies[0]), model.fit(*copies[:2]).predict(copies[0]))


def test_prediction_sets_no_attribute(diabetes):
    model = NadarayaWatsonRegressor().fit(*diabetes)
    before = set(vars(model))
    model.predict(None)
    model.effective_neighbors(diabetes[0])
    assert model.effective_dof_ > 1.0
    assert set(vars(model)) == before


@pytest.mark.parametrize("kernel", KERNELS)
def test_rules_of_thumb_give_every_kernel_about_the_same_fit(kernel, wave):
    X, y = wave
    gaussian = NadarayaWatsonRegressor("scott").fit(X, y)
    other = NadarayaWatsonRegressor("scott", kernel=kernel).fit(X, y)
    assert 0.5 < other.effective_dof_ / gaussian.effective_dof_ < 2.0
    assert np.abs(other.predict(X) - gaussian.predict(X)).max() < 0.5 * y.std()


@pytest.mark.parametrize("what", ["predict", "top weights", "tied top weights", "far", "selection"])
def test_memory_stays_at_blocks_of_the_matrix(what, rng):
    # the matrix of weights would take 128 MB
    X, y = rng.standard_normal((4000, 3)), rng.standard_normal(4000)
    model = NadarayaWatsonRegressor(0.5).fit(X, y)
    ties = NadarayaWatsonRegressor(np.inf).fit(X, y)
    narrow = NadarayaWatsonRegressor(0.01, kernel="biweight").fit(X, y)
    calls = {
        "predict": lambda: model.predict(X),
        "top weights": lambda: model.attention_weights(X, top_k=5),
        "tied top weights": lambda: ties.attention_weights(X, top_k=5),
        "far": lambda: narrow.predict(X + 5.0),
        "selection": lambda: NadarayaWatsonRegressor(anisotropic=False, max_queries=100).fit(X, y),
    }
    tracemalloc.start()
    try:
        calls[what]()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 16e6
