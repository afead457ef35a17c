"""Display of a selection criterion against the bandwidth."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.base import clone

from skattn.inspection import _inputs as inputs
from skattn.inspection._drawing import Array, Style, draw_line, log_ticks, one_axes, twin_axes

# Labels of the criteria on an axis.
_NAMES = {
    "loo": "mean squared leave-one-out error",
    "gcv": "generalised cross-validation",
    "aicc": "corrected AIC",
}
# The axis of the criterion ends at so many times the median rise above the minimum.
_MOST_RISE = 10.0


@dataclass(eq=False, repr=False, kw_only=True)
class BandwidthDisplay:
    """A selection criterion and the effective degrees of freedom against the bandwidth.

    Use :meth:`from_estimator`; the constructor stores what it computes.

    Parameters
    ----------
    bandwidths, values : ndarray of shape (n_bandwidths,)
        Bandwidths of the only feature, or multiples of the fitted ones, ascending; and the
        criterion there.
    effective_dof : ndarray of shape (n_bandwidths,), default=None
        Effective degrees of freedom there.
    fitted : float, default=None
        The fitted bandwidth, in the same unit.
    criterion : {"loo", "gcv", "aicc"}, default="loo"
        Name of the criterion.
    bandwidth_name : str, default="bandwidth"
        Name of the bandwidths, for the axis.

    Attributes
    ----------
    figure_, ax_ : matplotlib Figure and matplotlib Axes
        The figure drawn on, and the axes of the criterion.
    dof_ax_ : matplotlib Axes
        The axes of the degrees of freedom; None without them.
    line_, minimum_ : matplotlib Line2D
        The criterion, and the least value of it.
    fitted_line_, dof_line_ : matplotlib Line2D
        The fitted bandwidth and the degrees of freedom; None without them.

    See Also
    --------
    skattn.NadarayaWatsonRegressor.criterion_curve : The criterion as numbers.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn import NadarayaWatsonRegressor
    >>> from skattn.inspection import BandwidthDisplay
    >>> rng = np.random.default_rng(0)
    >>> X = rng.uniform(size=(100, 1))
    >>> y = np.sin(6 * X[:, 0]) + 0.2 * rng.standard_normal(100)
    >>> display = BandwidthDisplay.from_estimator(NadarayaWatsonRegressor(), X, y)
    >>> bool(display.bandwidths[display.values.argmin()] == display.fitted)
    True
    """

    bandwidths: Any
    values: Any
    effective_dof: Any = None
    fitted: float | None = None
    criterion: str = "loo"
    bandwidth_name: str = "bandwidth"

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        groups: Any = None,
        criterion: str | None = None,
        multiples: Any = None,
        effective_dof: bool = True,
        ax: Any = None,
        **plot_kwargs: Any,
    ) -> BandwidthDisplay:
        """Draw the criterion around the bandwidth that an estimator chooses.

        Parameters
        ----------
        estimator : NadarayaWatsonRegressor
            Not `adaptive`; or a pipeline that ends in one, or a fitted search over either, which
            stands for the best it found. It is left as it is: a copy is fitted.
        X : array-like of shape (n_samples, n_features)
            The training rows. In a pipeline they pass the steps before, and bandwidths are in units
            of what those return.
        y : array-like of shape (n_samples,) or (n_samples, n_outputs)
            Their targets.
        sample_weight, groups : array-like of shape (n_samples,), default=None
            Passed to `fit` of the regressor; the steps before it in a pipeline do without.
        criterion : {"loo", "gcv", "aicc"}, default=None
            Criterion to draw; None is the one the estimator chooses by, or "loo".
        multiples : array-like of shape (n_bandwidths,), default=None
            Multiples of the fitted bandwidths to draw it at. None is 41 from 1/16 to 16. Features
            that are smoothed out remain so.
        effective_dof : bool, default=True
            Whether to compute the effective degrees of freedom, which takes
            O(n_bandwidths * n_samples ** 2) time.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        **plot_kwargs : dict
            Passed on to :meth:`plot`.

        Returns
        -------
        display : BandwidthDisplay
            With what was drawn.

        Raises
        ------
        ValueError
            If a parameter is out of range, the estimator is adaptive, or all features are smoothed
            out.
        TypeError
            If the estimator is, or ends in, another regressor.
        """
        before, model = inputs.unwrapped(estimator, "criterion_curve", "a NadarayaWatsonRegressor")
        name, factors = _criterion(model, criterion), _factors(multiples)
        if before is not None:
            X = clone(before).fit_transform(X, y)
        model = _fitted(model, X, y, sample_weight=sample_weight, groups=groups)
        rows, is_one = factors[:, None] * model.bandwidth_, len(model.bandwidth_) == 1
        fitted = float(model.bandwidth_[0]) if is_one else 1.0
        return cls(
            bandwidths=factors * fitted,
            values=model.criterion_curve(rows, criterion=name),
            effective_dof=_dof(model, rows, X, y, sample_weight) if effective_dof else None,
            fitted=fitted,
            criterion=name,
            bandwidth_name="bandwidth" if is_one else "multiple of the bandwidths",
        ).plot(ax, **plot_kwargs)

    def plot(
        self, ax: Any = None, *, line_kwargs: Style = None, dof_kwargs: Style = None
    ) -> BandwidthDisplay:
        """Draw the criterion, and the degrees of freedom on an axis to the right.

        Where the criterion rises to more than ten times the median of its rises above the minimum,
        it leaves the axes.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure. The degrees of freedom get a twin of it.
        line_kwargs, dof_kwargs : dict, default=None
            Passed on to :meth:`matplotlib.axes.Axes.plot` for the criterion and the degrees of
            freedom.

        Returns
        -------
        self : BandwidthDisplay
            With what was drawn.
        """
        ax = self.ax_ = one_axes(ax)
        self.figure_, self.dof_ax_, self.dof_line_ = ax.figure, None, None
        self.fitted_line_ = None
        if self.effective_dof is not None:
            self._draw_dof(dof_kwargs)
        self.line_ = draw_line(ax, self.bandwidths, self.values, line_kwargs, color="black")
        least = int(np.nanargmin(self.values))
        label = f"least, at {self.bandwidths[least]:.3g}"
        style = {"color": "tab:red", "marker": "o", "ls": "", "ms": 8, "label": label}
        self.minimum_ = draw_line(ax, self.bandwidths[least], self.values[least], **style)
        if self.fitted is not None:
            style = {"color": "0.5", "ls": ":", "label": f"fitted, {self.fitted:.3g}"}
            self.fitted_line_ = ax.axvline(self.fitted, **style)
        ax.set(xscale="log", xlabel=self.bandwidth_name)
        ax.set_ylabel(_NAMES.get(self.criterion, self.criterion))
        log_ticks(ax.xaxis)
        self._clip_criterion()
        ax.legend(fontsize="small", loc="upper center")  # where neither curve runs
        return self

    def _clip_criterion(self) -> None:
        """Let values far above most others leave the axes: the minimum is to be seen."""
        values = np.asarray(self.values)[np.isfinite(self.values)]
        low = float(values.min(initial=np.inf))
        reach = _MOST_RISE * float(np.median(values - low)) if values.size else 0.0
        if 0.0 < reach < values.max() - low:
            self.ax_.set_ylim(low - 0.05 * reach, low + reach)

    def _draw_dof(self, given: Any) -> None:
        label = "effective degrees of freedom (dashed)"
        twin = self.dof_ax_ = twin_axes(self.ax_, label, "tab:blue")
        style = {"color": "tab:blue", "ls": "--"}
        self.dof_line_ = draw_line(twin, self.bandwidths, self.effective_dof, given, **style)
        twin.set(yscale="log")
        log_ticks(twin.yaxis)


def _criterion(model: Any, criterion: str | None) -> str:
    """The criterion asked for, or the one that a regressor of fixed bandwidths chooses by."""
    if model.adaptive is not None:
        raise ValueError(
            f"BandwidthDisplay draws fixed bandwidths; got adaptive={model.adaptive!r}. Use "
            "criterion_curve with numbers of neighbors."
        )
    chosen_by = model.bandwidth if isinstance(model.bandwidth, str) else "loo"
    return criterion or (chosen_by if chosen_by in _NAMES else "loo")


def _factors(multiples: Any) -> Array:
    """Multiples in ascending order."""
    if multiples is None:
        return np.geomspace(1 / 16, 16, 41)
    factors = np.sort(inputs.as_array(multiples))
    if factors.ndim != 1 or not (np.isfinite(factors) & (factors > 0.0)).all():
        raise ValueError(f"multiples must be positive finite numbers; got {multiples!r}.")
    return factors


def _fitted(model: Any, X: Any, y: Any, **fit: Any) -> Any:
    """A fitted copy, some of whose bandwidths are finite."""
    model = clone(model).fit(X, y, **fit)
    if not np.isfinite(model.bandwidth_).any():
        raise ValueError(
            "bandwidth_ is infinite for every feature, since none helps to predict: it has no "
            "multiples. Give a finite bandwidth."
        )
    return model


def _dof(model: Any, bandwidths: Array, X: Any, y: Any, sample_weight: Any) -> Array:
    """Effective degrees of freedom at each of some bandwidths."""
    fits = (clone(model).set_params(bandwidth=bandwidth) for bandwidth in bandwidths)
    return np.array([fit.fit(X, y, sample_weight=sample_weight).effective_dof_ for fit in fits])
