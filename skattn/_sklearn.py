"""The only file with private scikit-learn names or questions of its version."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import _fit_context as fit_context
from sklearn.utils._param_validation import Interval, StrOptions
from sklearn.utils.validation import _check_sample_weight, validate_data

__all__ = ["Interval", "StrOptions", "check_rows", "check_weights", "fit_context"]

# Names of dtypes, pandas' and polars', whose values are labels even where they look like numbers.
_LABELS = ("category", "categorical", "enum")


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
    labels = [name for name, dtype in _column_dtypes(X) if dtype.lower().startswith(_LABELS)]
    if labels:
        raise ValueError(_not_numeric(labels))
    options: dict[str, Any] = {"dtype": [np.float64, np.float32], "reset": reset}
    if not (isinstance(y, str) and y == "no_validation"):
        options |= {"multi_output": True, "y_numeric": True}
    try:
        return validate_data(estimator, X, y, **options)
    except ValueError as error:
        texts = [name for name, dtype in _column_dtypes(X) if _is_text(dtype)]
        if texts and "could not convert" in str(error):
            raise ValueError(_not_numeric(texts)) from error
        raise


def _column_dtypes(X: Any) -> list[tuple[Any, str]]:
    columns, dtypes = getattr(X, "columns", None), getattr(X, "dtypes", None)
    if columns is None or dtypes is None:
        return []
    return [(name, str(dtype)) for name, dtype in zip(columns, dtypes, strict=False)]


def _is_text(dtype: str) -> bool:
    return dtype.lower().startswith(("str", "object", "large_string", "utf8"))


def _not_numeric(names: list[Any]) -> str:
    return (
        f"X has columns that are not numeric: {', '.join(repr(name) for name in names)}. "
        "Distances need numbers: encode them, for example with "
        "sklearn.preprocessing.OneHotEncoder in a sklearn.compose.ColumnTransformer."
    )


def check_weights(sample_weight: Any, X: NDArray[np.floating]) -> NDArray[np.float64]:
    """Validate sample weights; None and a number are uniform weights.

    Parameters
    ----------
    sample_weight : array-like of shape (n_rows,), float or None
    X : ndarray of shape (n_rows, n_features)

    Returns
    -------
    ndarray of shape (n_rows,)
        Non-negative, not all zero.
    """
    weights = _check_sample_weight(
        sample_weight, X, dtype=np.float64, ensure_non_negative=True, copy=True
    )
    if not np.isfinite(weights).all():  # a number, which scikit-learn does not look at
        raise ValueError(f"sample_weight must be finite and not negative; got {sample_weight!r}.")
    if not weights.any():
        raise ValueError(
            "sample_weight is zero for all rows; at least one training row needs a positive "
            "weight, since rows of zero weight count as absent."
        )
    return weights
