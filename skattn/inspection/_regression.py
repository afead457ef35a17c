"""Display of a fit: a curve with its band, or a surface."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import numpy as np

from skattn.inspection import _inputs as inputs
from skattn.inspection._drawing import Array, Style, draw_line, one_axes, styled


@dataclass(eq=False, repr=False, kw_only=True)
class RegressionDisplay:
    """Predictions over one feature with their band, or over two as a surface, with the data.

    Made by :meth:`from_estimator` or :meth:`from_predictions`; the constructor stores the results.

    Parameters
    ----------
    grid : ndarray of shape (n_points,), or pair of such
        Values of the feature, ascending; of two features, those of each.
    prediction : ndarray of shape (n_points,) or (n_second, n_first)
        Predictions there.
    lower, upper : ndarray of shape (n_points,), default=None
        The band.
    band_name : str, default=None
        Name of the band, for the legend.
    data_values : ndarray of shape (n_rows,) or (n_rows, 2), default=None
        Features of the data.
    targets : ndarray of shape (n_rows,), default=None
        Targets of the data.
    feature_names : tuple of str, default=("x0",)
        Names of the one or two features.

    Attributes
    ----------
    figure_, ax_ : matplotlib Figure and matplotlib Axes
        The figure and the axes drawn on.
    line_ : matplotlib Line2D
        The curve; None for a surface.
    band_ : matplotlib PolyCollection
        The band; None without one.
    surface_, colorbar_ : matplotlib QuadMesh and matplotlib Colorbar
        The surface and the colour bar of it; None for a curve.
    points_ : matplotlib PathCollection
        The data; None without.

    See Also
    --------
    PredictionIntervalDisplay : Whether intervals cover what they should.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn import NadarayaWatsonRegressor
    >>> from skattn.inspection import RegressionDisplay
    >>> X = np.linspace(0.0, 1.0, 30)[:, None]
    >>> y = np.sin(6.0 * X[:, 0])
    >>> model = NadarayaWatsonRegressor().fit(X, y)
    >>> RegressionDisplay.from_estimator(model, X, y).band_.get_label()
    '90 % prediction interval'
    """

    grid: Any
    prediction: Any
    lower: Any = None
    upper: Any = None
    band_name: str | None = None
    data_values: Any = None
    targets: Any = None
    feature_names: tuple[str, ...] = ("x0",)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any = None,
        *,
        features: Any = None,
        band: str | None = "interval",
        coverage: float = 0.9,
        local: bool = False,
        target: int | None = None,
        n_points: int = 200,
        ax: Any = None,
        **plot_kwargs: Any,
    ) -> RegressionDisplay:
        """Draw the predictions of a fitted regressor over the range of some rows.

        Parameters
        ----------
        estimator : estimator
            Fitted; or a pipeline or search around one, whose features before all steps count here.
        X : array-like of shape (n_rows, n_features)
            Rows of numbers. Predictions are drawn over their range; features that are not drawn are
            held at their medians.
        y : array-like of shape (n_rows,) or (n_rows, n_outputs), default=None
            Their targets, drawn if given.
        features : int, str or pair of these, default=None
            Position or name of the feature of a curve, or of the two of a surface; None is all, of
            one or two.
        band : {"interval", "std"} or None, default="interval"
            The band around a curve: the prediction interval; two standard errors to either side; or
            none. A surface has none.
        coverage : float, default=0.9
            Coverage of the interval.
        local : bool, default=False
            Whether the width of the interval or the standard error varies with the noise.
        target : int, default=None
            Position of the output to draw, where there are several.
        n_points : int, default=200
            Number of values of a feature to predict at; a surface has a quarter of it for each.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        **plot_kwargs : dict
            Passed on to :meth:`plot`.

        Returns
        -------
        display : RegressionDisplay
            With what was drawn.

        Raises
        ------
        ValueError
            If a parameter is out of range, or `features` or `target` is needed and not given.
        TypeError
            If the regressor has no intervals, or no standard errors, to draw a band of.
        """
        if band not in ("interval", "std", None):
            raise ValueError(f"band must be 'interval', 'std' or None; got {band!r}.")
        data = inputs.as_array(X)
        names = inputs.feature_names(getattr(X, "columns", None), data.shape[1])
        chosen = _chosen(features, names)
        axes, rows = _mesh(data, chosen, n_points)
        rows, is_curve = inputs.rows_like(X, rows), len(chosen) == 1
        prediction = inputs.chosen_target(estimator.predict(rows), target)
        lower, upper, name = None, None, None
        if is_curve and band == "interval":
            fitted = inputs.Fitted(estimator, "predict_interval")
            lower, upper = fitted.interval(rows, coverage, local, target)
            name = f"{100 * coverage:g} % prediction interval"
        elif is_curve and band == "std":
            reach = 2.0 * _standard_errors(estimator, rows, local, target)
            lower, upper, name = prediction - reach, prediction + reach, "± 2 standard errors"
        held = " (other features at their medians)" if len(chosen) < len(names) else ""
        labels = [names[j] for j in chosen]
        return cls(
            grid=axes[0] if is_curve else tuple(axes),
            prediction=prediction.reshape([len(values) for values in axes[::-1]]),
            lower=lower,
            upper=upper,
            band_name=name,
            data_values=data[:, chosen[0] if is_curve else chosen],
            targets=None if y is None else inputs.chosen_target(y, target),
            feature_names=(labels[0] + held, *labels[1:]),
        ).plot(ax, **plot_kwargs)

    @classmethod
    def from_predictions(
        cls,
        grid: Any,
        prediction: Any,
        *,
        lower: Any = None,
        upper: Any = None,
        band_name: str | None = "band",
        data_values: Any = None,
        targets: Any = None,
        feature_name: str = "x0",
        ax: Any = None,
        **plot_kwargs: Any,
    ) -> RegressionDisplay:
        """Draw a curve from predictions.

        Parameters
        ----------
        grid, prediction : array-like or tensor of shape (n_points,)
            Values of a feature, in any order, and predictions there.
        lower, upper : array-like or tensor of shape (n_points,), default=None
            The band; both or neither.
        band_name : str, default="band"
            Name of the band, for the legend.
        data_values, targets : array-like or tensor of shape (n_rows,), default=None
            The data; both or neither.
        feature_name : str, default="x0"
            Name of the feature.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        **plot_kwargs : dict
            Passed on to :meth:`plot`.

        Returns
        -------
        display : RegressionDisplay
            With what was drawn.

        Raises
        ------
        ValueError
            If the lengths differ, or half of a pair is missing.
        """
        curve = _columns({"grid": grid, "prediction": prediction, "lower": lower, "upper": upper})
        data = _columns({"data_values": data_values, "targets": targets})
        order = np.argsort(inputs.as_array(grid).ravel(), kind="stable")
        curve = {name: None if v is None else v[order] for name, v in curve.items()}
        display = cls(**curve, **data, band_name=band_name, feature_names=(feature_name,))
        return display.plot(ax, **plot_kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        max_rows: int | None = 2000,
        line_kwargs: Style = None,
        band_kwargs: Style = None,
        surface_kwargs: Style = None,
        point_kwargs: Style = None,
    ) -> RegressionDisplay:
        """Draw the curve or the surface.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        max_rows : int, default=2000
            Number of rows of data drawn where there are more, evenly spaced in the order of the
            first feature; the label of the axis says so. None draws all.
        line_kwargs, band_kwargs, surface_kwargs, point_kwargs : dict, default=None
            Passed on to :meth:`matplotlib.axes.Axes.plot` for the curve,
            :meth:`matplotlib.axes.Axes.fill_between` for the band,
            :meth:`matplotlib.axes.Axes.pcolormesh` for the surface, and
            :meth:`matplotlib.axes.Axes.scatter` for the data.

        Returns
        -------
        self : RegressionDisplay
            With what was drawn.
        """
        ax = self.ax_ = one_axes(ax)
        self.figure_ = ax.figure
        self.line_ = self.band_ = self.surface_ = self.colorbar_ = self.points_ = None
        if len(self.feature_names) == 2:
            self._draw_surface(max_rows, surface_kwargs, point_kwargs)
            return self
        label = self.feature_names[0] + self._draw_points(max_rows, {"c": "0.55"}, point_kwargs)
        if self.lower is not None:
            style = {"color": "tab:blue", "alpha": 0.25, "linewidth": 0, "label": self.band_name}
            style = styled("PolyCollection", style, band_kwargs)
            self.band_ = ax.fill_between(self.grid, self.lower, self.upper, **style)
        style = {"color": "black", "label": "prediction"}
        self.line_ = draw_line(ax, self.grid, self.prediction, line_kwargs, **style)
        ax.set(xlabel=label, ylabel="target")
        ax.legend(fontsize="small")
        return self

    def _draw_points(self, max_rows: int | None, look: Any, given: Any) -> str:
        """Draw the data; return the addition to the label of the first feature."""
        if self.targets is None:
            return ""
        features = self.data_values.reshape(len(self.targets), -1)
        rows = inputs.shown_rows(features[:, 0], len(features), max_rows)
        x, second, targets = features[rows, 0], features[rows, -1], self.targets[rows]
        is_curve = features.shape[1] == 1
        style = {"s": 10.0, "linewidths": 0.5, "label": "data", "c": targets, **look}
        style = styled("PathCollection", style, given)
        self.points_ = self.ax_.scatter(x, targets if is_curve else second, **style)
        return inputs.shown_of(len(rows), len(self.targets))

    def _draw_surface(self, max_rows: int | None, surface_kwargs: Any, point_kwargs: Any) -> None:
        known = np.append(self.prediction, [] if self.targets is None else self.targets)
        limits = {"cmap": "viridis", "vmin": np.nanmin(known), "vmax": np.nanmax(known)}
        style = styled("QuadMesh", {"shading": "nearest", **limits}, surface_kwargs)
        self.surface_ = self.ax_.pcolormesh(*self.grid, self.prediction, **style)
        self.colorbar_ = self.figure_.colorbar(self.surface_, ax=self.ax_, label="target")
        look = {**limits, "s": 24.0, "edgecolors": "white"}
        more = self._draw_points(max_rows, look, point_kwargs)
        self.ax_.set(xlabel=self.feature_names[0] + more, ylabel=self.feature_names[1])


def _mesh(data: Array, chosen: list[int], n_points: int) -> tuple[list[Array], Array]:
    """Values of the chosen features over their range, and rows with the others at medians."""
    n_points = inputs.whole_number("n_points", n_points, 2)
    n_each = n_points if len(chosen) == 1 else max(2, n_points // 4)
    axes = [np.linspace(data[:, j].min(), data[:, j].max(), n_each) for j in chosen]
    columns = [values.ravel() for values in np.meshgrid(*axes)]
    rows = np.repeat(np.median(data, axis=0)[None], columns[0].size, axis=0)
    rows[:, chosen] = np.column_stack(columns)
    return axes, rows


def _standard_errors(estimator: Any, rows: Any, local: bool, target: int | None) -> Array:
    fitted = inputs.Fitted(estimator)
    if "return_std" not in inspect.signature(fitted.model.predict).parameters:
        raise TypeError(
            "band='std' needs a regressor whose predict takes return_std; got "
            f"{type(fitted.model).__name__}. Pass one of skattn's, or band=None."
        )
    rows = fitted.transform(rows)
    std = fitted.model.predict(rows, return_std="local" if local else True)[1]
    return inputs.chosen_target(std, target)


def _chosen(features: Any, names: list[str]) -> list[int]:
    if features is None and len(names) > 2:
        raise ValueError(
            f"features must name one or two of the {len(names)} features; got None. The names are "
            f"{inputs.listed(names)}."
        )
    given = range(len(names)) if features is None else np.atleast_1d(np.asarray(features, object))
    chosen = [inputs.feature_position(feature, names, "features") for feature in given]
    if len(chosen) not in (1, 2) or len(set(chosen)) < len(chosen):
        raise ValueError(
            f"features must be one feature, or a pair of different ones; got {features!r}."
        )
    return chosen


def _columns(given: dict[str, Any]) -> dict[str, Array | None]:
    """Columns of one length, of which the last two belong together."""
    columns = {name: None if v is None else inputs.as_array(v).ravel() for name, v in given.items()}
    lengths = {name: len(values) for name, values in columns.items() if values is not None}
    first, second = list(columns)[-2:]
    if len(set(lengths.values())) > 1 or (columns[first] is None) != (columns[second] is None):
        raise ValueError(
            f"{', '.join(columns)} must have one length, and {first} and {second} be given "
            f"together; got lengths {lengths}."
        )
    return columns
