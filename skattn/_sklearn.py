"""The only file with private scikit-learn names or questions of its version."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from sklearn.base import _fit_context as fit_context
from sklearn.utils._param_validation import (
    Interval,
    Options,
    StrOptions,
    validate_parameter_constraints,
)
from sklearn.utils.validation import _check_sample_weight, column_or_1d, validate_data

try:  # scikit-learn 1.9
    from sklearn.callback import CallbackSupportMixin, with_callbacks
except ImportError:

    class CallbackSupportMixin:  # type: ignore[no-redef]
        """Callbacks need scikit-learn 1.9: there is nothing to support."""

    def with_callbacks(method: Any) -> Any:
        """The method itself."""
        return method


__all__ = [
    "CallbackSupportMixin",
    "Interval",
    "Options",
    "Steps",
    "StrOptions",
    "check_groups",
    "check_parameters",
    "check_rows",
    "check_weights",
    "fit_context",
    "with_callbacks",
]

# Names of dtypes, NumPy's, pandas' and polars', whose values are no numbers even where they convert
# to some: labels, and dates, whose unit would be arbitrary.
_LABELS = ("category", "categorical", "enum")
_DATES = ("datetime", "timedelta", "date", "duration", "time", "period")
_TEXT = ("str", "object", "large_string", "utf8")


def check_rows(estimator: Any, X: Any, y: Any = "no_validation", *, reset: bool) -> Any:
    """Validate features and targets as scikit-learn does; name the columns that are no numbers.

    Parameters
    ----------
    estimator : estimator
        Whose `n_features_in_` and `feature_names_in_` are set or compared.
    X : array-like of shape (n_rows, n_features)
    y : array-like of shape (n_rows,) or (n_rows, n_outputs), default="no_validation"
        Targets, where there are any.
    reset : bool
        True in `fit`, which sets the number and names of the features.

    Returns
    -------
    ndarray or pair of ndarray
        X as float32 or float64; y if it was given.
    """
    if labels := _columns_of(X, _LABELS):
        raise ValueError(f"X has columns that are not numeric: {labels}. {_ENCODE}")
    if dates := _columns_of(X, _DATES) or _dtype_of(X, _DATES):
        raise ValueError(f"X has columns that are dates or times: {dates}. {_COUNT}")
    options: dict[str, Any] = {"dtype": [np.float64, np.float32], "reset": reset}
    if not (isinstance(y, str) and y == "no_validation"):
        options |= {"multi_output": True, "y_numeric": True}
        y = y if y is None else _numeric_targets(y)
    try:
        return validate_data(estimator, X, y, **options)
    except ValueError as error:
        texts = _columns_of(X, _TEXT)
        if texts and "could not convert" in str(error):
            raise ValueError(f"X has columns that are not numeric: {texts}. {_ENCODE}") from error
        raise


_ENCODE = (
    "Distances need numbers: encode them, for example with sklearn.preprocessing.OneHotEncoder in "
    "a sklearn.compose.ColumnTransformer."
)
_COUNT = "Convert them to numbers in a unit of your choice, such as days since the first date."


def _numeric_targets(y: Any) -> Any:
    """Targets as numbers, checked to be finite; refuse what only looks like numbers."""
    if dates := _dtype_of(y, _DATES):
        raise ValueError(f"y must be numbers, but it is dates or times ({dates}). {_COUNT}")
    if issparse(y):
        raise ValueError("y must be dense, but it is sparse. Convert it with y.toarray().")
    array = np.asarray(y)
    if array.dtype.kind in "SU" or any(isinstance(each, str | bytes) for each in _objects(array)):
        raise ValueError(
            "y must be numbers, but it is text. Convert numbers that are written as text with "
            "astype(float); for labels of classes, fit a column of 0 and 1 for each class."
        )
    if array.dtype.kind == "O":
        array = _converted(array)
    if array.dtype.kind == "f":
        _check_finite(array, getattr(y, "columns", None))
    return y if array.dtype.kind not in "fiub" else array


def _objects(array: NDArray[Any]) -> list[Any]:
    return array.ravel().tolist() if array.dtype.kind == "O" else []


def _converted(array: NDArray[Any]) -> NDArray[np.float64]:
    """Objects as numbers; missing ones, None and pandas.NA among them, as NaN."""
    missing = [each is None or type(each).__name__ == "NAType" for each in _objects(array)]
    try:
        numbers = [
            np.nan if gone else float(each)
            for each, gone in zip(_objects(array), missing, strict=True)
        ]
    except (TypeError, ValueError) as error:
        kinds = sorted({type(each).__name__ for each in _objects(array)} - {"NoneType", "NAType"})
        raise ValueError(
            f"y must be numbers, but it holds objects of type {', '.join(kinds)}. {_COUNT}"
        ) from error
    return np.array(numbers).reshape(array.shape)


def _check_finite(y: NDArray[np.floating], names: Any) -> None:
    """Refuse targets that are missing or infinite; tell the column and how many there are."""
    with np.errstate(over="ignore"):
        y = y.astype(np.float64)
    finite = np.isfinite(y)
    if finite.all():
        return
    where = ""
    if y.ndim == 2:
        column = int(np.argmin(finite.all(axis=0)))
        where = f" in column {column if names is None else repr(list(names)[column])}"
        y = y[:, column]
    n_missing, n_infinite = int(np.isnan(y).sum()), int(np.isinf(y).sum())
    raise ValueError(
        f"y must be finite numbers; got {n_missing} missing and {n_infinite} infinite values"
        f"{where}, of {len(y)} rows. Drop these rows, or fill them in, before fitting."
    )


def _columns_of(X: Any, kinds: tuple[str, ...]) -> str:
    """Names of a frame's columns whose dtypes are of some kinds, comma-separated."""
    columns, dtypes = getattr(X, "columns", None), getattr(X, "dtypes", None)
    if columns is None or dtypes is None:
        return ""
    named = zip(columns, dtypes, strict=False)
    return ", ".join(repr(name) for name, dtype in named if str(dtype).lower().startswith(kinds))


def _dtype_of(array: Any, kinds: tuple[str, ...]) -> str:
    """The dtype of an array or series, if it is of some kinds."""
    dtype = str(getattr(array, "dtype", ""))
    return f"dtype {dtype}" if dtype.lower().startswith(kinds) else ""


def check_weights(sample_weight: Any, X: NDArray[np.floating]) -> NDArray[np.float64]:
    """Validate sample weights; None and a number are uniform weights.

    Parameters
    ----------
    sample_weight : array-like of shape (n_rows,), float or None
    X : ndarray of shape (n_rows, n_features)

    Returns
    -------
    ndarray of shape (n_rows,)
        Finite and non-negative, not all zero.
    """
    rule = "sample_weight must be finite numbers, none negative and not all zero"
    if sample_weight is not None:
        try:
            given = np.asarray(sample_weight, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise ValueError(f"{rule}; got {type(sample_weight).__name__}: {error}.") from error
        if (bad := given[~(np.isfinite(given) & (given >= 0.0))]).size:
            raise ValueError(
                f"{rule}; got {bad.flat[0]} among them, of which there are {bad.size}."
            )
        if given.size and not given.any():
            raise ValueError(f"{rule}; got zeros only. A row of zero weight counts as absent.")
    return _check_sample_weight(sample_weight, X, dtype=np.float64, copy=True)


def check_groups(groups: Any, X: NDArray[np.floating]) -> NDArray[np.intp] | None:
    """Number group labels from 0 in their sorted order.

    Parameters
    ----------
    groups : array-like of shape (n_rows,) or None
        Labels that can be sorted.
    X : ndarray of shape (n_rows, n_features)

    Returns
    -------
    ndarray of shape (n_rows,) or None
    """
    if groups is None:
        return None
    labels = column_or_1d(groups)
    if len(labels) != len(X):
        raise ValueError(
            f"groups must have one label for each row; got {len(labels)} labels for "
            f"n_samples={len(X)} rows."
        )
    return np.unique(labels, return_inverse=True)[1]


def check_parameters(part: Any) -> None:
    """Refuse parameters of a part of an estimator, such as a solver, that are out of range."""
    constraints, given = part._parameter_constraints, part.get_params(deep=False)
    validate_parameter_constraints(constraints, given, caller_name=type(part).__name__)


class Steps:
    """Tells an estimator's callbacks, if it has any, of the steps of its training.

    `stopped` is whether one of them has asked to stop.

    Parameters
    ----------
    estimator : estimator
    most : int or None
        How many steps there may be; None if that is not known.
    X, y : ndarray
        What it is fitted on.
    """

    def __init__(self, estimator: Any, most: int | None, X: Any, y: Any) -> None:
        self.estimator, self.data = estimator, {"X": X, "y": y}
        self.context, self.stopped = None, False
        if getattr(estimator, "_skl_callbacks", None):
            self.context = estimator._init_callback_context(max_subtasks=most)
            self.context.call_on_fit_task_begin(estimator=estimator, **self.data)

    def ended(self, attributes: Callable[[], dict[str, Any]]) -> bool:
        """A step has ended; `attributes` returns the fitted ones. Whether to stop."""
        if self.context is None:
            return False
        step = self.context.subcontext(task_name="step")
        step.call_on_fit_task_begin(estimator=self.estimator, **self.data)
        fitted = attributes()
        stop = step.call_on_fit_task_end(
            estimator=self.estimator, reconstruction_attributes=fitted, **self.data
        )
        self.stopped = self.stopped or bool(stop)
        return bool(stop)

    def close(self, attributes: dict[str, Any]) -> None:
        """Training has ended."""
        if self.context is not None:
            self.context.call_on_fit_task_end(
                estimator=self.estimator, reconstruction_attributes=attributes, **self.data
            )
