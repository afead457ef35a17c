"""Display of the losses of training."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from skattn.inspection import _inputs as inputs
from skattn.inspection._drawing import Style, draw_line, one_axes, twin_axes

# Colours and styles, so that models differ in greyscale too.
_STYLES = ("-", "--", "-.", ":")


@dataclass(eq=False, repr=False, kw_only=True)
class LossCurveDisplay:
    """The loss after each step of training, and the score at validation rows, of some models.

    Use :meth:`from_estimator` or :meth:`from_estimators`; the constructor stores what they collect.

    Parameters
    ----------
    losses : dict of str to ndarray of shape (n_steps + 1,)
        The loss before the first step and after each, by the name of the model.
    validation_scores : dict of str to ndarray, default=None
        R squared at the validation rows, of the models that have any.

    Attributes
    ----------
    figure_, ax_ : matplotlib Figure and matplotlib Axes
        The figure drawn on, and the axes of the losses.
    validation_ax_ : matplotlib Axes
        The axes of the scores; None where no model has any.
    lines_, validation_lines_ : list of matplotlib Line2D
        The losses, a line for each model; and the scores, a line for each model that has any.

    Notes
    -----
    Losses of different solvers are different quantities: that of `GradientDescent` is a sum of
    squared errors, that of the others the logarithm of a mean with the penalty.

    Examples
    --------
    >>> import numpy as np
    >>> from skattn import ParametricAttentionRegressor
    >>> from skattn.inspection import LossCurveDisplay
    >>> X = np.linspace(0.0, 1.0, 40)[:, None]
    >>> model = ParametricAttentionRegressor().fit(X, np.sin(6 * X[:, 0]))
    >>> display = LossCurveDisplay.from_estimator(model)
    >>> len(display.line_.get_xdata()) == model.n_iter_ + 1
    True
    """

    losses: Any
    validation_scores: Any = None

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any = None,
        y: Any = None,
        *,
        name: str | None = None,
        ax: Any = None,
        **plot_kwargs: Any,
    ) -> LossCurveDisplay:
        """Draw the training of one fitted model.

        Parameters
        ----------
        estimator : ParametricAttentionRegressor
            Fitted; or a pipeline or search around one.
        X, y : None
            Ignored; here by convention.
        name : str, default=None
            Name of the model, for the legend; None is its class.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        **plot_kwargs : dict
            Passed on to :meth:`plot`.

        Returns
        -------
        display : LossCurveDisplay
            With what was drawn.

        Raises
        ------
        ValueError
            If the estimator has no losses.
        """
        name = name or type(inputs.Fitted(estimator).model).__name__
        return cls.from_estimators({name: estimator}, ax=ax, **plot_kwargs)

    @classmethod
    def from_estimators(
        cls, estimators: Mapping[str, Any], *, ax: Any = None, **plot_kwargs: Any
    ) -> LossCurveDisplay:
        """Draw the training of several fitted models.

        Parameters
        ----------
        estimators : dict of str to estimator
            Fitted, by name.
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure.
        **plot_kwargs : dict
            Passed on to :meth:`plot`.

        Returns
        -------
        display : LossCurveDisplay
            With what was drawn.

        Raises
        ------
        ValueError
            If an estimator has no losses.
        """
        losses, scores = {}, {}
        for name, estimator in estimators.items():
            model = inputs.Fitted(estimator).model
            if not getattr(model, "loss_curve_", None):
                raise ValueError(
                    f"estimators must be fitted and have a loss_curve_ that is not empty; "
                    f"{name!r} is a {type(model).__name__} without. Fit a "
                    "ParametricAttentionRegressor."
                )
            losses[name] = inputs.as_array(model.loss_curve_)
            if getattr(model, "validation_scores_", None):
                scores[name] = inputs.as_array(model.validation_scores_)
        return cls(losses=losses, validation_scores=scores).plot(ax, **plot_kwargs)

    def plot(
        self, ax: Any = None, *, line_kwargs: Style = None, validation_kwargs: Style = None
    ) -> LossCurveDisplay:
        """Draw the losses, and the scores at validation rows on an axis to the right.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; None makes a new figure. The scores get a twin of it.
        line_kwargs, validation_kwargs : dict, default=None
            Passed on to :meth:`matplotlib.axes.Axes.plot` for the losses and the scores.

        Returns
        -------
        self : LossCurveDisplay
            With what was drawn.
        """
        ax = self.ax_ = one_axes(ax)
        scores = self.validation_scores or {}
        self.figure_, self.validation_ax_ = ax.figure, None
        self.lines_, self.validation_lines_ = [], []
        if scores:
            self.validation_ax_ = twin_axes(ax, "R squared at rows held out (circles)")
        for i, (name, losses) in enumerate(self.losses.items()):
            style = {"color": f"C{i % 10}", "ls": _STYLES[i % 4], "label": name}
            drawn = ax, np.arange(len(losses)), losses
            self.lines_.append(draw_line(*drawn, line_kwargs, **style))
            if name in scores:
                style |= {"label": f"{name}, held out", "marker": "o", "mfc": "none", "lw": 0.8}
                held = self.validation_ax_, np.arange(len(scores[name])), scores[name]
                self.validation_lines_.append(draw_line(*held, validation_kwargs, **style))
        ax.set(xlabel="step", ylabel="training loss")
        ax.xaxis.get_major_locator().set_params(integer=True)
        ax.legend(handles=[*self.lines_, *self.validation_lines_], fontsize="small")
        return self

    @property
    def line_(self) -> Any:
        """The loss of the first model."""
        return self.lines_[0]
