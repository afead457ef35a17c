"""One prediction, explained."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skattn.inspection._drawing import one_axes, styled
from skattn.inspection._inputs import (
    Inside,
    as_array,
    chosen_feature,
    chosen_target,
    evenly_spaced,
    position,
    rows_like,
    shown_of,
    whole_number,
)

Array = NDArray[np.float64]

# The weights take the lower part of the picture: their axis is so many times their range, that of
# the data is extended downwards by this share of theirs.
_ROOM_ABOVE, _ROOM_BELOW = 3.4, 0.45


class AttentionProfileDisplay:
    """The attention weights of one query over a feature, with the data and the fit.

    Use :meth:`from_estimator`; the constructor stores what it computes.

    Parameters
    ----------
    weights : ndarray of shape (n_keys,)
        Weights of the training rows in the prediction.
    key_values : ndarray of shape (n_keys,)
        The feature of the training rows.
    targets : ndarray of shape (n_keys,)
        Their targets.
    query_value : float
        The feature of the query.
    prediction : float
        The prediction there.
    grid : ndarray of shape (n_points,), default=None
        Values of the feature, ascending.
    fit : ndarray of shape (n_points,), default=None
        Predictions there, all other features as in the query.
    truth : ndarray of shape (n_points,), default=None
        What was to be found there, where it is known.
    feature_name : str, default="x0"
        Name of the feature.

    Attributes
    ----------
    figure_ : matplotlib Figure
        The figure drawn on.
    ax_ : matplotlib Axes
        The axes of data and fit.
    weight_ax_ : matplotlib Axes
        The axes of the weights, on the same feature.
    points_ : matplotlib PathCollection
        The training rows, larger the more they weigh; those of negative weight are hollow.
    weight_lines_ : matplotlib LineCollection
        The weights, a line each.
    query_line_ : matplotlib Line2D
        Where the query is.
    prediction_ : matplotlib Line2D
        The prediction.
    line_ : matplotlib Line2D
        The fit; None without one.
    truth_line_ : matplotlib Line2D
        The truth; None without one.

    See Also
    --------
    AttentionDisplay : The weights of many queries.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn import NadarayaWatsonRegressor
    >>> from skattn.inspection import AttentionProfileDisplay
    >>> X = np.linspace(0.0, 1.0, 20)[:, None]
    >>> model = NadarayaWatsonRegressor(0.1).fit(X, X[:, 0] ** 2)
    >>> display = AttentionProfileDisplay.from_estimator(model, [[0.5]])
    >>> bool(np.isclose(display.weights @ display.targets, display.prediction))
    True
    """

    def __init__(
        self,
        *,
        weights: Any,
        key_values: Any,
        targets: Any,
        query_value: float,
        prediction: float,
        grid: Any = None,
        fit: Any = None,
        truth: Any = None,
        feature_name: str = "x0",
    ) -> None:
        self.weights = weights
        self.key_values = key_values
        self.targets = targets
        self.query_value = query_value
        self.prediction = prediction
        self.grid = grid
        self.fit = fit
        self.truth = truth
        self.feature_name = feature_name

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        query: int = 0,
        feature: int | str | None = None,
        target: int | None = None,
        truth: Callable[[Any], Any] | None = None,
        n_points: int = 200,
        ax: Any = None,
        **plot_kwargs: Any,
    ) -> AttentionProfileDisplay:
        """Draw what one prediction of a fitted regressor is made of.

        Parameters
        ----------
        estimator : estimator
            Fitted, with `attention_weights`; or a pipeline or search around one.
        X : array-like of shape (n_queries, n_features)
            The queries. In a pipeline they pass the steps before, and features are what those
            return.
        y : None
            Ignored; here by convention.
        query : int, default=0
            Position of the query to explain.
        feature : int or str, default=None
            Position or name of the feature to draw over; None is the only one.
        target : int, default=None
            Which output, where there are several.
        truth : callable, default=None
            Takes rows of shape (n_points, n_features), as the regressor sees them, and returns
            what was to be found there.
        n_points : int, default=200
            At how many values of the feature the fit is drawn.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        **plot_kwargs : dict
            Passed on to :meth:`plot`.

        Returns
        -------
        display : AttentionProfileDisplay
            With what was drawn.

        Raises
        ------
        ValueError
            If `feature` or `target` are needed and not given, or a parameter is out of range.
        """
        inside = Inside(estimator, "attention_weights")
        names = inside.names
        if (j := chosen_feature(feature, names)) is None:
            raise ValueError(
                f"feature must be given, since there are {len(names)}: {', '.join(names[:20])}."
            )
        queries = inside.rows(X)
        row = as_array(queries)
        row = row[[position("query", query, len(row), "queries", first=-len(row))]]
        keys, values = inside.model._training_rows()
        low, high = (edge(np.append(keys[:, j], row[0, j])) for edge in (np.min, np.max))
        grid = np.linspace(low, high, whole_number("n_points", n_points, 2))
        rows = np.repeat(row, n_points + 1, axis=0)
        rows[:-1, j] = grid
        rows = rows_like(queries, rows)
        fit = chosen_target(as_array(inside.model.predict(rows)), target)
        display = cls(
            weights=inside.model.attention_weights(rows_like(queries, row))[0],
            key_values=keys[:, j],
            targets=chosen_target(values, target),
            query_value=float(row[0, j]),
            prediction=float(fit[-1]),
            grid=grid,
            fit=fit[:-1],
            truth=None if truth is None else chosen_target(as_array(truth(rows))[:-1], target),
            feature_name=names[j],
        )
        return display.plot(ax, **plot_kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        max_rows: int | None = 2000,
        point_kwargs: Mapping[str, Any] | None = None,
        weight_kwargs: Mapping[str, Any] | None = None,
        line_kwargs: Mapping[str, Any] | None = None,
        truth_kwargs: Mapping[str, Any] | None = None,
    ) -> AttentionProfileDisplay:
        """Draw the weights below, data and fit above, over one feature.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure. The weights get a twin of it.
        max_rows : int, default=2000
            Of more training rows, so many are drawn, evenly spaced in their sorted order; the label
            of the axis says so. None draws all.
        point_kwargs, weight_kwargs, line_kwargs, truth_kwargs : dict, default=None
            Passed on to :meth:`matplotlib.axes.Axes.scatter` for the training rows, to
            :meth:`matplotlib.axes.Axes.vlines` for the weights, and to
            :meth:`matplotlib.axes.Axes.plot` for fit and truth.

        Returns
        -------
        self : AttentionProfileDisplay
            With what was drawn.
        """
        ax = self.ax_ = one_axes(ax)
        self.figure_, self.weight_ax_ = ax.figure, ax.twinx()
        rows = evenly_spaced(np.argsort(self.key_values, kind="stable"), max_rows)
        self._draw_weights(rows, weight_kwargs)
        self._draw_points(rows, point_kwargs)
        self.truth_line_, self.line_ = None, None
        if self.truth is not None:
            style = {"color": "0.6", "lw": 4, "alpha": 0.7, "label": "truth"}
            style = styled("Line2D", style, truth_kwargs)
            (self.truth_line_,) = ax.plot(self.grid, self.truth, **style)
        if self.fit is not None:
            style = styled("Line2D", {"color": "black", "label": "prediction"}, line_kwargs)
            (self.line_,) = ax.plot(self.grid, self.fit, **style)
        at = {"color": "tab:red", "label": f"query, predicted {self.prediction:.3g}"}
        self.query_line_ = ax.axvline(self.query_value, color="tab:red", ls=":")
        (self.prediction_,) = ax.plot(self.query_value, self.prediction, "D", ls="", **at)
        label = self.feature_name + shown_of(len(rows), len(self.weights))
        ax.set(xlabel=label, ylabel="target")
        low, high = ax.get_ylim()
        ax.set_ylim(low - _ROOM_BELOW * (high - low), high)
        ax.legend(fontsize="small", loc="upper right")
        return self

    def _draw_points(self, rows: Any, given: Any) -> None:
        weights = self.weights[rows]
        share = np.abs(weights) / max(float(np.abs(self.weights).max()), np.finfo(float).tiny)
        defaults = {
            "s": 6.0 + 70.0 * share,
            # not as alpha, which would fill hollow ones too
            "facecolors": [(0.12, 0.47, 0.71, 0.7 * (weight >= 0.0)) for weight in weights],
            "edgecolors": "0.35",
            "linewidths": 0.6,
            "label": "training rows, by weight",
        }
        style = styled("PathCollection", defaults, given)
        self.points_ = self.ax_.scatter(self.key_values[rows], self.targets[rows], **style)

    def _draw_weights(self, rows: Any, given: Any) -> None:
        weights, below = self.weights[rows], self.weight_ax_
        style = styled("LineCollection", {"colors": "tab:blue", "linewidths": 1.2}, given)
        self.weight_lines_ = below.vlines(self.key_values[rows], 0.0, weights, **style)
        low, high = min(0.0, float(weights.min())), max(0.0, float(weights.max()))
        reach = max(high - low, np.finfo(float).tiny)
        below.set_ylim(low - 0.05 * reach, low + _ROOM_ABOVE * reach)
        below.set_yticks([tick for tick in below.get_yticks() if low <= tick <= high])
        below.axhline(0.0, color="tab:blue", lw=0.6)
        below.set_ylabel("attention weight", color="tab:blue", loc="bottom")
        below.tick_params(axis="y", labelcolor="tab:blue")
        self.ax_.set_zorder(below.get_zorder() + 1)  # data over weights
        self.ax_.patch.set_visible(False)
