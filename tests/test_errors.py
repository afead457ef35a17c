"""Errors and policies: what is refused, with which words, and what works although it is odd."""

import re
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from numpy.testing import assert_allclose, assert_array_equal
from sklearn.exceptions import NotFittedError

from skattn import NadarayaWatsonRegressor
from skattn.kernels import KERNELS

X = np.arange(4.0)[:, np.newaxis]
Y = np.array([0.0, 1.0, 4.0, 9.0])
COMPACT = sorted(name for name, kernel in KERNELS.items() if np.isfinite(kernel.support))


def cut_at_one(squared):
    return np.where(squared <= 1.0, 0.0, -np.inf)


def assert_refused(call, *words, error=ValueError):
    """The call raises, and its message contains all of the words."""
    with pytest.raises(error) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


# Parameters


@pytest.mark.parametrize(
    ("bandwidth", "received"),
    [
        (True, "got True of type bool"),
        ([True], "got [True] of type bool"),
        ([0.0], "got [0.0]"),
        ([-0.1], "got [-0.1]"),
        ([np.nan], "got [nan]"),
        ([None], "got [None]"),
        (["a"], "got ['a']"),
        (["0.5"], "got ['0.5']"),
        ([1j], "got [1j]"),
        ([0.1, 0.2], "shape (2,) for n_features=1"),
        ([], "shape (0,) for n_features=1"),
        ([[0.1]], "shape (1, 1) for n_features=1"),
        ([0.1, [0.2]], "got [0.1, [0.2]]"),
    ],
    ids=repr,
)
def test_array_that_is_no_bandwidth_is_refused(bandwidth, received):
    rule = "bandwidth must be one positive number, or one for each feature"
    remedy = "inf smooths a feature out"
    model = NadarayaWatsonRegressor(bandwidth)
    assert_refused(lambda: model.fit(X, Y), rule, remedy, received)


@pytest.mark.parametrize(
    "bandwidth", [0.0, -1, np.nan, -np.inf, 1j, None, "scot", "loo "], ids=repr
)
def test_bandwidth_out_of_range_is_refused(bandwidth):
    model = NadarayaWatsonRegressor(bandwidth)
    rule = (
        "'bandwidth' parameter of NadarayaWatsonRegressor must be a float in the range (0.0, inf]"
    )
    assert_refused(
        lambda: model.fit(X, Y), rule, "array-like", "'scott'", "'silverman'", f"Got {bandwidth!r}"
    )


@pytest.mark.parametrize("bandwidth", [np.inf, [np.inf, np.inf], 1e308, [1e-308, np.inf]])
def test_extreme_bandwidths_are_limits(bandwidth):
    rows = np.column_stack([X, X[::-1]])
    predicted = NadarayaWatsonRegressor(bandwidth).fit(rows, Y).predict(rows)
    expected = Y if np.min(bandwidth) < 1.0 else np.full(4, Y.mean())
    assert_allclose(predicted, expected, rtol=1e-15)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("kernel", "box", [*KERNELS, "callable"]),
        ("kernel", None, [*KERNELS, "callable"]),
        ("kernel", 2, [*KERNELS, "callable"]),
        ("extrapolation", "linear", ["nearest", "nan", "raise"]),
        ("extrapolation", None, ["nearest", "nan", "raise"]),
        ("algorithm", "ball_tree", ["auto", "dense"]),
        ("n_jobs", "all", ["int", "None"]),
        ("n_jobs", 1.5, ["int", "None"]),
    ],
)
def test_parameter_out_of_range_is_refused_with_what_is_allowed(name, value, allowed):
    model = NadarayaWatsonRegressor(1.0).set_params(**{name: value})
    rule = f"The '{name}' parameter of NadarayaWatsonRegressor must be"
    assert_refused(lambda: model.fit(X, Y), rule, f"Got {value!r}", *allowed)


def test_only_the_bandwidth_is_positional():
    assert_refused(lambda: NadarayaWatsonRegressor(1.0, "uniform"), "positional", error=TypeError)


def test_unknown_parameter_is_refused():
    assert_refused(lambda: NadarayaWatsonRegressor(h=1.0), "'h'", error=TypeError)
    assert_refused(lambda: NadarayaWatsonRegressor().set_params(h=1.0), "'h'", "bandwidth")


METHODS = ["predict", "attention_weights", "effective_neighbors", "leverage"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("kernel", "words"),
    [
        (lambda squared: squared[0], ["an array of shape (4,)", "same shape"]),
        (lambda squared: 0.0, ["an array of shape ()", "same shape"]),
        (lambda squared: squared[..., np.newaxis], ["an array of shape", "4, 1)", "same shape"]),
        (lambda squared: np.where(squared < 2.0, 0.0, np.nan), ["NaN or +inf", "or -inf for no"]),
        (lambda squared: np.where(squared == 0.0, np.inf, 0.0), ["NaN or +inf", "or -inf for no"]),
    ],
    ids=["row", "scalar", "extra axis", "NaN", "+inf"],
)
def test_callable_kernel_that_returns_no_log_weights_is_refused(method, kernel, words):
    model = NadarayaWatsonRegressor(1.0, kernel=kernel).fit(X, Y)
    call = getattr(model, method)
    arguments = () if method == "leverage" else (X,)
    assert_refused(lambda: call(*arguments), f"kernel={kernel!r} returned", *words)


# Data


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
@pytest.mark.parametrize("n_outputs", [None, 2])
def test_targets_that_are_not_finite_are_refused(value, n_outputs):
    y = Y.copy() if n_outputs is None else np.column_stack([Y, Y])
    y[(2,) if n_outputs is None else (2, 1)] = value
    problem = "NaN" if np.isnan(value) else "infinity"
    assert_refused(lambda: NadarayaWatsonRegressor(1.0).fit(X, y), "Input y contains", problem)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf], ids=str)
def test_features_that_are_not_finite_are_refused(value):
    bad = np.where(X == 2.0, value, X)
    problem = "NaN" if np.isnan(value) else "infinity"
    assert_refused(lambda: NadarayaWatsonRegressor(1.0).fit(bad, Y), "Input X contains", problem)
    model = NadarayaWatsonRegressor(1.0).fit(X, Y)
    for method in (model.predict, model.attention_weights, model.effective_neighbors):
        assert_refused(lambda method=method: method(bad), "Input X contains", problem)


@pytest.mark.parametrize("convert", [sp.csr_array, sp.csc_array, sp.coo_array, sp.csr_matrix])
def test_sparse_features_are_refused_with_the_remedy(convert):
    model = NadarayaWatsonRegressor(1.0)
    words = ["Sparse data was passed", "dense data is required", ".toarray()"]
    assert_refused(lambda: model.fit(convert(X), Y), *words, error=TypeError)
    model.fit(X, Y)
    assert_refused(lambda: model.predict(convert(X)), *words, error=TypeError)


@pytest.mark.parametrize("where", ["X", "y", "queries"])
def test_complex_numbers_are_refused(where):
    model = NadarayaWatsonRegressor(1.0)
    calls = {
        "X": lambda: model.fit(1j * X, Y),
        "y": lambda: model.fit(X, 1j * Y),
        "queries": lambda: model.fit(X, Y).predict(1j * X),
    }
    assert_refused(calls[where], "Complex data not supported")


@pytest.mark.parametrize("where", ["X", "y of objects", "queries"])
def test_text_is_refused(where):
    model = NadarayaWatsonRegressor(1.0)
    text = ["a", "b", "c", "d"]
    calls = {
        "X": lambda: model.fit(np.array(text)[:, np.newaxis], Y),
        "y of objects": lambda: model.fit(X, np.array([0.0, 1.0, 2.0, "d"], dtype=object)),
        "queries": lambda: model.fit(X, Y).predict([["a"]]),
    }
    assert_refused(
        calls[where], "could not convert string to float", "d'" if "of" in where else "a'"
    )


def test_targets_missing_or_of_another_length_are_refused():
    model = NadarayaWatsonRegressor(1.0)
    assert_refused(lambda: model.fit(X, None), "requires y to be passed")
    assert_refused(lambda: model.fit(X, Y[:3]), "inconsistent numbers of samples: [4, 3]")
    assert_refused(lambda: model.fit(X, Y[:, np.newaxis, np.newaxis]), "dim 3")


def test_no_rows_or_no_features_are_refused():
    model = NadarayaWatsonRegressor(1.0)
    assert_refused(lambda: model.fit(X[:0], Y[:0]), "0 sample(s)", "minimum of 1")
    assert_refused(lambda: model.fit(X[:, :0], Y), "0 feature(s)", "minimum of 1")
    model.fit(X, Y)
    assert_refused(lambda: model.predict(X[:0]), "0 sample(s)", "minimum of 1")


@pytest.mark.parametrize("weight", [np.nan, np.inf, -1.0, 0.0], ids=str)
def test_impossible_scalar_sample_weight_is_refused(weight):
    with pytest.raises(ValueError, match=r"(?i)sample.weight"):
        NadarayaWatsonRegressor(1.0).fit(X, Y, sample_weight=weight)


def test_sample_weight_of_two_dimensions_is_refused():
    with pytest.raises(ValueError, match="Sample weights must be 1D"):
        NadarayaWatsonRegressor(1.0).fit(X, Y, sample_weight=np.ones((4, 1)))


# State


@pytest.mark.parametrize("method", ["predict", "attention_weights", "effective_neighbors"])
@pytest.mark.parametrize("queries", [X, None], ids=["queries", "leave-one-out"])
def test_not_fitted(method, queries):
    call = getattr(NadarayaWatsonRegressor(), method)
    assert_refused(lambda: call(queries), "not fitted yet", "'fit'", error=NotFittedError)


def test_not_fitted_without_queries():
    model = NadarayaWatsonRegressor()
    assert_refused(model.leverage, "not fitted yet", error=NotFittedError)
    assert_refused(lambda: model.effective_dof_, "not fitted yet", error=NotFittedError)
    assert_refused(lambda: model.score(X, Y), "not fitted yet", error=NotFittedError)


@pytest.mark.parametrize("method", ["predict", "attention_weights", "effective_neighbors"])
def test_another_number_of_features_is_refused(method):
    call = getattr(NadarayaWatsonRegressor(1.0).fit(X, Y), method)
    words = ["X has 2 features", "NadarayaWatsonRegressor is expecting 1 features"]
    assert_refused(lambda: call(np.hstack([X, X])), *words)


@pytest.mark.parametrize("method", ["predict", "attention_weights", "effective_neighbors"])
def test_other_column_names_are_refused(method):
    pd = pytest.importorskip("pandas")
    model = NadarayaWatsonRegressor(1.0).fit(pd.DataFrame(X, columns=["a"]), Y)
    call = getattr(model, method)
    words = ["feature names should match", "unseen at fit time:\n- b", "now missing:\n- a"]
    assert_refused(lambda: call(pd.DataFrame(X, columns=["b"])), *words)


def test_names_given_to_only_one_of_fit_and_predict_are_a_warning():
    pd = pytest.importorskip("pandas")
    named = pd.DataFrame(X, columns=["a"])
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        NadarayaWatsonRegressor(1.0).fit(named, Y).predict(X)
    with pytest.warns(UserWarning, match="X has feature names"):
        NadarayaWatsonRegressor(1.0).fit(X, Y).predict(named)


@pytest.mark.parametrize("rows", [X, X[:, [0, 0]]], ids=["same width", "other width"])
def test_interrupted_fit_leaves_the_estimator_as_it_was(rows, monkeypatch):
    model = NadarayaWatsonRegressor(1.0).fit(X, Y)
    before = model.predict(X)

    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("skattn.geometry.Table.canonical", interrupt)
    with pytest.raises(KeyboardInterrupt):
        model.fit(rows, -Y)
    assert model.n_features_in_ == 1
    assert_array_equal(model.predict(X), before)


# Odd data that works


@pytest.mark.parametrize("kernel", KERNELS)
def test_one_row_is_predicted_everywhere(kernel):
    model = NadarayaWatsonRegressor(0.5, kernel=kernel).fit([[1.0]], [2.0])
    assert_array_equal(model.predict([[1.0], [1.2], [5.0], [-1e9]]), 2.0)
    assert_array_equal(model.attention_weights([[1.2], [5.0]]), 1.0)
    assert_array_equal(model.effective_neighbors([[1.2], [5.0]]), 1.0)
    assert_array_equal(model.leverage(), [1.0])
    assert model.effective_dof_ == 1.0


@pytest.mark.parametrize("rule", ["scott", "silverman"])
def test_one_row_has_no_spread_and_smooths_its_features_out(rule):
    model = NadarayaWatsonRegressor(rule).fit([[1.0, 7.0]], [2.0])
    assert_array_equal(model.bandwidth_, [np.inf, np.inf])
    assert_array_equal(model.predict([[1.0, 7.0], [-30.0, 1e9]]), 2.0)


@pytest.mark.parametrize("method", ["predict", "attention_weights", "effective_neighbors"])
@pytest.mark.parametrize("weights", [None, [1, 0, 0, 0], [0.5, 0.0, 0.0, 0.0]], ids=str)
def test_one_row_has_no_leave_one_out_prediction(method, weights):
    n = 1 if weights is None else 4
    model = NadarayaWatsonRegressor(0.5).fit(X[:n], Y[:n], sample_weight=weights)
    assert_refused(
        lambda: getattr(model, method)(None),
        "Leave-one-out predictions need a training row that is not left out",
        f"1 of {n} rows leave none",
        "n_samples=1",
        "Fit on more",
    )


def test_one_row_of_weight_two_is_left_out_once():
    model = NadarayaWatsonRegressor(0.5).fit([[1.0]], [2.0], sample_weight=[2])
    assert_array_equal(model.predict(None), [2.0])


def test_importances_on_a_single_place_have_no_leave_one_out_prediction():
    model = NadarayaWatsonRegressor(0.5)
    model.fit([[1.0], [1.0]], [2.0, 3.0], sample_weight=[0.5, 0.7])
    assert_allclose(model.predict([[1.0]]), [(1.0 + 2.1) / 1.2], rtol=1e-15)
    words = ["2 of 2 rows leave none", "n_samples=2", "more distinct rows"]
    assert_refused(lambda: model.predict(None), *words)


def test_repeated_rows_are_averaged():
    model = NadarayaWatsonRegressor("scott").fit([[1.0]] * 3 + [[2.0]], [0.0, 3.0, 6.0, 100.0])
    assert np.isfinite(model.bandwidth_).all()
    narrow = NadarayaWatsonRegressor(1e-3).fit([[1.0]] * 3 + [[2.0]], [0.0, 3.0, 6.0, 100.0])
    assert_allclose(narrow.predict([[1.0], [2.0]]), [3.0, 100.0], rtol=1e-15)
    assert_allclose(narrow.predict(None), [4.5, 3.0, 1.5, 3.0], rtol=1e-15)


# Attention weights


@pytest.mark.parametrize("top_k", [0, -1, 5, 1.5, 2.0, True, "2", np.nan, [1]], ids=repr)
def test_top_k_out_of_range_is_refused(top_k):
    model = NadarayaWatsonRegressor(1.0).fit(X, Y)
    assert_refused(
        lambda: model.attention_weights(X, top_k=top_k),
        "top_k must be a whole number from 1 to the number of training rows (4)",
        "None for all weights",
        f"got {top_k!r}",
    )


@pytest.mark.parametrize("top_k", [1, np.int64(3), 4], ids=repr)
def test_top_k_in_range_stores_so_many_weights(top_k):
    model = NadarayaWatsonRegressor(1.0).fit(X, Y)
    top, full = model.attention_weights(X, top_k=top_k), model.attention_weights(X)
    assert_array_equal(np.diff(top.indptr), top_k)
    assert_allclose(top.sum(axis=1), np.sort(full)[:, -top_k:].sum(axis=1), rtol=1e-14)


def test_top_k_counts_rows_of_zero_weight_but_stores_none():
    model = NadarayaWatsonRegressor(1.0).fit(X, Y, sample_weight=[1, 0, 1, 0])
    top = model.attention_weights([[0.0]], top_k=4)
    assert_array_equal(np.sort(top.indices), [0, 2])
    assert_allclose(top.sum(), 1.0, rtol=1e-15)


# Queries outside the support

OUT = np.array([[-2.0], [0.5], [9.0], [1e9]])


@pytest.mark.parametrize("method", ["predict", "attention_weights", "effective_neighbors"])
@pytest.mark.parametrize("kernel", [*COMPACT, cut_at_one])
def test_raise_policy_counts_queries_and_names_remedies(method, kernel):
    model = NadarayaWatsonRegressor(1.0, kernel=kernel, extrapolation="raise").fit(X, Y)
    assert_refused(
        lambda: getattr(model, method)(OUT),
        "3 of 4 queries have no training row within the support",
        f"kernel={kernel!r}",
        "extrapolation='raise'",
        "larger bandwidth",
        "'gaussian'",
        "extrapolation='nearest' or 'nan'",
    )


@pytest.mark.parametrize(
    ("method", "what"),
    [
        ("predict", "predictions"),
        ("attention_weights", "weights"),
        ("effective_neighbors", "numbers of neighbors"),
    ],
)
@pytest.mark.parametrize("kernel", [*COMPACT, cut_at_one])
def test_nan_policy_warns_once_with_the_count(method, what, kernel):
    model = NadarayaWatsonRegressor(1.0, kernel=kernel, extrapolation="nan").fit(X, Y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = getattr(model, method)(OUT)
    assert len(caught) == 1
    assert caught[0].category is UserWarning
    assert caught[0].filename == __file__
    message = str(caught[0].message)
    assert f"3 of 4 queries have no training row within the support of kernel={kernel!r}" in message
    assert f"their {what} are NaN (extrapolation='nan')" in message
    assert np.isnan(results[[0, 2, 3]]).all()
    assert np.isfinite(results[1]).all()


def test_counts_have_thousands_separators():
    model = NadarayaWatsonRegressor(1.0, kernel="uniform", extrapolation="raise").fit(X, Y)
    queries = np.full((1234, 1), 50.0)
    with pytest.raises(ValueError, match=re.escape("1,234 of 1,234 queries")):
        model.predict(queries)


@pytest.mark.parametrize("extrapolation", ["nearest", "nan", "raise"])
def test_policies_do_not_matter_inside_the_support(extrapolation):
    queries = np.linspace(-0.9, 3.9, 25)[:, np.newaxis]
    for kernel in KERNELS:
        model = NadarayaWatsonRegressor(1.0, kernel=kernel, extrapolation=extrapolation)
        expected = NadarayaWatsonRegressor(1.0, kernel=kernel).fit(X, Y).predict(queries)
        assert_array_equal(model.fit(X, Y).predict(queries), expected)


@pytest.mark.parametrize("extrapolation", ["nan", "raise"])
def test_unbounded_kernels_have_no_outside(extrapolation):
    for kernel in ("gaussian", "laplace", "student"):
        model = NadarayaWatsonRegressor(1e-3, kernel=kernel, extrapolation=extrapolation)
        expected = NadarayaWatsonRegressor(1e-3, kernel=kernel).fit(X, Y).predict(OUT)
        assert_array_equal(model.fit(X, Y).predict(OUT), expected)
        assert np.isfinite(expected).all()


def test_nearest_policy_shares_among_ties():
    model = NadarayaWatsonRegressor(0.1, kernel="epanechnikov").fit(X, Y)
    assert_allclose(model.predict([[0.5], [2.5], [-7.0], [7.0]]), [0.5, 6.5, 0.0, 9.0], rtol=1e-15)
    weighted = NadarayaWatsonRegressor(0.1, kernel="epanechnikov")
    weighted.fit(X, Y, sample_weight=[1, 3, 1, 1])
    assert_allclose(weighted.predict([[0.5]]), [0.75], rtol=1e-15)


@pytest.mark.parametrize("extrapolation", ["nearest", "nan", "raise"])
def test_policies_apply_to_leave_one_out_predictions(extrapolation):
    rows, y = np.array([[0.0], [0.5], [9.0]]), [1.0, 2.0, 5.0]
    model = NadarayaWatsonRegressor(1.0, kernel="uniform", extrapolation=extrapolation)
    model.fit(rows, y)
    if extrapolation == "raise":
        assert_refused(lambda: model.predict(None), "1 of 3 queries")
        return
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        predicted = model.predict(None)
    assert_array_equal(predicted, [2.0, 1.0, 2.0 if extrapolation == "nearest" else np.nan])
    assert len(caught) == (extrapolation == "nan")


@pytest.mark.parametrize(
    ("y", "what"),
    [
        (np.array(["1", "2", "3"]), "text"),
        (["a", "b", "c"], "text"),
        (np.array(["2026-01-01"] * 3, dtype="M8[ns]"), "dates or times"),
        (pd.Series(pd.date_range("2026-01-01", periods=3)), "dates or times"),
    ],
)
def test_targets_that_are_no_numbers_are_named(y, what):
    with pytest.raises(ValueError, match=rf"y must be numbers, but it is {what}"):
        NadarayaWatsonRegressor(1.0).fit([[0.0], [1.0], [2.0]], y)


def test_dates_among_the_features_are_named():
    frame = pd.DataFrame({"x": [0.0, 1.0], "day": pd.date_range("2026-01-01", periods=2)})
    with pytest.raises(ValueError, match=r"dates or times: 'day'.*unit of your choice"):
        NadarayaWatsonRegressor(1.0).fit(frame, [0.0, 1.0])
    days = np.array([["2026-01-01"], ["2026-01-02"]], dtype="M8[D]")
    with pytest.raises(ValueError, match="dates or times: dtype datetime64"):
        NadarayaWatsonRegressor(1.0).fit(days, [0.0, 1.0])


@pytest.mark.parametrize("n_jobs", [0, 1.5, "two"])
def test_impossible_number_of_jobs_is_refused_at_fit(n_jobs):
    with pytest.raises(ValueError, match=r"'n_jobs' parameter .* must be .* Got"):
        NadarayaWatsonRegressor(1.0, n_jobs=n_jobs).fit([[0.0], [1.0]], [0.0, 1.0])


def test_callable_that_returns_no_numbers_is_named():
    model = NadarayaWatsonRegressor(1.0, kernel=lambda squared: "heavy")
    with pytest.raises(ValueError, match=r"kernel=.* returned 'str', not real numbers"):
        model.fit([[0.0], [1.0]], [0.0, 1.0]).predict([[0.5]])
