"""How training went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from skattn.inspection._drawing import one_axes, styled
from skattn.inspection._inputs import Inside, as_array

# Colours and styles, so that models differ in greyscale too.
_STYLES = ("-", "--", "-.", ":")


class LossCurveDisplay:
    """The loss after each step of training, and the score at rows held out, of some models.

    Use :meth:`from_estimator` or :meth:`from_estimators`; the constructor stores what they collect.

    Parameters
    ----------
    losses : dict of str to ndarray of shape (n_steps + 1,)
        The loss before the first step and after each, by the name of the model.
    validation_scores : dict of str to ndarray, default=None
        R squared at the rows held out, of the models that held any out.

    Attributes
    ----------
    figure_ : matplotlib Figure
        The figure drawn on.
    ax_ : matplotlib Axes
        The axes of the losses.
    validation_ax_ : matplotlib Axes
        The axes of the scores; None where no model has any.
    lines_ : list of matplotlib Line2D
        The losses, a line for each model.
    validation_lines_ : list of matplotlib Line2D
        The scores, a line for each model that has any.

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

    def __init__(self, *, losses: Any, validation_scores: Any = None) -> None:
        self.losses = losses
        self.validation_scores = validation_scores

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
        name = name or type(Inside(estimator).model).__name__
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
            model = Inside(estimator).model
            if not getattr(model, "loss_curve_", None):
                raise ValueError(
                    f"estimators must be fitted and have a loss_curve_ that is not empty; "
                    f"{name!r} is a {type(model).__name__} without. Fit a "
                    "ParametricAttentionRegressor."
                )
            losses[name] = as_array(model.loss_curve_)
            if getattr(model, "validation_scores_", None):
                scores[name] = as_array(model.validation_scores_)
        return cls(losses=losses, validation_scores=scores).plot(ax, **plot_kwargs)

    def plot(
        self,
        ax: Any = None,
        *,
        line_kwargs: Mapping[str, Any] | None = None,
        validation_kwargs: Mapping[str, Any] | None = None,
    ) -> LossCurveDisplay:
        """Draw the losses, and the scores at rows held out on an axis to the right.

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
        self.figure_, self.validation_ax_ = ax.figure, ax.twinx() if scores else None
        self.lines_, self.validation_lines_ = [], []
        for i, (name, losses) in enumerate(self.losses.items()):
            look = {"color": f"C{i % 10}", "ls": _STYLES[i % 4]}
            style = styled("Line2D", {**look, "label": name}, line_kwargs)
            self.lines_ += ax.plot(np.arange(len(losses)), losses, **style)
            if self.validation_ax_ is not None and name in scores:
                self.validation_ax_.set_ylabel("R squared at rows held out (circles)")
                held = {**look, "marker": "o", "mfc": "none", "lw": 0.8}
                held = styled("Line2D", {**held, "label": f"{name}, held out"}, validation_kwargs)
                places = np.arange(len(scores[name]))
                self.validation_lines_ += self.validation_ax_.plot(places, scores[name], **held)
        ax.set(xlabel="step", ylabel="training loss")
        ax.xaxis.get_major_locator().set_params(integer=True)
        if self.validation_ax_ is not None:
            ax.set_zorder(self.validation_ax_.get_zorder() + 1)  # the legend over both
            ax.patch.set_visible(False)
        ax.legend(handles=[*self.lines_, *self.validation_lines_], fontsize="small")
        return self

    @property
    def line_(self) -> Any:
        """The loss of the first model."""
        return self.lines_[0]
