"""Display of prediction intervals beside the targets that were observed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from skattn.inspection import _inputs as inputs
from skattn.inspection._drawing import Style, draw_line, one_axes, styled


@dataclass(eq=False, repr=False, kw_only=True)
class PredictionIntervalDisplay:
    """Prediction intervals beside the targets observed: how many are inside, and where.

    Made by :meth:`from_estimator` or :meth:`from_predictions`; the constructor stores the results.

    Parameters
    ----------
    targets, lower, upper : ndarray of shape (n_queries,)
        Observed targets, and bounds of the intervals.
    coverage : float, default=None
        The share of targets that was to be inside.

    Attributes
    ----------
    figure_, ax_ : matplotlib Figure and matplotlib Axes
        The figure and the axes drawn on.
    intervals_ : matplotlib LineCollection
        The intervals, a line each.
    hits_, misses_ : matplotlib Line2D
        The targets inside, and those outside.

    See Also
    --------
    skattn.NadarayaWatsonRegressor.predict_interval : How intervals are computed.

    Notes
    -----
    Queries with a bound that is NaN, such as those outside the support of all keys with
    ``extrapolation="nan"``, have no interval that could be missed: they are left out of the picture
    and of the coverage, and the legend says how many.

    Examples
    --------
    >>> from skattn.inspection import PredictionIntervalDisplay
    >>> intervals = [[0.0, 1.0], [1.0, 4.0], [2.0, 3.0]]
    >>> display = PredictionIntervalDisplay.from_predictions([0.5, 2.0, 9.0], intervals)
    >>> display.misses_.get_label()
    '1 of 3 missed (coverage 66.7 %)'
    """

    targets: Any
    lower: Any
    upper: Any
    coverage: float | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        coverage: float = 0.9,
        local: bool = False,
        target: int | None = None,
        ax: Any = None,
        **plot_kwargs: Any,
    ) -> PredictionIntervalDisplay:
        """Draw the intervals of a fitted regressor at rows that it has not seen.

        Parameters
        ----------
        estimator : estimator
            Fitted, with `predict_interval`; or a pipeline or search around one.
        X : array-like of shape (n_queries, n_features)
            Rows that were not in the training.
        y : array-like of shape (n_queries,) or (n_queries, n_outputs)
            Their targets, none of them NaN.
        coverage : float, default=0.9
            The share of targets that is to be inside.
        local : bool, default=False
            Whether the width follows the noise.
        target : int, default=None
            Position of the output to draw, where there are several.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        **plot_kwargs : dict
            Passed on to :meth:`plot`.

        Returns
        -------
        display : PredictionIntervalDisplay
            With what was drawn.

        Raises
        ------
        ValueError
            If a parameter is out of range, a target is NaN, or no query has an interval.
        """
        bounds = inputs.Fitted(estimator, "predict_interval").interval(X, coverage, local, target).T
        targets = inputs.chosen_target(y, target)
        return cls.from_predictions(targets, bounds, coverage=coverage, ax=ax, **plot_kwargs)

    @classmethod
    def from_predictions(
        cls,
        y: Any,
        intervals: Any,
        *,
        coverage: float | None = None,
        ax: Any = None,
        **plot_kwargs: Any,
    ) -> PredictionIntervalDisplay:
        """Draw intervals from wherever they come.

        Parameters
        ----------
        y : array-like or tensor of shape (n_queries,)
            Observed targets, none of them NaN.
        intervals : array-like or tensor of shape (n_queries, 2)
            Lower and upper bounds; NaN for queries without an interval, which are left out.
        coverage : float, default=None
            The share of targets that was to be inside.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        **plot_kwargs : dict
            Passed on to :meth:`plot`.

        Returns
        -------
        display : PredictionIntervalDisplay
            With what was drawn.

        Raises
        ------
        ValueError
            If the shapes do not fit, a target is NaN, or no query has an interval.
        """
        targets, bounds = inputs.as_column(y), inputs.as_array(intervals)
        if targets.ndim != 1 or bounds.shape != (len(targets), 2):
            raise ValueError(
                "intervals must have shape (n_queries, 2) and y shape (n_queries,); got "
                f"{bounds.shape} and {targets.shape}. Choose one output of several."
            )
        lower, upper = bounds.T
        display = cls(targets=targets, lower=lower, upper=upper, coverage=coverage)
        return display.plot(ax, **plot_kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        order: str = "width",
        max_rows: int | None = 300,
        interval_kwargs: Style = None,
        hit_kwargs: Style = None,
        miss_kwargs: Style = None,
    ) -> PredictionIntervalDisplay:
        """Draw the intervals side by side, and the targets inside and outside of them.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        order : {"width", "middle"}, default="width"
            Whether intervals are sorted by their width, and drawn around zero, or by their middle,
            and drawn where they are.
        max_rows : int, default=300
            Number of queries drawn where there are more, evenly spaced in that order; the label of
            the axis says so. None draws all. The coverage in the legend is always that of all
            queries that have an interval.
        interval_kwargs, hit_kwargs, miss_kwargs : dict, default=None
            Passed on to :meth:`matplotlib.axes.Axes.vlines` for the intervals, and to
            :meth:`matplotlib.axes.Axes.plot` for targets inside and outside.

        Returns
        -------
        self : PredictionIntervalDisplay
            With what was drawn.

        Raises
        ------
        ValueError
            If `order` is none of these, a target is NaN, or no query has an interval.
        """
        if order not in ("width", "middle"):
            raise ValueError(f"order must be 'width' or 'middle'; got {order!r}.")
        known = self._with_interval()
        ax = self.ax_ = one_axes(ax)
        self.figure_ = ax.figure
        middle = 0.5 * (self.lower + self.upper)
        by = self.upper - self.lower if order == "width" else middle
        rows = known[inputs.shown_rows(by[known], len(known), max_rows)]
        base = middle[rows] if order == "width" else np.zeros(len(rows))
        style = {"colors": "tab:blue", "alpha": 0.45, "linewidths": max(0.7, 180 / len(rows))}
        style = styled("LineCollection", {**style, "label": "interval"}, interval_kwargs)
        ends = self.lower[rows] - base, self.upper[rows] - base
        self.intervals_ = ax.vlines(np.arange(len(rows)), *ends, **style)
        self._draw_targets(known, rows, base, hit_kwargs, miss_kwargs)
        ax.set_xlabel(f"query, by {order} of the interval" + inputs.shown_of(len(rows), len(known)))
        ax.set_ylabel("target less middle" if order == "width" else "target")
        ax.legend(fontsize="small")
        return self

    def _with_interval(self) -> Any:
        """Positions of the queries whose bounds are known; all targets must be."""
        n_queries, unknown = len(self.targets), int(np.isnan(self.targets).sum())
        if unknown:
            raise ValueError(
                f"y must be known for every query; got NaN for {unknown:,} of {n_queries:,}. Leave "
                "those queries out: whether their targets are inside cannot be told."
            )
        known = np.flatnonzero(~np.isnan(self.lower) & ~np.isnan(self.upper))
        if known.size == 0:
            raise ValueError(
                "intervals must be known for one query at least; got NaN for all "
                f"{n_queries:,}. Regressors with extrapolation='nearest' have intervals everywhere."
            )
        return known

    def _draw_targets(self, known: Any, rows: Any, base: Any, hit: Style, miss: Style) -> None:
        inside = (self.lower <= self.targets) & (self.targets <= self.upper)
        heights = self.targets[rows] - base
        hits, misses = np.flatnonzero(inside[rows]), np.flatnonzero(~inside[rows])
        style = {"color": "0.25", "marker": ".", "ls": "", "ms": 4, "label": "target inside"}
        self.hits_ = draw_line(self.ax_, hits, heights[hits], hit, **style)
        asked = "" if self.coverage is None else f", asked for {100 * self.coverage:g} %"
        missed = f"{(~inside[known]).sum():,} of {len(known):,} missed"
        label = f"{missed} (coverage {100 * inside[known].mean():.1f} %{asked})"
        if len(known) < len(inside):
            label += f",\n{len(inside) - len(known):,} without interval left out"
        style = {"color": "tab:red", "marker": "x", "ls": "", "ms": 6, "label": label}
        self.misses_ = draw_line(self.ax_, misses, heights[misses], miss, **style)
