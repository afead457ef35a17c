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


@pytest.mark.parametrize("where", ["X", "queries"])
def test_text_is_refused(where):
    model = NadarayaWatsonRegressor(1.0)
    text = ["a", "b", "c", "d"]
    calls = {
        "X": lambda: model.fit(np.array(text)[:, np.newaxis], Y),
        "queries": lambda: model.fit(X, Y).predict([["a"]]),
    }
    assert_refused(calls[where], "could not convert string to float", "a'")


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

    monkeypatch.setattr("skattn._geometry.training_set.TrainingSet.canonical", interrupt)
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


# Degree, adaptive bandwidths and inference

INFERENCE = {
    "std": lambda model, X: model.predict(X, return_std=True),
    "local std": lambda model, X: model.predict(X, return_std="local"),
    "quantiles": lambda model, X: model.predict_quantiles(X, [0.1, 0.9]),
    "interval": lambda model, X: model.predict_interval(X, 0.5),
    "local interval": lambda model, X: model.predict_interval(X, 0.5, local=True),
    "gradient": lambda model, X: model.predict_gradient(X),
    "explain": lambda model, X: model.explain(X, 2),
}


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("degree", 2, ["int", "{0, 1}"]),
        ("degree", -1, ["int", "{0, 1}"]),
        ("degree", 1.0, ["int", "{0, 1}"]),
        ("degree", "1", ["int", "{0, 1}"]),
        ("degree", None, ["int", "{0, 1}"]),
        ("adaptive", "keys", ["'query'", "'key'", "None"]),
        ("adaptive", True, ["'query'", "'key'", "None"]),
        ("n_neighbors", 0, ["int in the range [1, inf)", "None"]),
        ("n_neighbors", 2.0, ["int in the range [1, inf)", "None"]),
        ("n_neighbors", "all", ["int in the range [1, inf)", "None"]),
    ],
)
def test_parameter_of_lines_and_radii_out_of_range_is_refused(name, value, allowed):
    model = NadarayaWatsonRegressor(1.0).set_params(**{name: value})
    rule = f"The '{name}' parameter of NadarayaWatsonRegressor must be"
    assert_refused(lambda: model.fit(X, Y), rule, f"Got {value!r}", *allowed)


@pytest.mark.parametrize("adaptive", ["query", "key"])
@pytest.mark.parametrize(
    ("weights", "most"),
    [(None, 3), ([1, 1, 1, 0], 2), ([2, 1, 0, 0], 2), ([0.5, 0.5, 0.5, 0.0], 2)],
    ids=str,
)
def test_more_neighbors_than_other_rows_are_refused(adaptive, weights, most):
    model = NadarayaWatsonRegressor(1.0, adaptive=adaptive, n_neighbors=most)
    assert model.fit(X, Y, sample_weight=weights).n_neighbors_ == most
    model.set_params(n_neighbors=most + 1)
    assert_refused(
        lambda: model.fit(X, Y, sample_weight=weights),
        "n_neighbors must be at most the number of other training rows",
        f"({most})",
        f"got {most + 1}",
        f"n_samples={most + 1}",
    )
    assert model.n_neighbors_ == most  # as it was
    assert np.isfinite(model.predict(X)).all()


@pytest.mark.parametrize("adaptive", ["query", "key"])
def test_single_row_has_no_neighbors(adaptive):
    model = NadarayaWatsonRegressor(1.0, adaptive=adaptive)
    words = ["n_neighbors=None", "two rows at least", "n_samples=1", "Give a number"]
    assert_refused(lambda: model.fit([[0.0]], [1.0]), *words)
    model.set_params(n_neighbors=1)
    assert_refused(lambda: model.fit([[0.0]], [1.0]), "n_neighbors must be at most", "n_samples=1")


@pytest.mark.parametrize("bandwidth", ["loo", "gcv", 1.0])
@pytest.mark.parametrize("adaptive", [None, "query", "key"])
def test_importances_in_a_single_place_leave_nothing_to_select_by(adaptive, bandwidth):
    model = NadarayaWatsonRegressor(bandwidth, adaptive=adaptive)
    model.fit(np.ones((3, 1)), [1.0, 2.0, 4.0], sample_weight=[0.5, 0.25, 0.25])
    assert_allclose(model.predict([[1.0], [5.0]]), 2.0, rtol=1e-12)
    if adaptive is not None:
        assert 1 <= model.n_neighbors_ <= 2
    if adaptive is not None or bandwidth != 1.0:
        assert np.isnan(model.criterion_)


@pytest.mark.parametrize("name", ["gcv", "aicc"])
def test_groups_are_refused_by_criteria_that_leave_nothing_out_with_radii_too(name):
    for parameters in ({"degree": 1}, {"adaptive": "query"}, {"adaptive": "key", "degree": 1}):
        model = NadarayaWatsonRegressor(name, **parameters)
        words = [f"bandwidth={name!r}", "cannot use groups", "bandwidth='loo'"]
        assert_refused(lambda model=model: model.fit(X, Y, groups=[0, 0, 1, 1]), *words)


def test_single_group_selects_no_number_of_neighbors():
    model = NadarayaWatsonRegressor(1.0, adaptive="query")
    words = ["groups must have two labels", "n_neighbors=None", "Give a number"]
    assert_refused(lambda: model.fit(X, Y, groups=[3] * 4), *words)


@pytest.mark.parametrize("numbers", [[0.5, 2.0], [0], [-1], 3, [[1, 2]], ["a"]], ids=repr)
def test_criterion_curve_of_adaptive_bandwidths_takes_numbers_of_neighbors(numbers):
    model = NadarayaWatsonRegressor(1.0, adaptive="query", n_neighbors=2).fit(X, Y)
    words = ["bandwidths must be an array of positive whole numbers", "neighbors"]
    words += ["adaptive='query'", f"got {numbers!r}"]
    assert_refused(lambda: model.criterion_curve(numbers), *words)


@pytest.mark.parametrize("return_std", ["foo", "True", "", None, 1, 0, 2.5, [True]], ids=repr)
def test_return_std_of_another_kind_is_refused(return_std):
    model = NadarayaWatsonRegressor(1.0).fit(X, Y)
    assert_refused(
        lambda: model.predict(X, return_std=return_std),
        "return_std must be True, False or 'local'",
        f"got {return_std!r}",
    )


@pytest.mark.parametrize("return_std", [True, np.True_, "local"])
def test_numpys_truth_values_ask_for_standard_errors_too(return_std):
    model = NadarayaWatsonRegressor(1.0).fit(X, Y)
    mean, std = model.predict(X, return_std=return_std)
    assert_array_equal(mean, model.predict(X, return_std=np.False_))
    assert (std > 0.0).all()


@pytest.mark.parametrize(
    "quantiles",
    [-0.01, 1.01, np.nan, np.inf, [0.5, 2.0], "median", None, True, [True], 1j, [[0.5]], ["0.5"]],
    ids=repr,
)
def test_levels_out_of_range_are_refused(quantiles):
    model = NadarayaWatsonRegressor(1.0).fit(X, Y)
    words = ["quantiles must be one number from 0 to 1, or an array", f"got {quantiles!r}"]
    assert_refused(lambda: model.predict_quantiles(X, quantiles), *words)


def test_levels_at_either_end_are_the_extremes_of_what_has_weight():
    model = NadarayaWatsonRegressor(1.5, kernel="uniform").fit(X, Y)
    assert_array_equal(model.predict_quantiles([[1.0], [3.0]], [0, 1]), [[0.0, 4.0], [4.0, 9.0]])


@pytest.mark.parametrize(
    "coverage", [0, 1, 0.0, 1.0, -0.5, 90, np.nan, np.inf, "0.9", None, True, [0.5]], ids=repr
)
def test_coverage_out_of_range_is_refused(coverage):
    model = NadarayaWatsonRegressor(1.0).fit(X, Y)
    words = ["coverage must be a number between 0 and 1", f"got {coverage!r}"]
    assert_refused(lambda: model.predict_interval(X, coverage), *words)


@pytest.mark.parametrize("local", [None, "True", 1, 0, [False]], ids=repr)
def test_local_of_another_kind_is_refused(local):
    model = NadarayaWatsonRegressor(1.0).fit(X, Y)
    words = ["local must be True or False", f"got {local!r}"]
    assert_refused(lambda: model.predict_interval(X, 0.5, local=local), *words)


def test_local_is_given_by_name():
    model = NadarayaWatsonRegressor(1.0).fit(X, Y)
    assert_refused(lambda: model.predict_interval(X, 0.5, True), "positional", error=TypeError)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize(("coverage", "least"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.99, 99)])
def test_coverage_needs_so_many_rows(coverage, least, degree, rng):
    rows, y = rng.standard_normal((least + 1, 1)), rng.standard_normal(least + 1)
    model = NadarayaWatsonRegressor(1.0, degree=degree)
    weights = np.ones(least + 1)
    if least > 1:
        enough = model.fit(rows[:least], y[:least]).predict_interval(rows, coverage)
        assert np.isfinite(enough).all()
        weights[-2:] = 0.0
        words = [f"coverage={coverage} needs {least} training rows at least"]
        words += [f"got n_samples={least - 1}", "less coverage", "more rows"]
        model.fit(rows, y, sample_weight=weights)
        assert_refused(lambda: model.predict_interval(rows, coverage), *words)
    weights[:] = 0.0
    weights[0] = max(least, 2)
    counted = model.fit(rows, y, sample_weight=weights).predict_interval(rows, coverage)
    assert_allclose(counted, y[0], rtol=1e-12)


def test_intervals_of_a_group_that_is_all_rows_are_refused():
    for call in ("std", "interval", "local interval"):
        model = NadarayaWatsonRegressor(1.0).fit(X, Y, groups=[1] * 4)
        words = ["4 of 4 rows leave none", "group", "Fit on more distinct rows or groups"]
        assert_refused(lambda model=model, call=call: INFERENCE[call](model, X), *words)
    model = NadarayaWatsonRegressor(1.0, degree=1).fit(X, Y, groups=[1] * 4)
    assert_refused(lambda: model.predict_quantiles(X, 0.5), "4 of 4 rows leave none")


def test_intervals_need_queries():
    model = NadarayaWatsonRegressor(1.0).fit(X, Y)
    assert_refused(lambda: model.predict_interval(None, 0.5), "predict_interval needs queries X")


@pytest.mark.parametrize("kernel", ["uniform", cut_at_one])
def test_gradient_of_a_mean_without_a_derivative_is_refused(kernel):
    model = NadarayaWatsonRegressor(1.5, kernel=kernel).fit(X, Y)
    words = ["predict_gradient needs a kernel with a derivative, or degree=1"]
    words += [f"kernel={kernel!r}", "degree=0"]
    assert_refused(lambda: model.predict_gradient(X), *words)
    lines = NadarayaWatsonRegressor(1.5, kernel=kernel, degree=1).fit(X, Y)
    assert_allclose(lines.predict_gradient([[1.0]]), [[2.0]], rtol=1e-9)  # of 0, 1, 4


@pytest.mark.parametrize("top_k", [0, -1, 1.5, 2.0, True, "2", None, np.nan, [1]], ids=repr)
def test_impossible_number_of_rows_to_explain_is_refused(top_k):
    model = NadarayaWatsonRegressor(1.0).fit(X, Y)
    words = ["top_k must be a positive whole number", f"got {top_k!r}"]
    assert_refused(lambda: model.explain(X, top_k), *words)


def test_more_rows_to_explain_than_there_are_is_all_of_them():
    told = NadarayaWatsonRegressor(1.0).fit(X, Y, sample_weight=[1, 1, 0, 1]).explain(X, 99)
    assert_array_equal(np.sort(told.rows), [[0, 1, 3]] * 4)


@pytest.mark.parametrize("name", INFERENCE)
@pytest.mark.parametrize("parameters", [{}, {"degree": 1}, {"adaptive": "key", "n_neighbors": 2}])
def test_inference_refuses_what_prediction_refuses(name, parameters):
    call = INFERENCE[name]
    model = NadarayaWatsonRegressor(1.0, **parameters)
    assert_refused(lambda: call(model, X), "not fitted yet", "'fit'", error=NotFittedError)
    model.fit(X, Y)
    assert_refused(lambda: call(model, np.hstack([X, X])), "X has 2 features", "expecting 1")
    assert_refused(lambda: call(model, X[:0]), "0 sample(s)", "minimum of 1")
    assert_refused(lambda: call(model, X[:, 0]), "Expected 2D array, got 1D", "reshape(-1, 1)")
    assert_refused(lambda: call(model, [[np.nan]]), "Input X contains NaN")
    assert_refused(lambda: call(model, [[np.inf]]), "Input X contains infinity")
    assert_refused(lambda: call(model, [["a"]]), "could not convert string to float")
    assert_refused(lambda: call(model, sp.csr_array(X)), "dense data", error=TypeError)
    model.fit(pd.DataFrame(X, columns=["a"]), Y)
    other = pd.DataFrame(X, columns=["b"])
    assert_refused(lambda: call(model, other), "feature names should match", "- b", "- a")
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        call(model, X)


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize("name", INFERENCE)
def test_raise_policy_holds_for_inference(name, degree):
    model = NadarayaWatsonRegressor(1.0, kernel="biweight", degree=degree, extrapolation="raise")
    model.fit(X, Y)
    assert_refused(
        lambda: INFERENCE[name](model, OUT),
        "3 of 4 queries have no training row within the support of kernel='biweight'",
        "extrapolation='raise'",
        "extrapolation='nearest' or 'nan'",
    )
    INFERENCE[name](model, OUT[1:2])


@pytest.mark.parametrize("degree", [0, 1])
@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("std", "predictions"),
        ("local std", "predictions"),
        ("quantiles", "quantiles"),
        ("interval", "intervals"),
        ("local interval", "intervals"),
        ("gradient", "gradients"),
        ("explain", "weights"),
    ],
)
def test_nan_policy_of_inference_warns_once_at_the_callers_line(name, what, degree):
    model = NadarayaWatsonRegressor(1.0, kernel="biweight", degree=degree, extrapolation="nan")
    model.fit(X, Y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        results = INFERENCE[name](model, OUT)
    assert [warning.category for warning in caught] == [UserWarning]
    assert caught[0].filename == __file__
    message = str(caught[0].message)
    assert "3 of 4 queries have no training row within the support" in message
    assert f"their {what} are NaN (extrapolation='nan')" in message
    if name == "explain":
        results = (results.weights, results.predictions)
    for result in results if isinstance(results, tuple) else (results,):
        assert np.isnan(result[[0, 2, 3]]).all()
        assert np.isfinite(result[1]).all()


@pytest.mark.parametrize("degree", [0, 1])
def test_nearest_policy_of_inference_is_that_of_the_nearest_row(degree):
    model = NadarayaWatsonRegressor(1.0, kernel="biweight", degree=degree).fit(X, Y)
    far, edge = OUT[2:], X[[3, 3]]
    mean, std = model.predict(far, return_std=True)
    assert_array_equal(mean, Y[[3, 3]])
    residuals = Y - model.predict(None)
    assert_allclose(std, np.sqrt(np.mean(residuals**2)), rtol=1e-12)
    assert_array_equal(model.predict_gradient(far), 0.0)
    assert_array_equal(model.explain(far, 2).rows[:, 0], [3, 3])
    quantiles = model.predict_quantiles(far, [0.0, 0.5, 1.0])
    expected = Y[3] if degree == 0 else Y[3] + residuals[3]
    assert_allclose(quantiles, expected, rtol=1e-12)
    if degree == 0:  # at a row with no other in its support
        assert_allclose(model.predict_interval(far, 0.5), model.predict_interval(edge, 0.5))


def test_explanations_have_as_many_columns_as_were_asked_for():
    # whichever queries come together: results of batches can be stacked
    model = NadarayaWatsonRegressor(1.0, kernel="biweight").fit(X, Y)
    told = model.explain(OUT[2:], 2)
    assert_array_equal(told.rows, [[3, -1]] * 2)
    assert_array_equal(told.weights, [[1.0, 0.0]] * 2)
    assert_array_equal(told.targets, [[9.0, np.nan]] * 2)


def test_leave_one_out_standard_errors_follow_the_policy():
    rows, y = np.array([[0.0], [0.5], [9.0]]), [1.0, 2.0, 5.0]
    model = NadarayaWatsonRegressor(1.0, kernel="uniform", extrapolation="nan").fit(rows, y)
    with pytest.warns(UserWarning, match="1 of 3 queries") as caught:
        mean, std = model.predict(None, return_std=True)
    assert len(caught) == 1
    assert_array_equal(np.isnan(mean), [False, False, True])
    assert_array_equal(np.isnan(std), [False, False, True])
    # residuals of rows without a neighbor count as those to the nearest row
    assert_allclose(std[:2], np.sqrt((1.0 + 1.0 + 9.0) / 3.0), rtol=1e-12)


@pytest.mark.parametrize("adaptive", ["query", "key"])
def test_policies_hold_with_radii(adaptive):
    rows = np.array([[0.0], [1.0], [2.0], [3.0], [50.0]])
    y = np.arange(5.0)
    model = NadarayaWatsonRegressor(
        0.5, kernel="tricube", adaptive=adaptive, n_neighbors=1, extrapolation="nan"
    ).fit(rows, y)
    with pytest.warns(UserWarning, match="1 of 2 queries") as caught:
        found = model.predict_interval([[1.0], [-500.0 if adaptive == "key" else 20.0]], 0.5)
    assert len(caught) == 1
    assert np.isfinite(found[0]).all()
    assert np.isnan(found[1]).all()
