"""Display of one prediction, explained by its weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from skattn.inspection import _inputs as inputs
from skattn.inspection._drawing import Style, draw_line, one_axes, styled, twin_axes

# The weights take the lower part of the picture: their axis is so many times their range, that of
# the data is extended downwards by this share of theirs.
_WEIGHT_RANGES, _DATA_SHARE = 3.4, 0.45


@dataclass(eq=False, repr=False, kw_only=True)
class AttentionProfileDisplay:
    """The attention weights of one query over a feature, with the data and the fit.

    Use :meth:`from_estimator`; the constructor stores what it computes.

    Parameters
    ----------
    weights, key_values, targets : ndarray of shape (n_keys,)
        Weights of the training rows in the prediction, their feature and their targets.
    query_value, prediction : float
        The feature of the query, and the prediction there.
    grid, fit, truth : ndarray of shape (n_points,), default=None
        Values of the feature, ascending; predictions there, all other features as in the query;
        and the true values there, where they are known.
    feature_name : str, default="x0"
        Name of the feature.

    Attributes
    ----------
    figure_, ax_ : matplotlib Figure and matplotlib Axes
        The figure drawn on, and the axes of data and fit.
    weight_ax_ : matplotlib Axes
        The axes of the weights, on the same feature.
    points_ : matplotlib PathCollection
        The training rows, larger the more they weigh; those of negative weight are hollow.
    weight_lines_ : matplotlib LineCollection
        The weights, a line each.
    query_line_, prediction_ : matplotlib Line2D
        The position of the query, and the prediction.
    line_, truth_line_ : matplotlib Line2D
        The fit and the truth; None without them.

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

    weights: Any
    key_values: Any
    targets: Any
    query_value: float
    prediction: float
    grid: Any = None
    fit: Any = None
    truth: Any = None
    feature_name: str = "x0"

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
        """Draw the weights, data and fit behind one prediction of a fitted regressor.

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
            Position of the output to draw, where there are several.
        truth : callable, default=None
            Takes rows of shape (n_points, n_features), as the regressor sees them, and returns
            the true values there.
        n_points : int, default=200
            Number of values of the feature at which the fit is drawn.
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
        fitted = inputs.Fitted(estimator, "attention_weights")
        model, names = fitted.model, fitted.names
        if (j := inputs.chosen_feature(feature, names)) is None:
            raise ValueError(
                f"feature must be given, since there are {len(names)}: {inputs.listed(names)}."
            )
        queries = fitted.transform(X)
        row = inputs.as_array(queries)
        row = row[[inputs.position("query", query, len(row), "queries", first=-len(row))]]
        keys, values = model._training_rows()
        reach = np.append(keys[:, j], row[0, j])
        grid = np.linspace(reach.min(), reach.max(), inputs.whole_number("n_points", n_points, 2))
        rows = np.repeat(row, n_points + 1, axis=0)
        rows[:-1, j] = grid
        rows = inputs.rows_like(queries, rows)
        fit = inputs.chosen_target(model.predict(rows), target)
        return cls(
            weights=model.attention_weights(inputs.rows_like(queries, row))[0],
            key_values=keys[:, j],
            targets=inputs.chosen_target(values, target),
            query_value=float(row[0, j]),
            prediction=float(fit[-1]),
            grid=grid,
            fit=fit[:-1],
            truth=None if truth is None else inputs.chosen_target(truth(rows), target)[:-1],
            feature_name=names[j],
        ).plot(ax, **plot_kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        max_rows: int | None = 2000,
        point_kwargs: Style = None,
        weight_kwargs: Style = None,
        line_kwargs: Style = None,
        truth_kwargs: Style = None,
    ) -> AttentionProfileDisplay:
        """Draw the weights below, data and fit above, over one feature.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure. The weights get a twin of it.
        max_rows : int, default=2000
            Number of training rows drawn where there are more, evenly spaced in their sorted order;
            the label of the axis says so. None draws all.
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
        self.figure_, self.truth_line_, self.line_ = ax.figure, None, None
        rows = inputs.shown_rows(self.key_values, len(self.key_values), max_rows)
        self._draw_weights(rows, weight_kwargs)
        self._draw_points(rows, point_kwargs)
        if self.truth is not None:
            style = {"color": "0.6", "lw": 4, "alpha": 0.7, "label": "truth"}
            self.truth_line_ = draw_line(ax, self.grid, self.truth, truth_kwargs, **style)
        if self.fit is not None:
            style = {"color": "black", "label": "prediction"}
            self.line_ = draw_line(ax, self.grid, self.fit, line_kwargs, **style)
        self.query_line_ = ax.axvline(self.query_value, color="tab:red", ls=":")
        at = f"query, predicted {self.prediction:.3g}"
        style = {"color": "tab:red", "marker": "D", "ls": "", "label": at}
        self.prediction_ = draw_line(ax, self.query_value, self.prediction, **style)
        label = self.feature_name + inputs.shown_of(len(rows), len(self.weights))
        ax.set(xlabel=label, ylabel="target")
        low, high = ax.get_ylim()
        ax.set_ylim(low - _DATA_SHARE * (high - low), high)
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
        weights = self.weights[rows]
        below = self.weight_ax_ = twin_axes(self.ax_, "attention weight", "tab:blue", "bottom")
        style = styled("LineCollection", {"colors": "tab:blue", "linewidths": 1.2}, given)
        self.weight_lines_ = below.vlines(self.key_values[rows], 0.0, weights, **style)
        low, high = min(0.0, float(weights.min())), max(0.0, float(weights.max()))
        reach = max(high - low, np.finfo(float).tiny)
        below.set_ylim(low - 0.05 * reach, low + _WEIGHT_RANGES * reach)
        below.set_yticks([tick for tick in below.get_yticks() if low <= tick <= high])
        below.axhline(0.0, color="tab:blue", lw=0.6)
