"""Inputs of displays: arrays, tensors, data frames, pipelines."""

from __future__ import annotations

from numbers import Integral
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


def as_array(values: Any) -> Array:
    """Numbers as float64, from tensors on any device, with or without gradients, too."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().double()
    if hasattr(values, "toarray"):
        values = values.toarray()
    return np.asarray(values, dtype=np.float64)


def as_column(values: Any) -> Array:
    """Numbers as float64, without the axis of a single column."""
    array = as_array(values)
    return array[:, 0] if array.ndim == 2 and array.shape[1] == 1 else array


def unwrapped(
    estimator: Any, method: str, kind: str = "one of skattn's regressors"
) -> tuple[Any, Any]:
    """Steps before the regressor of a pipeline or search, or None, and the regressor.

    The regressor must have a method; `kind` says for the message which regressors do.
    """
    estimator = getattr(estimator, "best_estimator_", estimator)
    is_pipeline = hasattr(estimator, "steps")
    before = estimator[:-1] if is_pipeline and len(estimator.steps) > 1 else None
    model = estimator[-1] if is_pipeline else estimator
    if not hasattr(model, method):
        raise TypeError(
            f"estimator must have {method}; got {type(model).__name__}. Pass {kind}, or a pipeline "
            "or fitted search that ends in one."
        )
    return before, model


class Fitted:
    """Fitted regressor with a method, taken out of a search or pipeline around it."""

    def __init__(self, estimator: Any, method: str = "predict") -> None:
        self.before, self.model = unwrapped(estimator, method)
        check_is_fitted(self.model)

    def transform(self, X: Any) -> Any:
        """Rows after the steps before the regressor; None stays None."""
        return X if X is None or self.before is None else self.before.transform(X)

    def interval(self, X: Any, coverage: float, local: bool, target: int | None) -> Array:
        """Lower and upper bounds of one output."""
        bounds = self.model.predict_interval(self.transform(X), coverage, local=local)
        return chosen_target(bounds, target, axis=2).T

    @property
    def names(self) -> list[str]:
        """Names of the regressor's features, or x0, x1, ..."""
        names = getattr(self.model, "feature_names_in_", None)
        if names is None and self.before is not None:
            try:
                names = self.before.get_feature_names_out()
            except (AttributeError, ValueError):  # some step has no names to give
                names = None
        return feature_names(names, self.model.n_features_in_)


def feature_names(names: Any, n_features: int) -> list[str]:
    """Names given, or x0, x1, ... for None."""
    return [f"x{j}" for j in range(n_features)] if names is None else [str(name) for name in names]


def listed(names: list[str]) -> str:
    """At most twenty names, for a message."""
    return ", ".join(names[:20]) + (", ..." if len(names) > 20 else "")


def rows_like(X: Any, rows: Array) -> Any:
    """Rows as a data frame of the columns of X, if X is one."""
    if not hasattr(X, "columns"):
        return rows
    return type(X)(dict(zip(X.columns, rows.T, strict=True)))


def _is_whole(value: Any, low: int, beyond: int | None = None) -> bool:
    """Whether a value is a whole number in a range: 1.0 and True are none."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        return False
    return low <= int(value) and (beyond is None or int(value) < beyond)


def whole_number(name: str, value: Any, least: int, otherwise: str = "") -> int:
    """Checked number of things; `otherwise` adds to the message what else it may be."""
    if not _is_whole(value, least):
        raise ValueError(
            f"{name} must be a whole number, at least {least}{otherwise}; got {value!r}."
        )
    return int(value)


def position(name: str, value: Any, total: int, things: str, first: int = 0) -> int:
    """Checked position among some things; with `first` of -total, from the end too."""
    if not _is_whole(value, first, total):
        raise ValueError(
            f"{name} must be the position of one of {total} {things}, from 0 to {total - 1}; got "
            f"{value!r}."
        )
    return int(value) % total


def positions(name: str, values: Any, total: int, things: str) -> Indices:
    """Checked positions, one at least, from the end too."""
    try:
        array = np.asarray(values)
    except ValueError:  # lists of several lengths
        array = np.empty(0)
    is_list = array.ndim == 1 and array.size > 0 and array.dtype.kind in "iu"
    if not is_list or array.min() < -total or array.max() >= total:
        raise ValueError(
            f"{name} must be positions of the {total} {things}, whole numbers in a list, from 0 to "
            f"{total - 1}; got {values!r}."
        )
    return array.astype(np.intp) % total


def feature_position(feature: int | str, names: list[str], parameter: str = "feature") -> int:
    """Position of a feature given by position or name."""
    if isinstance(feature, str) and feature in names:
        return names.index(feature)
    if _is_whole(feature, 0, len(names)):
        return int(feature)
    raise ValueError(
        f"{parameter} must be the name or the position, from 0 to {len(names) - 1}, of one of "
        f"{len(names)} features; got {feature!r}. The names are {listed(names)}."
    )


def chosen_feature(feature: int | str | None, names: list[str]) -> int | None:
    """Position of a feature given by position or name; None only where it is not clear."""
    if feature is None:
        return 0 if len(names) == 1 else None
    return feature_position(feature, names)


def chosen_target(values: Any, target: int | None, axis: int = 1) -> Array:
    """One output of values that may have an axis of several; target None is the only one."""
    values = as_array(values)
    if values.ndim == axis:
        return values
    n_outputs = values.shape[-1]
    if target is None and n_outputs == 1:
        return values[..., 0]
    return values[..., position("target", target, n_outputs, "outputs")]


def shown_rows(values: Array | None, n_rows: int, most: int | None) -> Indices:
    """Positions sorted by values, if any; at most so many, evenly spaced with both ends."""
    order = np.arange(n_rows) if values is None else np.argsort(values, kind="stable")
    if most is None or n_rows <= whole_number("max_rows", most, 2, ", or None for all rows"):
        return order
    return order[np.linspace(0, n_rows - 1, most).astype(np.intp)]


def shown_of(shown: int, total: int) -> str:
    """Addition to a label where rows are left out."""
    return "" if shown == total else f" ({shown:,} of {total:,} shown)"
