"""Effects of training rows on predictions, which weights alone do not tell."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from skattn.inspection import _inputs as inputs


def leave_row_out_effect(estimator: Any, X: Any, rows: Any = None) -> NDArray[np.floating]:
    """Change of predictions that a training row makes: with it, less without it.

    Exact, without refitting: the row is taken out of the sums, and the metric is held (bandwidth,
    radii, projection and ranks; choosing them anew without the row would move predictions further).

    Parameters
    ----------
    estimator : estimator
        Fitted :class:`skattn.NadarayaWatsonRegressor` or
        :class:`skattn.ParametricAttentionRegressor`; or a pipeline or search around one.
    X : array-like of shape (n_queries, n_features)
        The queries.
    rows : array-like of int of shape (n_queries, n_rows), default=None
        Which training rows to leave out for each query, one at a time, such as
        ``estimator.explain(X).rows``; -1 for none. None is all of them, in their order.

    Returns
    -------
    effects : ndarray of shape (n_queries, n_rows) or (n_queries, n_rows, n_outputs)
        Differences of predictions, in the unit of the targets; 0 for -1.

    Raises
    ------
    ValueError
        If `rows` are no positions of training rows for each query, or there is only one.

    Notes
    -----
    At degree 0 the effect of a row of weight w and target v on a prediction f is
    ``w * (v - f) / (1 - w)``. A heavy row whose target is what the others predict anyway has no
    effect; a lighter one with an unusual target has a large one. So a weight alone is no measure of
    how important a row is, and neither says how important a feature is: for that, permute the
    feature at rows held out (:func:`sklearn.inspection.permutation_importance`).

    Time O(n_queries * n_rows * n_samples * n_features), with all rows that of as many queries as
    there are pairs.

    Examples
    --------
    >>> from skattn import NadarayaWatsonRegressor
    >>> from skattn.inspection import leave_row_out_effect
    >>> model = NadarayaWatsonRegressor(1.0).fit([[0.0], [0.2], [1.0]], [1.0, 1.0, 4.0])
    >>> model.attention_weights([[0.1]]).round(2)
    array([[0.37, 0.37, 0.25]])
    >>> leave_row_out_effect(model, [[0.1]]).round(2)  # the lightest row matters most
    array([[-0.45, -0.45,  0.75]])
    """
    fitted = inputs.Fitted(estimator, "attention_weights")
    if X is None:
        raise ValueError("X must be queries; None, the training rows without themselves, is none.")
    model, queries = fitted.model, fitted.transform(X)
    n_queries, n_rows = len(inputs.as_array(queries)), len(model._training_rows()[0])
    if rows is None:
        rows = np.broadcast_to(np.arange(n_rows), (n_queries, n_rows))
    rows = np.asarray(rows)
    is_position = rows.dtype.kind in "iu" and rows.ndim == 2 and len(rows) == n_queries
    if not is_position or (rows.size and (rows.min() < -1 or rows.max() >= n_rows)):
        raise ValueError(
            f"rows must be positions of the {n_rows} training rows, of shape ({n_queries}, "
            f"n_rows): some for each query; got {rows!r}."
        )
    effects = model._effects(queries, np.maximum(rows, 0))
    effects[rows < 0] = 0.0
    return effects
