"""What goes into fit, and what a fitted estimator is."""

import copy
import pickle

import numpy as np
import pandas as pd
import polars as pl
import pytest
from definitions import assert_same, everything
from numpy.testing import assert_allclose
from sklearn.base import clone

from skattn import NadarayaWatsonRegressor


def test_copies_give_bit_for_bit_the_same(plane, configuration):
    X, y, queries = plane
    model = NadarayaWatsonRegressor(0.4, **configuration).fit(X, y)
    expected = everything(model, queries)
    for duplicate in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model)):
        assert_same(everything(duplicate, queries), expected)
    assert clone(model).get_params() == model.get_params()
    assert not hasattr(clone(model), "bandwidth_")


def test_inference_sets_no_attribute(plane, configuration):
    X, y, queries = plane
    model = NadarayaWatsonRegressor(0.4, **configuration).fit(X, y)
    before = {name: pickle.dumps(value) for name, value in vars(model).items()}
    everything(model, queries)
    model.predict(None), model.leverage()
    assert {name: pickle.dumps(value) for name, value in vars(model).items()} == before


def test_single_precision_in_is_single_precision_out(plane, configuration):
    X, y, queries = (np.float32(array) for array in plane)
    single = NadarayaWatsonRegressor(0.4, **configuration).fit(X, y)
    double = NadarayaWatsonRegressor(0.4, **configuration).fit(X.astype(float), y.astype(float))
    calls = {
        "mean": lambda m, q: m.predict(q),
        "std": lambda m, q: m.predict(q, return_std=True)[1],
        "local": lambda m, q: m.predict(q, return_std="local")[1],
        "quantiles": lambda m, q: m.predict_quantiles(q, [0.1, 0.9]),
        "interval": lambda m, q: m.predict_interval(q),
        "gradient": lambda m, q: m.predict_gradient(q),
    }
    for name, call in calls.items():
        found = call(single, queries)
        assert found.dtype == np.float32, name
        expected = call(double, queries.astype(float))
        assert expected.dtype == np.float64, name
        assert_allclose(found, expected, rtol=2e-4, atol=2e-4, err_msg=name)


@pytest.mark.parametrize(
    "convert",
    [
        np.asfortranarray,
        lambda X: X[::-1][::-1],
        lambda X: X.astype(np.int64),
        lambda X: X.astype(np.int8),
        lambda X: X.astype(np.int64).tolist(),
        lambda X: pd.DataFrame(X, columns=["a", "b"], index=[7] * len(X)),
        lambda X: pl.DataFrame(X, schema=["a", "b"]),
    ],
    ids=["Fortran order", "negative strides", "integers", "bytes", "lists", "pandas", "polars"],
)
def test_any_container_of_the_same_numbers(convert, configuration, rng):
    X, y = rng.integers(0, 9, (40, 2)).astype(float), rng.integers(0, 5, 40)
    expected = everything(
        NadarayaWatsonRegressor(1.5, **configuration).fit(X, y.astype(float)), X[:7]
    )
    model = NadarayaWatsonRegressor(1.5, **configuration).fit(convert(X), y)
    assert_same(everything(model, convert(X[:7])), expected)


def test_memory_maps_and_read_only_arrays_are_not_written_to(plane, configuration, tmp_path):
    X, y, queries = plane
    weights = np.arange(40) % 3 + 0.5
    mapped = []
    for name, array in (("X", X), ("y", y), ("queries", queries), ("weights", weights)):
        array.tofile(tmp_path / name)
        mapped.append(np.memmap(tmp_path / name, mode="r", shape=array.shape, dtype=float))
    rows, targets, at, importance = mapped
    model = NadarayaWatsonRegressor(0.4, **configuration)
    found = everything(model.fit(rows, targets, sample_weight=importance), at)
    expected = everything(model.fit(X, y, sample_weight=weights), queries)
    assert_same(found, expected)
    X.flags.writeable = y.flags.writeable = queries.flags.writeable = False
    levels = np.array([0.5])
    levels.flags.writeable = False
    model.fit(X, y).predict_quantiles(queries, levels)


def test_results_are_the_callers_to_write_to(plane, configuration):
    X, y, queries = plane
    model = NadarayaWatsonRegressor(0.4, **configuration).fit(X, y)
    expected = copy.deepcopy(everything(model, queries))
    for result in everything(model, queries).values():
        result[...] = 0
    assert_same(everything(model, queries), expected)
