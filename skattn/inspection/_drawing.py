"""Axes, styles, lines and ticks that displays share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Style = Mapping[str, Any] | None  # keyword arguments of an artist

# Weights below this share of the largest one are rounding where they are negative.
_ROUNDING = 1e-12
# Colours end where the weights beyond hold this share of all, unless the largest one is near.
_SATURATED, _NEAR = 0.25, 4.0
# Ticks closer than this share of an axis would overlap.
_TICK_GAP = 0.09


def several_axes(ax: Any, number: int, what: str, size: tuple[float, float]) -> NDArray[Any]:
    """Axes given, or new ones side by side, each of some size in inches."""
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            'Displays need Matplotlib, which is not installed: pip install "skattn[plot]".'
        ) from error
    if ax is None:
        figsize = number * size[0], size[1]
        return plt.subplots(1, number, squeeze=False, figsize=figsize, layout="constrained")[1][0]
    axes = np.array(ax, dtype=object).ravel()
    if len(axes) != number:
        raise ValueError(
            f"ax must hold {number} axes, one for each {what}; got {len(axes)}. Pass "
            f"plt.subplots(1, {number})[1], or None for new axes."
        )
    return axes


def one_axes(ax: Any) -> Any:
    """Axes given, or new ones."""
    return several_axes(ax, 1, "plot", (6.0, 4.0))[0]


def twin_axes(ax: Any, label: str, color: str | None = None, loc: str | None = None) -> Any:
    """New axes over the same x, labelled at the right, drawn below those given and their legend."""
    twin = ax.twinx()
    twin.set_ylabel(label, loc=loc)
    if color is not None:
        twin.yaxis.label.set_color(color)
        twin.tick_params(axis="y", labelcolor=color)
    ax.set_zorder(twin.get_zorder() + 1)
    ax.patch.set_visible(False)
    return twin


def styled(artist: str, defaults: Style, given: Style) -> Any:
    """Keyword arguments of a kind of artist, those given over the defaults; c is color."""
    from matplotlib import cbook, collections, image, lines, patches

    modules = (lines, patches, collections, image)
    kind = next(getattr(module, artist) for module in modules if hasattr(module, artist))
    merged: dict[str, Any] = {}
    for style in (defaults, given):
        merged |= cbook.normalize_kwargs(dict(style or {}), kind)
    return merged


def draw_line(ax: Any, x: Any, y: Any, given: Style = None, /, **style: Any) -> Any:
    """Line or markers in a default style, or in that given."""
    return ax.plot(x, y, **styled("Line2D", style, given))[0]


def weight_colors(weights: Array) -> dict[str, Any]:
    """Colour map and limits: from zero, or centred at zero where weights are negative too.

    A few weights far larger than all others, such as those of queries on themselves, would leave
    the others without a colour: then they share the last one.
    """
    sizes = np.sort(np.abs(weights[np.isfinite(weights)]))[::-1]
    largest = limit = float(sizes[0]) if sizes.size else 0.0
    if largest > 0.0:
        held = np.searchsorted(np.cumsum(sizes), _SATURATED * sizes.sum())
        limit = largest if largest <= _NEAR * sizes[held] else float(sizes[held])
    if (weights < -_ROUNDING * largest).any():
        return {"cmap": "RdBu_r", "vmin": -limit, "vmax": limit}
    return {"cmap": "viridis", "vmin": 0.0, "vmax": limit}


def log_ticks(axis: Any) -> None:
    """Plain numbers on a logarithmic axis."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    low, high = axis.get_view_interval()
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if high < 300.0 * low else (1.0,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def rank_ticks(axis: Any, ascending: Array) -> None:
    """Label an axis that counts rows with the values of those rows, round ones if there are many.

    A value stands in the middle of the rows that have it, or between those next to it.
    """
    from matplotlib.ticker import MaxNLocator

    values = np.unique(ascending)
    if len(values) > 6:
        values = np.asarray(MaxNLocator(6, steps=[1, 2, 5, 10]).tick_values(values[0], values[-1]))
        values = values[(values >= ascending[0]) & (values <= ascending[-1])]
    left, right = (np.searchsorted(ascending, values, side) for side in ("left", "right"))
    places = 0.5 * (left + right - 1)
    kept: list[int] = []
    for i, place in enumerate(places):
        if not kept or place - places[kept[-1]] >= _TICK_GAP * len(ascending):
            kept.append(i)
    axis.set_ticks(places[kept], [f"{values[i]:.4g}" for i in kept])
