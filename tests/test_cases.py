"""Trouble that other implementations were reported for, and what is right instead."""

import inspect
import subprocess
import sys
import tracemalloc
import warnings

import joblib
import numpy as np
import pytest
import sklearn
from definitions import COMPACT, CONFIGURATIONS, column, inferred
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.base import clone
from sklearn.compose import TransformedTargetRegressor
from sklearn.metrics import r2_score
from sklearn.model_selection import KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import get_tags
from threadpoolctl import threadpool_info

from skattn import NadarayaWatsonRegressor
from skattn.kernels import KERNELS

QUERIES = np.linspace(-0.5, 1.5, 41)[:, np.newaxis]


@pytest.fixture
def noisy_sine():
    """40 rows of a noisy sine on [0, 1]."""
    x = np.linspace(0.0, 1.0, 40)
    noise = np.random.default_rng(7).standard_normal(40)
    return x[:, np.newaxis], np.sin(6.0 * x) + 0.4 * noise


# Far queries, underflow, offsets, number types


def test_far_gaussian_queries_get_the_target_of_the_nearest_row():
    model = NadarayaWatsonRegressor(0.1).fit(column(0, 1, 2), [10.0, 20.0, 30.0])
    assert_array_equal(model.predict(column(100, -100, 0.5)), [30.0, 10.0, 15.0])


@pytest.mark.parametrize("kernel", COMPACT)
@pytest.mark.parametrize(
    ("extrapolation", "left", "right"), [("nearest", 0.0, 1.0), ("nan", np.nan, np.nan)]
)
def test_rows_out_of_support_follow_the_policy_alone_or_in_a_batch(
    kernel, extrapolation, left, right
):  # scikit-learn#9654
    model = NadarayaWatsonRegressor(1.0, kernel=kernel, extrapolation=extrapolation)
    model.fit(column(0, 1, 2, 3), [0.0, 0.0, 1.0, 1.0])
    queries = column(-2.0, 0.5, 9.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        batch = model.predict(queries)
    assert_array_equal(batch, [left, 0.0, right])
    messages = [str(warning.message) for warning in caught]
    assert len(messages) == (1 if extrapolation == "nan" else 0)
    assert all("2 of 3 queries" in message for message in messages)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        alone = [model.predict(query[np.newaxis])[0] for query in queries]
    assert_array_equal(alone, batch)


def test_timestamps_in_milliseconds_predict_as_small_numbers_do():
    X = column(0, 1000, 2000, 3000, dtype=np.int64) + 1_700_000_000_000
    y = [0.0, 1.0, 4.0, 9.0]
    model = NadarayaWatsonRegressor(1000).fit(X, y)
    predicted = model.predict(column(1500, 250, dtype=np.int64) + 1_700_000_000_000)
    assert_allclose(predicted, [3.0378828427, 0.9296612383], rtol=1e-10)
    small = NadarayaWatsonRegressor(1.0).fit(column(0, 1, 2, 3), y)
    assert_allclose(predicted, small.predict(column(1.5, 0.25)), rtol=1e-14)


def test_float32_keeps_distances_small_beside_the_features():  # scikit-learn#9354
    X = column(10000, 10001, dtype=np.float32)
    model = NadarayaWatsonRegressor(0.5).fit(X, np.array([0, 1], dtype=np.float32))
    predicted = model.predict(X[:1])
    assert predicted.dtype == np.float32
    assert_allclose(predicted, [np.exp(-2.0) / (1.0 + np.exp(-2.0))], rtol=1e-6)


def test_float32_features_whose_squares_overflow():  # scikit-learn#13905
    X = column(1e20, 2e20, dtype=np.float32)
    model = NadarayaWatsonRegressor(1e20).fit(X, np.array([1, 2], dtype=np.float32))
    assert_allclose(model.predict(X[:1]), [1.3775406688], rtol=1e-6)


def test_targets_whose_sum_overflows():
    model = NadarayaWatsonRegressor(1.0).fit(column(-1, 1), [1.5e308, 1.5e308])
    assert_array_equal(model.predict([[0.0]]), [1.5e308])


@pytest.mark.parametrize("unit", [1.45e23, 1.45e-23])
def test_predictions_scale_with_the_unit_of_the_target(noisy_sine, unit):
    X, y = noisy_sine
    model = NadarayaWatsonRegressor(0.0559)
    expected = unit * model.fit(X, y).predict(QUERIES)
    assert_allclose(model.fit(X, unit * y).predict(QUERIES), expected, rtol=1e-12)


@pytest.mark.parametrize("kernel", KERNELS)
def test_query_on_coincident_rows_is_their_mean(kernel):
    model = NadarayaWatsonRegressor(1e-6, kernel=kernel)
    model.fit(column(1, 1, 1, 5), [0.0, 3.0, 6.0, 100.0])
    # Student's tail at 4e6 bandwidths is a weight of 2e-50
    assert_allclose(model.predict([[1.0]]), [3.0], rtol=1e-15)


@pytest.mark.parametrize("one", [1, np.int64(1), np.float32(1), np.array(1.0), [1]])
def test_type_of_the_bandwidth_does_not_matter(noisy_sine, one):
    X, y = noisy_sine
    expected = NadarayaWatsonRegressor(1.0).fit(X, y).predict(QUERIES)
    assert_array_equal(NadarayaWatsonRegressor(one).fit(X, y).predict(QUERIES), expected)


def test_fit_and_predict_leave_global_state_alone(noisy_sine):
    X, y = noisy_sine

    def state():
        generator = np.random.get_state()  # noqa: NPY002
        return [
            np.geterr(),
            np.geterrcall(),
            list(warnings.filters),
            generator[1].tolist(),
            generator[2:],
            sklearn.get_config(),
            threadpool_info(),
        ]

    before = state()
    model = NadarayaWatsonRegressor(1e-3, n_jobs=2).fit(X, y)
    model.predict(np.repeat(QUERIES, 50, axis=0))
    model.predict(None)
    model.attention_weights(QUERIES, top_k=2)
    assert state() == before


# Bandwidth


@pytest.mark.parametrize(
    ("bandwidth", "predicted", "error"),
    [
        (1e-3, [2.0, 2.0, 3.5, 3.0, 5.0], 4.25),
        (1.0, [2.2239945369, 2.3011026941, 3.2490810883, 2.7907589376, 5.0], 4.5063225838),
    ],
)
def test_leave_one_out_works_at_any_bandwidth(bandwidth, predicted, error):
    y = np.array([1.0, 2.0, 3.0, 5.0, 9.0])
    model = NadarayaWatsonRegressor(bandwidth).fit(column(0, 1, 2, 3, 100), y)
    left_out = model.predict(None)
    assert_allclose(left_out, predicted, rtol=1e-10)
    assert_allclose(np.mean((y - left_out) ** 2), error, rtol=1e-10)


@pytest.mark.parametrize("rule", ["scott", "silverman"])
@pytest.mark.parametrize("unit", [0.05, 20.0, 1e-30, 1e30])
def test_rules_of_thumb_follow_the_unit_of_the_features(noisy_sine, rule, unit):
    # scikit-learn#25623
    X, y = noisy_sine
    model = NadarayaWatsonRegressor(rule).fit(X, y)
    other = NadarayaWatsonRegressor(rule).fit(unit * X, y)
    assert_allclose(other.bandwidth_, unit * model.bandwidth_, rtol=1e-12)
    assert_allclose(other.predict(unit * QUERIES), model.predict(QUERIES), rtol=1e-10)


@pytest.mark.parametrize(("rule", "factor"), [("scott", 1.06), ("silverman", 0.9)])
def test_rules_of_thumb_survive_a_zero_interquartile_range(rule, factor):
    # statsmodels#5419
    model = NadarayaWatsonRegressor(rule).fit(column(1, 1, 1, 1, 2), [0.0, 0.0, 0.0, 0.0, 1.0])
    assert_allclose(model.bandwidth_, [factor * 0.2**0.5 * 5**-0.2], rtol=1e-12)
    assert np.isfinite(model.predict(None)).all()


@pytest.mark.parametrize("constant", [1.0, 1.7e9])
@pytest.mark.parametrize("bandwidth", [1.0, np.inf])
def test_constant_feature_changes_nothing(noisy_sine, constant, bandwidth):
    X, y = noisy_sine
    alone = NadarayaWatsonRegressor(0.1).fit(X, y)
    both = NadarayaWatsonRegressor([0.1, bandwidth])
    both.fit(np.column_stack([X, np.full(40, constant)]), y)
    assert_allclose(both.predict(None), alone.predict(None), rtol=1e-12)
    for value in (constant, 2.0):
        queries = np.column_stack([QUERIES, np.full(len(QUERIES), value)])
        assert_allclose(both.predict(queries), alone.predict(QUERIES), rtol=1e-12)


@pytest.mark.parametrize("rule", ["scott", "silverman"])
@pytest.mark.parametrize("constant", [1.0, 1.7e9])
def test_rules_of_thumb_smooth_a_constant_feature_out(noisy_sine, rule, constant):
    # KDEpy#9
    X, y = noisy_sine
    both = NadarayaWatsonRegressor(rule).fit(np.column_stack([X, np.full(40, constant)]), y)
    assert 0.0 < both.bandwidth_[0] < np.inf
    assert both.bandwidth_[1] == np.inf
    alone = NadarayaWatsonRegressor(both.bandwidth_[0]).fit(X, y)
    for value in (constant, 2.0):
        queries = np.column_stack([QUERIES, np.full(len(QUERIES), value)])
        assert_allclose(both.predict(queries), alone.predict(QUERIES), rtol=1e-12)


@pytest.mark.parametrize("algorithm", ["auto", "dense"])
@pytest.mark.parametrize("kernel", ["gaussian", "epanechnikov"])
def test_given_bandwidth_is_used_unchanged(algorithm, kernel):  # statsmodels#597
    rng = np.random.default_rng(0)
    X, y = rng.random((30, 2)), rng.random(30)
    given = [0.23, 434697.22]
    model = NadarayaWatsonRegressor(given, kernel=kernel, algorithm=algorithm).fit(X, y)
    assert_array_equal(model.bandwidth_, [0.23, 434697.22])
    assert given == [0.23, 434697.22]


def test_infinite_bandwidth_is_the_weighted_mean(noisy_sine):
    X, y = noisy_sine
    weights = np.random.default_rng(0).random(40)
    model = NadarayaWatsonRegressor(np.inf).fit(X, y, sample_weight=weights)
    expected = np.full(len(QUERIES), np.average(y, weights=weights))
    assert_allclose(model.predict(QUERIES), expected, rtol=1e-13)
    assert_allclose(model.effective_dof_, 1.0, rtol=1e-13)


def test_per_feature_bandwidth_scales_features_not_rows():  # astroML#91
    X, y = np.array([[0.0, 0.0], [10.0, 0.1], [20.0, 0.05]]), [1.0, 2.0, 3.0]
    bandwidth, query = np.array([10.0, 0.1]), np.array([[5.0, 0.02]])
    predicted = NadarayaWatsonRegressor(bandwidth).fit(X, y).predict(query)
    assert_allclose(predicted, [1.6946089495], rtol=1e-10)
    scaled = NadarayaWatsonRegressor(1.0).fit(X / bandwidth, y).predict(query / bandwidth)
    assert_allclose(predicted, scaled, rtol=1e-14)
    with pytest.raises(ValueError, match=r"shape \(3,\) for n_features=2"):
        NadarayaWatsonRegressor([10.0, 0.1, 1.0]).fit(X, y)  # as many as rows


# Sample weights


def test_whole_weights_are_repetitions_of_rows():
    X, y, weights = column(0, 1, 2), np.array([0.0, 1.0, 5.0]), np.array([2, 1, 3])
    model = NadarayaWatsonRegressor(1.0).fit(X, y, sample_weight=weights)
    repeated = NadarayaWatsonRegressor(1.0).fit(np.repeat(X, weights, axis=0), y.repeat(weights))
    assert_allclose(model.predict([[0.3]]), [1.2695398997], rtol=1e-10)
    assert_allclose(repeated.predict([[0.3]]), [1.2695398997], rtol=1e-10)
    left_out = [1.3100681135, 3.0, 3.6864055816]  # without one unit of the row
    assert_allclose(model.predict(None), left_out, rtol=1e-10)
    assert_allclose(repeated.predict(None), np.repeat(left_out, weights), rtol=1e-10)
    assert_allclose(model.effective_dof_, repeated.effective_dof_, rtol=1e-13)


def test_other_weights_are_importances_left_out_whole():
    X, y = column(0, 1, 2), [0.0, 1.0, 5.0]
    for unit in (0.5, 1e-3, 1e-300):
        weights = unit * np.array([2.0, 1.0, 3.0])
        model = NadarayaWatsonRegressor(1.0).fit(X, y, sample_weight=weights)
        assert_allclose(model.predict([[0.3]]), [1.2695398997], rtol=1e-9)
        assert_allclose(model.predict(None), [2.6039158921, 3.0, 0.691438454], rtol=1e-9)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0.0, 0.0, 0.0], r"sample_weight must be .* not all zero; got zeros only"),
        ([1.0, -1.0, 1.0], r"sample_weight must be finite .* none negative .*; got -1.0"),
        ([1.0, np.nan, 1.0], r"sample_weight must be finite .*; got nan"),
        ([1.0, np.inf, 1.0], r"sample_weight must be finite .*; got inf"),
        (["a", "b", "c"], r"sample_weight must be finite numbers.*; got list: .*'a'"),
        ([1.0, 1.0], r"sample_weight.shape == \(2,\), expected \(3,\)"),
    ],
)
def test_impossible_sample_weights_are_refused(weights, message):  # scikit-learn#32277
    with pytest.raises(ValueError, match=message):
        NadarayaWatsonRegressor().fit(column(0, 1, 2), [0.0, 1.0, 5.0], sample_weight=weights)


def test_scalar_sample_weight_is_uniform(noisy_sine):
    X, y = noisy_sine
    expected = NadarayaWatsonRegressor(0.1).fit(X, y)
    model = NadarayaWatsonRegressor(0.1).fit(X, y, sample_weight=2.0)
    assert_allclose(model.predict(QUERIES), expected.predict(QUERIES), rtol=1e-14)


def test_score_is_weighted(noisy_sine):
    X, y = noisy_sine
    weights = np.random.default_rng(0).random(40)
    model = NadarayaWatsonRegressor(0.1).fit(X, y, sample_weight=weights)
    expected = r2_score(y, model.predict(X), sample_weight=weights)
    assert model.score(X, y, sample_weight=weights) == expected
    assert model.score(X, y) != expected


def test_vanishing_weights_leave_the_other_rows_alone(noisy_sine):
    X, y = noisy_sine
    y[20:] = np.random.default_rng(0).standard_normal(20)
    weights = np.where(np.arange(40) < 20, 1.0, 1e-12)
    model = NadarayaWatsonRegressor(0.05).fit(X, y, sample_weight=weights)
    alone = NadarayaWatsonRegressor(0.05).fit(X[:20], y[:20])
    assert_allclose(model.predict(X[:15]), alone.predict(X[:15]), atol=1e-9)
    assert_allclose(model.predict(None)[:15], alone.predict(None)[:15], atol=1e-9)


# Input


@pytest.mark.parametrize("index", ["permuted", "duplicated", "datetime"])
def test_pandas_rows_are_taken_by_position(noisy_sine, index):  # MAPIE#150
    pd = pytest.importorskip("pandas")
    X, y = noisy_sine
    index = {
        "permuted": np.random.default_rng(0).permutation(40),
        "duplicated": np.zeros(40, dtype=int),
        "datetime": pd.date_range("2024-01-01", periods=40)[::-1],
    }[index]
    weights = np.random.default_rng(1).random(40)
    model = NadarayaWatsonRegressor(0.1).fit(
        pd.DataFrame(X, columns=["time"], index=index),
        pd.Series(y, index=np.random.default_rng(2).permutation(40)),
        sample_weight=pd.Series(weights, index=np.arange(40)[::-1]),
    )
    expected = NadarayaWatsonRegressor(0.1).fit(X, y, sample_weight=weights)
    queries = pd.DataFrame(QUERIES, columns=["time"], index=np.full(len(QUERIES), 3))
    assert_array_equal(model.predict(queries), expected.predict(QUERIES))
    assert_array_equal(model.predict(None), expected.predict(None))
    assert_array_equal(model.attention_weights(queries), expected.attention_weights(QUERIES))
    assert model.n_features_in_ == 1
    assert_array_equal(model.feature_names_in_, np.array(["time"], dtype=object))


def test_wrong_shapes_are_refused_with_a_hint(noisy_sine):  # statsmodels#8620
    X, y = noisy_sine
    model = NadarayaWatsonRegressor(0.1)
    with pytest.raises(ValueError, match=r"(?s)Expected 2D array, got 1D.*reshape\(-1, 1\)"):
        model.fit(X[:, 0], y)
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples: \[1, 40\]"):
        model.fit(X.T, y)
    with pytest.raises(ValueError, match=r"(?s)Expected 2D array, got 1D.*reshape\(-1, 1\)"):
        model.fit(y, X)  # swapped
    model.fit(X, y)
    with pytest.raises(ValueError, match=r"(?s)Expected 2D array, got 1D.*reshape\(-1, 1\)"):
        model.predict(X[:, 0])


@pytest.mark.parametrize("kind", ["category", "category of numbers", "str", "object"])
def test_label_columns_of_pandas_are_refused_by_name(kind):  # scikit-learn#5884
    pd = pytest.importorskip("pandas")
    labels = {
        "category": pd.Categorical(["a", "b", "c"]),
        "category of numbers": pd.Categorical([1, 2, 4]),
        "str": pd.Series(["a", "b", "c"], dtype="str"),
        "object": np.array(["a", "b", "c"], dtype=object),
    }[kind]
    X = pd.DataFrame({"size": [1.0, 2.0, 3.0], "colour": labels})
    with pytest.raises(ValueError, match="not numeric: 'colour'") as error:
        NadarayaWatsonRegressor(1.0).fit(X, [0.0, 1.0, 2.0])
    assert "OneHotEncoder" in str(error.value)


@pytest.mark.parametrize("kind", ["Categorical", "Enum", "String"])
def test_label_columns_of_polars_are_refused_by_name(kind):
    pl = pytest.importorskip("polars")
    dtype = {"Categorical": pl.Categorical, "Enum": pl.Enum(["a", "b"]), "String": pl.String}[kind]
    X = pl.DataFrame({"size": [1.0, 2.0], "colour": pl.Series(["a", "b"], dtype=dtype)})
    with pytest.raises(ValueError, match="not numeric: 'colour'") as error:
        NadarayaWatsonRegressor(1.0).fit(X, [0.0, 1.0])
    assert "OneHotEncoder" in str(error.value)


# scikit-learn


def test_constructor_stores_parameters_and_nothing_else():
    bandwidth, kernel = np.array([0.1, 0.2]), np.negative
    parameters = {
        "bandwidth": bandwidth,
        "kernel": kernel,
        "degree": 1,
        "anisotropic": False,
        "adaptive": "key",
        "n_neighbors": 3,
        "max_queries": 10,
        "extrapolation": "nan",
        "algorithm": "dense",
        "n_jobs": 2,
    }
    model = NadarayaWatsonRegressor(**parameters)
    assert set(vars(model)) == set(parameters)
    assert all(vars(model)[name] is value for name, value in parameters.items())
    assert not any(hasattr(model, name) for name in ("bandwidth_", "effective_dof_"))


def test_default_parameters_are_immutable_and_round_trip():
    signature = inspect.signature(NadarayaWatsonRegressor)
    for parameter in signature.parameters.values():
        assert isinstance(parameter.default, str | int | float | None)
    model = NadarayaWatsonRegressor(0.3, kernel="tricube", extrapolation="raise", n_jobs=2)
    assert clone(model).get_params() == model.get_params()
    assert NadarayaWatsonRegressor().set_params(**model.get_params()).get_params() == (
        model.get_params()
    )


def test_tags_tell_what_is_accepted():
    tags = get_tags(NadarayaWatsonRegressor())
    assert tags.estimator_type == "regressor"
    assert tags.target_tags.required
    assert tags.target_tags.multi_output
    assert not tags.input_tags.sparse
    assert not tags.input_tags.allow_nan
    assert not tags.non_deterministic


@pytest.mark.parametrize("backend", ["threading", pytest.param("loky", marks=pytest.mark.slow)])
def test_cross_validation_in_parallel_gives_the_same_scores(noisy_sine, backend):
    # joblib/loky#248
    X, y = noisy_sine
    model = NadarayaWatsonRegressor(0.1, n_jobs=2).fit(X, y)
    model.predict(X)
    folds = KFold(4, shuffle=True, random_state=0)
    expected = cross_val_score(model, X, y, cv=folds, n_jobs=1)
    with joblib.parallel_config(backend=backend):
        scores = cross_val_score(model, X, y, cv=folds, n_jobs=2)
    assert_array_equal(scores, expected)


# Attention weights


def test_attention_weights_are_public_and_explain_the_prediction():  # pytorch#119811
    y = np.array([3.0, -1.0, 7.0])
    model = NadarayaWatsonRegressor(1.0).fit(column(0, 1, 2), y)
    weights = model.attention_weights([[0.0]])
    assert_allclose(weights, [[0.5740969930, 0.3482074279, 0.0776955791]], rtol=1e-9)
    assert_allclose(weights.sum(axis=1), 1.0, rtol=1e-12)
    assert_allclose(weights @ y, model.predict([[0.0]]), rtol=1e-12)
    assert_allclose(model.effective_neighbors([[0.0]]), [2.1887950743], rtol=1e-9)
    assert_allclose(-(weights * np.log(weights)).sum(), 0.8844517919, rtol=1e-9)


# Local lines and inference


@pytest.fixture(params=CONFIGURATIONS)
def configuration(request):
    return CONFIGURATIONS[request.param]


@pytest.mark.parametrize("degree", [0, 1])
def test_local_lines_far_away_are_no_zero(degree):  # Loess.jl#28
    x = np.linspace(0.0, 1.0, 30)
    y = np.sin(6.0 * x) + 5.0
    model = NadarayaWatsonRegressor(0.05, degree=degree).fit(x[:, np.newaxis], y)
    # 40 bandwidths away the last two rows weigh 1 and e^-28: the last one's target
    far = model.predict(column(3.0, 30.0, 1e9))
    assert_allclose(far[1:], y[-1], rtol=1e-9)
    if degree == 0:
        assert_allclose(far[0], y[-1], rtol=1e-9)


def test_local_lines_use_differences_of_timestamps():
    X = column(0, 1000, 2000, 3000, 4000, dtype=np.int64) + 1_700_000_000_000
    y = [0.0, 1.0, 4.0, 9.0, 16.0]
    queries = column(1500, 250, dtype=np.int64) + 1_700_000_000_000
    for parameters in CONFIGURATIONS.values():
        parameters = parameters | ({"n_neighbors": 3} if "adaptive" in parameters else {})
        small = NadarayaWatsonRegressor(1.0, **parameters).fit(column(0, 1, 2, 3, 4), y)
        model = NadarayaWatsonRegressor(1000, **parameters).fit(X, y)
        found, expected = inferred(model, queries), inferred(small, column(1.5, 0.25))
        expected["gradient"] = expected["gradient"] / 1000.0
        for name, result in found.items():
            assert_allclose(result, expected[name], rtol=1e-9, err_msg=name)


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_huge_targets_have_finite_lines_errors_and_intervals(noisy_sine, configuration, n_outputs):
    X, y = noisy_sine
    y = y / np.abs(y).max()
    unit = 2.0**1022
    pick = slice(None) if n_outputs == 2 else 0
    huge, plain = (np.column_stack([scale * y, y])[:, pick] for scale in (unit, 1.0))
    scale = np.array([unit, 1.0])[pick]
    model = NadarayaWatsonRegressor(0.1, **configuration).fit(X, huge)
    small = NadarayaWatsonRegressor(0.1, **configuration).fit(X, plain)
    found, expected = inferred(model, QUERIES[10:31:5]), inferred(small, QUERIES[10:31:5])
    for name, result in found.items():
        assert np.isfinite(result).all(), name
        within = np.abs(expected[name]) < 3.0  # times 2**1022 is a number
        assert within.mean() > 0.3
        assert_allclose(
            (result / scale)[within], expected[name][within], rtol=1e-9, atol=1e-9, err_msg=name
        )


def test_errors_too_large_for_a_number_are_finite_as_predictions_are(noisy_sine, configuration):
    # residuals of up to 3.4e308: predictions and intervals end at the largest number
    X, _ = noisy_sine
    y = np.where(np.arange(40) % 2, 1.7e308, -1.7e308)
    with np.errstate(invalid="ignore"):  # scikit-learn sums them up
        model = NadarayaWatsonRegressor(0.1, **configuration).fit(X, y)
    for name, result in inferred(model, column(0.3, 5.0, 1e5)).items():
        assert np.isfinite(result).all(), name


def test_generalised_cross_validation_counts_the_trace_once():  # scikit-fda
    X, y = np.arange(8.0)[:, np.newaxis], [0.0, 1.2, 1.9, 3.2, 3.8, 5.1, 6.2, 6.9]
    expected = {0: (0.5825549736, 0.7302557389), 1: (0.0599431393, 0.0678395852)}
    for degree, (gcv, loo) in expected.items():
        model = NadarayaWatsonRegressor(1.5, degree=degree).fit(X, y)
        assert_allclose(model.criterion_curve([1.5], "gcv"), [gcv], rtol=1e-9)
        assert_allclose(model.criterion_curve([1.5], "loo"), [loo], rtol=1e-9)
        residuals = y - model.predict(X)
        by_hand = np.mean(residuals**2) / (1.0 - model.effective_dof_ / 8.0) ** 2
        assert_allclose(by_hand, gcv, rtol=1e-9)
        assert_allclose(np.mean((y - model.predict(None)) ** 2), loo, rtol=1e-9)


@pytest.mark.parametrize("bandwidth", [0.07, "loo"])
@pytest.mark.parametrize("constant", [3.0, 0.1, -1e300, 0.0])
def test_constant_targets_have_no_uncertainty(noisy_sine, configuration, bandwidth, constant):
    # scikit-learn#18318
    X, _ = noisy_sine
    queries = np.vstack([QUERIES, column(1e6)])
    for weights in (None, np.random.default_rng(0).random(40)):
        model = NadarayaWatsonRegressor(bandwidth, **configuration)
        model.fit(X, np.full(40, constant), sample_weight=weights)
        results = inferred(model, queries)
        for name in ("std", "local std", "gradient"):
            assert_array_equal(results.pop(name), 0.0, err_msg=name)
        for name, result in results.items():
            assert_array_equal(result, constant, err_msg=name)
        assert_array_equal(model.explain(queries, 2).predictions, constant)


def test_pipelines_hand_standard_errors_and_transforms_on(noisy_sine, configuration):
    # scikit-learn#24638
    X, y = noisy_sine
    y = np.exp(y)
    pipeline = make_pipeline(StandardScaler(), NadarayaWatsonRegressor(0.3, **configuration))
    mean, std = pipeline.fit(X, y).predict(QUERIES, return_std=True)
    direct = NadarayaWatsonRegressor(0.3 * X.std(), **configuration).fit(X, y)
    expected = direct.predict(QUERIES, return_std=True)
    assert_allclose(mean, expected[0], rtol=1e-8)
    assert_allclose(std, expected[1], rtol=1e-8)
    model = TransformedTargetRegressor(
        NadarayaWatsonRegressor(0.1, **configuration), func=np.log, inverse_func=np.exp
    )
    logs = NadarayaWatsonRegressor(0.1, **configuration).fit(X, np.log(y))
    assert_allclose(model.fit(X, y).predict(QUERIES), np.exp(logs.predict(QUERIES)), rtol=1e-12)
    # intervals on the scale of the targets: those of the transformed ones, transformed back
    inner = model.regressor_.predict_interval(QUERIES, 0.8)
    assert_array_equal(inner, logs.predict_interval(QUERIES, 0.8))


def test_quantiles_of_negative_targets_are_those_of_the_other_levels(noisy_sine):
    X, y = noisy_sine
    for parameters in ({}, {"adaptive": "query", "n_neighbors": 5}):
        model = NadarayaWatsonRegressor(0.1, **parameters)
        down = model.fit(X, -y).predict_quantiles(QUERIES, [0.13, 0.87])
        # the upper inverse differs from the lower one only where a level is reached exactly
        assert_array_equal(-down[:, ::-1], model.fit(X, y).predict_quantiles(QUERIES, [0.13, 0.87]))


def test_quantiles_invert_the_distribution_of_the_weights():  # quantile-forest#62
    model = NadarayaWatsonRegressor(np.inf).fit(
        np.zeros((4, 1)), [4.0, 1.0, 3.0, 2.0], sample_weight=[0.4, 0.1, 0.3, 0.2]
    )
    levels = [0.05, 0.1, 0.3, 0.5, 0.95]
    assert_array_equal(model.predict_quantiles([[7.0]], levels), [[1.0, 1.0, 2.0, 3.0, 4.0]])
    model = NadarayaWatsonRegressor(1.0).fit(column(-1, 0, 1, 2), [3.0, 1.0, 4.0, 2.0])
    weights = [[0.2582743728, 0.4258224522, 0.2582743728, 0.0576288022]]
    assert_allclose(model.attention_weights([[0.0]]), weights, rtol=1e-9)
    assert_array_equal(model.predict_quantiles([[0.0]], 0.5), [[3.0]])
    edges = np.array([0.4258224522, 0.4834512543, 0.7417256272, 1.0])
    below, above = edges - 1e-9, np.minimum(edges + 1e-9, 1.0)
    assert_array_equal(model.predict_quantiles([[0.0]], below), [[1.0, 2.0, 3.0, 4.0]])
    assert_array_equal(model.predict_quantiles([[0.0]], above), [[2.0, 3.0, 4.0, 4.0]])


# Scale


def _peak_megabytes(function):
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("parameters", [{}, {"degree": 1}, {"adaptive": "key", "n_neighbors": 50}])
def test_standard_errors_take_no_matrix_of_all_rows(parameters):  # R's predict.loess
    # a matrix of all rows would take 72 MB, and 20 GB for 50 000
    rng = np.random.default_rng(0)
    X = np.sort(rng.random((3000, 1)), axis=0)
    y = np.sin(6.0 * X[:, 0]) + 0.3 * rng.standard_normal(3000)
    model = NadarayaWatsonRegressor(0.02, **parameters).fit(X, y)
    queries, results = X[::30], []
    peak = _peak_megabytes(lambda: results.append(model.predict(queries, return_std=True)))
    assert peak < 18.0
    std = results[0][1]
    neighbors = model.effective_neighbors(queries[10:-10])
    if not parameters.get("degree"):
        assert_allclose(std[10:-10], 0.3 / np.sqrt(neighbors), rtol=0.05)
    assert_allclose(np.median(std), 0.3 / np.sqrt(np.median(neighbors)), rtol=0.1)


@pytest.mark.slow
@pytest.mark.parametrize("top_k", [None, 5])
def test_ten_thousand_rows_and_queries_take_less_than_half_a_gigabyte(top_k):
    # scikit-learn#20135: the full weights take 800 MB
    rng = np.random.default_rng(0)
    X = rng.standard_normal((10_000, 5))
    model = NadarayaWatsonRegressor(0.5, n_jobs=2).fit(X, X[:, 0])
    queries = rng.standard_normal((10_000, 5))

    def call():
        return model.predict(queries) if top_k is None else model.attention_weights(queries, top_k)

    assert _peak_megabytes(call) < 500.0


# Installation


@pytest.mark.slow
def test_optional_packages_are_neither_imported_nor_needed():  # getkeops/keops#43
    optional = ["torch", "matplotlib", "pandas", "polars", "numba", "finufft", "dask", "pykeops"]
    # scikit-learn itself imports pandas where there is one
    program = f"""
import sys
import sklearn.base
before = set(sys.modules)
import skattn
assert not set({optional}) & (set(sys.modules) - before)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
    program = f"""
import sys
class Missing:
    def find_spec(self, name, path, target=None):
        if name in {optional}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Missing())
from skattn import NadarayaWatsonRegressor
model = NadarayaWatsonRegressor(0.1).fit([[0.0], [1.0], [2.0]], [10.0, 20.0, 30.0])
assert model.predict([[0.5]]) == [15.0]
"""
    subprocess.run([sys.executable, "-c", program], check=True)
