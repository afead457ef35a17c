"""What displays are given: arrays, tensors, data frames, pipelines."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

__all__ = [
    "Inside",
    "as_array",
    "chosen_feature",
    "chosen_target",
    "evenly_spaced",
    "rows_like",
    "shown_of",
]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


def as_array(values: Any) -> Array:
    """Numbers as float64; of tensors, on whatever device, without their gradients."""
    if hasattr(values, "detach"):
        values = values.detach().cpu().double()
    if hasattr(values, "toarray"):
        values = values.toarray()
    return np.asarray(values, dtype=np.float64)


class Inside:
    """A regressor, taken out of a search or pipeline, and rows as it sees them.

    Parameters
    ----------
    estimator : estimator
        Fitted; a regressor, or a pipeline or search around one.
    method : str, default="predict"
        What the regressor must be able to do.
    """

    def __init__(self, estimator: Any, method: str = "predict") -> None:
        estimator = getattr(estimator, "best_estimator_", estimator)
        is_pipeline = hasattr(estimator, "steps") and len(estimator.steps) > 1
        self.before = estimator[:-1] if is_pipeline else None
        self.model = estimator[-1] if hasattr(estimator, "steps") else estimator
        if not hasattr(self.model, method):
            raise TypeError(
                f"estimator must have {method}; got {type(self.model).__name__}. Pass one of "
                "skattn's regressors, or a pipeline or search that ends in one."
            )
        check_is_fitted(self.model)

    def rows(self, X: Any) -> Any:
        """Rows after the steps before the regressor; None stays None."""
        return X if X is None or self.before is None else self.before.transform(X)

    @property
    def names(self) -> list[str]:
        """Names of the regressor's features, or x0, x1, ..."""
        names = getattr(self.model, "feature_names_in_", None)
        if names is None and self.before is not None:
            try:
                names = self.before.get_feature_names_out()
            except (AttributeError, ValueError):  # some step has no names to give
                names = None
        if names is None:
            names = [f"x{j}" for j in range(self.model.n_features_in_)]
        return [str(name) for name in names]


def rows_like(X: Any, rows: Array) -> Any:
    """Rows as a data frame of the columns of X, if X is one."""
    if not hasattr(X, "columns"):
        return rows
    return type(X)(dict(zip(X.columns, rows.T, strict=True)))


def chosen_feature(feature: int | str | None, names: list[str]) -> int | None:
    """The position of a feature given by position or name; None only where it is not clear."""
    if feature is None:
        return 0 if len(names) == 1 else None
    if isinstance(feature, str) and feature in names:
        return names.index(feature)
    if not isinstance(feature, str | bool) and 0 <= feature < len(names):
        return int(feature)
    raise ValueError(
        f"feature must be the name or the position of one of {len(names)} features; got "
        f"{feature!r}. The names are {', '.join(names[:20])}{', ...' if len(names) > 20 else ''}."
    )


def chosen_target(values: Array, target: int | None, axis: int = -1) -> Array:
    """The values of one output, of arrays whose outputs come last where there are several.

    Parameters
    ----------
    values : ndarray
    target : int or None
    axis : int, default=-1
        How many axes there are before the outputs: values of as many dimensions have none. -1 for
        one axis.
    """
    n_before = 1 if axis == -1 else axis
    if values.ndim == n_before:
        return values
    n_outputs = values.shape[-1]
    if target is None and n_outputs == 1:
        return values[..., 0]
    if target is None or isinstance(target, bool) or not 0 <= target < n_outputs:
        raise ValueError(
            f"target must be the position of one of {n_outputs} outputs, from 0 to "
            f"{n_outputs - 1}; got {target!r}."
        )
    return values[..., int(target)]


def evenly_spaced(order: Indices, most: int | None) -> Indices:
    """At most so many of some positions, evenly spaced, both ends included; None for all."""
    if most is not None and (isinstance(most, bool) or most < 2):
        raise ValueError(f"max_rows must be 2 at least, or None for all rows; got {most!r}.")
    if most is None or len(order) <= most:
        return order
    return order[np.linspace(0, len(order) - 1, most).astype(np.intp)]


def shown_of(shown: int, total: int) -> str:
    """What to add to a label where rows are left out."""
    return "" if shown == total else f" ({shown:,} of {total:,} shown)"
