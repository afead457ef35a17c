"""Display of attention weights: heat maps, and bars."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from skattn.inspection import _inputs as inputs
from skattn.inspection._drawing import Array, Style, rank_ticks, several_axes, styled, weight_colors


@dataclass(eq=False, repr=False, kw_only=True)
class AttentionDisplay:
    """Attention weights of queries on training rows: a heat map, or bars for a few queries.

    Use :meth:`from_estimator` or :meth:`from_weights`; the constructor stores what they compute.

    Parameters
    ----------
    weights : ndarray of shape (n_queries, n_keys) or (n_heads, n_queries, n_keys)
        The weights, in the order of queries and keys as they were given.
    query_values, key_values : ndarray of shape (n_queries,) and of shape (n_keys,), default=None
        Values of a feature, by which queries and training rows are sorted. None leaves them in
        their order.
    feature_name : str, default=None
        Name of that feature, for labels.

    Attributes
    ----------
    figure_, ax_ : matplotlib Figure and matplotlib Axes
        The figure and the first of the axes drawn on.
    axes_ : ndarray of matplotlib Axes
        All axes drawn on: one for each head, or each query of bars.
    image_, images_ : matplotlib AxesImage and list of matplotlib AxesImage
        The heat map of the first head, None for bars; and those of all heads.
    colorbar_ : matplotlib Colorbar
        The colour bar that all heads share; None for bars, or without one.
    bars_ : list of matplotlib BarContainer
        The bars of each query; empty for a heat map.

    See Also
    --------
    AttentionProfileDisplay : The weights of one query, with data and fit.
    leave_row_out_effect : How much predictions change without a training row.

    Notes
    -----
    A weight tells how much the target of a training row counts in a prediction. It is no measure of
    how important a row or a feature is: see :func:`leave_row_out_effect`.

    All weights are kept, O(n_queries * n_keys) numbers: of many queries, pass some.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn import NadarayaWatsonRegressor
    >>> from skattn.inspection import AttentionDisplay
    >>> X = np.array([[2.0], [0.0], [1.0]])
    >>> model = NadarayaWatsonRegressor(1.0).fit(X, [1.0, 2.0, 3.0])
    >>> display = AttentionDisplay.from_estimator(model, X)
    >>> np.asarray(display.image_.get_array()).round(2)  # sorted: 0, 1, 2
    array([[0.57, 0.35, 0.08],
           [0.27, 0.45, 0.27],
           [0.08, 0.35, 0.57]])
    """

    weights: Any
    query_values: Any = None
    key_values: Any = None
    feature_name: str | None = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        feature: int | str | None = None,
        ax: Any = None,
        **plot_kwargs: Any,
    ) -> AttentionDisplay:
        """Draw the attention weights of a fitted regressor.

        Parameters
        ----------
        estimator : estimator
            Fitted, with `attention_weights`; or a pipeline or search around one.
        X : array-like of shape (n_queries, n_features) or None
            The queries. None stands for the training rows, each without itself. In a pipeline
            they pass the steps before, and features are what those return.
        y : None
            Ignored; here by convention.
        feature : int or str, default=None
            Position or name of the feature to sort by. None is the only one, or none.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        **plot_kwargs : dict
            Passed on to :meth:`plot`.

        Returns
        -------
        display : AttentionDisplay
            With what was drawn.

        Raises
        ------
        ValueError
            If there is no such feature.
        """
        fitted = inputs.Fitted(estimator, "attention_weights")
        queries, names = fitted.transform(X), fitted.names
        display = cls(weights=fitted.model.attention_weights(queries))
        if (j := inputs.chosen_feature(feature, names)) is not None:
            keys = fitted.model._training_rows()[0]
            display.query_values = (keys if queries is None else inputs.as_array(queries))[:, j]
            display.key_values, display.feature_name = keys[:, j], names[j]
        return display.plot(ax, **plot_kwargs)

    @classmethod
    def from_weights(
        cls,
        weights: Any,
        *,
        query_values: Any = None,
        key_values: Any = None,
        feature_name: str | None = None,
        ax: Any = None,
        **plot_kwargs: Any,
    ) -> AttentionDisplay:
        """Draw attention weights from wherever they come, such as a layer of a network.

        Parameters
        ----------
        weights : array-like or tensor of shape (n_queries, n_keys) or (n_heads, n_queries, n_keys)
            Arrays, sparse arrays and tensors, on any device and with or without gradients.
        query_values, key_values : array-like or tensor, default=None
            Values to sort queries and keys by, and to label the axes with.
        feature_name : str, default=None
            Name of these values.
        ax : matplotlib Axes, or one for each head, default=None
            Where to draw; None makes a new figure.
        **plot_kwargs : dict
            Passed on to :meth:`plot`.

        Returns
        -------
        display : AttentionDisplay
            With what was drawn.

        Raises
        ------
        ValueError
            If the shapes do not fit.
        """
        array = inputs.as_array(weights)
        if array.ndim not in (2, 3):
            raise ValueError(
                "weights must have shape (n_queries, n_keys) or (n_heads, n_queries, n_keys); got "
                f"{array.shape}. Choose one of a batch, such as weights[0]."
            )
        return cls(
            weights=array,
            query_values=_values(query_values, array.shape[-2], "query_values"),
            key_values=_values(key_values, array.shape[-1], "key_values"),
            feature_name=feature_name,
        ).plot(ax, **plot_kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        kind: str = "heatmap",
        queries: Sequence[int] | None = None,
        top_k: int = 10,
        max_rows: int | None = 500,
        colorbar: bool = True,
        image_kwargs: Style = None,
        bar_kwargs: Style = None,
    ) -> AttentionDisplay:
        """Draw the weights.

        Parameters
        ----------
        ax : matplotlib Axes, or one for each head or each query of bars, default=None
            Where to draw; None makes a new figure.
        kind : {"heatmap", "bars"}, default="heatmap"
            A heat map has a line for each query and a column for each training row, all of one
            size; values on the axes are those of the rows there. Bars show the training rows of
            largest absolute weight of a few queries.
        queries : sequence of int, default=None
            Positions of the queries to show. None is all for a heat map, the first for bars.
        top_k : int, default=10
            Number of training rows that the bars show.
        max_rows : int, default=500
            A heat map of more queries or training rows shows so many of each, evenly spaced in
            their sorted order; the label of the axis says so. None shows all.
        colorbar : bool, default=True
            Whether to add a colour bar.
        image_kwargs, bar_kwargs : dict, default=None
            Passed on to :meth:`matplotlib.axes.Axes.imshow` and :meth:`matplotlib.axes.Axes.barh`.

        Returns
        -------
        self : AttentionDisplay
            With what was drawn.

        Raises
        ------
        ValueError
            If a parameter is out of range.
        """
        if kind not in ("heatmap", "bars"):
            raise ValueError(f"kind must be 'heatmap' or 'bars'; got {kind!r}.")
        n_queries = self.weights.shape[-2]
        if queries is None:
            queries = range(n_queries if kind == "heatmap" else 1)
        shown = inputs.positions("queries", queries, n_queries, "queries")
        self.image_: Any = None
        self.colorbar_: Any = None
        self.images_: list[Any] = []
        self.bars_: list[Any] = []
        if kind == "bars":
            self._draw_bars(ax, shown, top_k, bar_kwargs)
            return self
        self._draw_images(ax, shown, max_rows, image_kwargs)
        if colorbar:
            self._add_colorbar()
        return self

    def _draw_images(self, ax: Any, shown: Any, max_rows: int | None, given: Any) -> None:
        heads = self.weights if self.weights.ndim == 3 else self.weights[None]
        axes = self._on(several_axes(ax, len(heads), "head", (4.6, 4.0)))
        values = None if self.query_values is None else self.query_values[shown]
        rows = shown[inputs.shown_rows(values, len(shown), max_rows)]
        columns = inputs.shown_rows(self.key_values, heads.shape[-1], max_rows)
        origin = "upper" if values is None else "lower"
        defaults = {**weight_colors(heads), "aspect": "auto", "origin": origin}
        style = styled("AxesImage", defaults, given)
        if "norm" in style:
            style = {key: style[key] for key in style if key not in ("vmin", "vmax")}
        self.images_ = [
            panel.imshow(head[np.ix_(rows, columns)], **style)
            for panel, head in zip(axes, heads, strict=True)
        ]
        self.image_ = self.images_[0]
        name = self._label("training row", self.key_values, columns, heads.shape[-1])
        for head, panel in enumerate(axes):
            panel.set_xlabel(name if len(heads) == 1 else f"{name}, head {head}")
            _tick(panel.xaxis, self.key_values, columns)
            _tick(panel.yaxis, self.query_values, rows)
        axes[0].set_ylabel(self._label("query", self.query_values, rows, len(shown)))

    def _add_colorbar(self) -> None:
        low, high = self.image_.get_clim()
        beyond = self.weights > high, self.weights < low
        extend = ("neither", "max", "min", "both")[beyond[0].any() + 2 * beyond[1].any()]
        self.colorbar_ = self.figure_.colorbar(
            self.image_, ax=list(self.axes_), label="attention weight", extend=extend
        )

    def _draw_bars(self, ax: Any, shown: Any, top_k: int, given: Any) -> None:
        if self.weights.ndim != 2:
            raise ValueError(
                f"kind='bars' needs the weights of one head; got {len(self.weights)} heads. Pass "
                "those of one, weights[0]."
            )
        top_k = inputs.whole_number("top_k", top_k, 1)
        axes = self._on(several_axes(ax, len(shown), "query", (4.2, 3.6)))
        for panel, query in zip(axes, shown, strict=True):
            weights = self.weights[query]
            rows = np.argsort(-np.abs(weights), kind="stable")[:top_k][::-1]
            places, largest = np.arange(len(rows)), weights[rows]
            hatches = ["" if weight >= 0.0 else "///" for weight in largest]
            style = {"color": "tab:blue", "edgecolor": "black", "hatch": hatches}
            self.bars_.append(panel.barh(places, largest, **styled("Rectangle", style, given)))
            panel.set_yticks(places, [self._named(row) for row in rows])
            whole = f"{len(rows)} of {len(weights):,} rows, sum {largest.sum():.2f}"
            at = "" if self.query_values is None else f" at {self.query_values[query]:.3g}"
            panel.set_xlabel(f"attention weight ({whole})")
            panel.set_ylabel(f"training row, query {query}{at}")
            panel.axvline(0.0, color="black", lw=0.8)

    def _on(self, axes: Any) -> Any:
        self.axes_, self.ax_, self.figure_ = axes, axes[0], axes[0].figure
        return axes

    def _label(self, what: str, values: Any, shown: Any, total: int) -> str:
        name = what if values is None else f"{self.feature_name or 'value'} of the {what}"
        return name + inputs.shown_of(len(shown), total)

    def _named(self, row: int) -> str:
        if self.key_values is None:
            return str(row)
        return f"{row} ({self.feature_name or 'value'} {self.key_values[row]:.3g})"


def _values(values: Any, number: int, name: str) -> Array | None:
    if values is None:
        return None
    array = inputs.as_column(values)
    if array.shape != (number,):
        raise ValueError(
            f"{name} must hold one value for each, shape ({number},); got {array.shape}. "
            "Choose one feature, such as X[:, 0]."
        )
    return array


def _tick(axis: Any, values: Array | None, shown: Any) -> None:
    if values is not None:
        rank_ticks(axis, values[shown])
    elif len(shown) and not np.array_equal(shown, np.arange(len(shown))):
        places = np.unique(np.linspace(0, len(shown) - 1, 6).astype(int))
        axis.set_ticks(places, [str(shown[place]) for place in places])
