"""Validation of targets: they are converted once, and then checked."""

import datetime as dt
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pytest
from numpy.testing import assert_array_equal

from skattn import NadarayaWatsonRegressor

X = np.arange(4.0)[:, None]


def fit(y):
    return NadarayaWatsonRegressor(1.0).fit(X, y)


MISSING = {
    "None in a list": [1.0, None, 3.0, 4.0],
    "None in an array": np.array([1.0, None, 3.0, 4.0], dtype=object),
    "NaN in an array of objects": np.array([1.0, np.nan, 3.0, 4.0], dtype=object),
    "pandas.NA": pd.Series([1, pd.NA, 3, 4], dtype=object),
    "Int64 of pandas": pd.Series([1, pd.NA, 3, 4], dtype="Int64"),
    "null of polars": pl.Series([1.0, None, 3.0, 4.0]),
    "NaN": np.array([1.0, np.nan, 3.0, 4.0]),
}


@pytest.mark.parametrize("y", MISSING.values(), ids=MISSING)
def test_missing_targets_are_refused_and_counted(y):
    with pytest.raises(ValueError, match=r"y must be finite.* 1 missing and 0 infinite.*4 rows"):
        fit(y)


@pytest.mark.parametrize("kind", [float, object, np.longdouble])
def test_infinite_targets_are_refused(kind):
    huge = np.longdouble("1e400") if kind is np.longdouble else np.inf
    with pytest.raises(ValueError, match="0 missing and 1 infinite"):
        fit(np.array([1.0, huge, 3.0, 4.0], dtype=kind))


def test_the_column_of_a_missing_target_is_named():
    frame = pd.DataFrame({"height": [1, 2, 3, 4], "weight": [1.0, None, 3.0, np.inf]})
    with pytest.raises(ValueError, match="1 missing and 1 infinite values in column 'weight'"):
        fit(frame)
    with pytest.raises(ValueError, match="in column 1"):
        fit(frame.to_numpy())


TEXT = {
    "list": ["1", "2", "3", "4"],
    "array": np.array(["1", "2", "3", "4"]),
    "nan as text": ["1", "nan", "3", "4"],
    "inf among objects": np.array(["inf", 1.0, 2.0, 3.0], dtype=object),
    "pandas": pd.Series(["1", "2", "3", "4"]),
    "objects of pandas": pd.Series(["1", "2", "3", "4"], dtype=object),
    "categories": pd.Categorical(["1", "2", "3", "4"]),
    "bytes": [b"1", b"2", b"3", b"4"],
}


@pytest.mark.parametrize("y", TEXT.values(), ids=TEXT)
def test_text_is_refused_wherever_it_comes_from(y):
    with pytest.raises(ValueError, match=r"y must be numbers, but it is text.*astype\(float\)"):
        fit(y)


def test_objects_that_are_no_numbers_are_named():
    days = pd.Series([dt.date(2020, 1, day) for day in range(1, 5)])
    with pytest.raises(ValueError, match="y must be numbers, but it holds objects of type date"):
        fit(days)


@pytest.mark.parametrize(
    "y",
    [
        np.array([1, 2.0, 3, 4], dtype=object),
        np.array([Decimal(each) for each in range(1, 5)]),
        np.array([Fraction(each) for each in range(1, 5)]),
        pd.Series([1, 2, 3, 4], dtype="Int64"),
    ],
)
def test_objects_that_are_numbers_are_converted(y):
    assert_array_equal(fit(y).predict(X), fit(np.arange(1.0, 5.0)).predict(X))
