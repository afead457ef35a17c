"""Solvers: how the loss of a :class:`~skattn.ParametricAttentionRegressor` is minimised.

Each is a small object of parameters, for ``solver=``; searches reach them as ``solver__max_iter``.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from skattn._optimize.first_order import adam, gradient_descent, lbfgs
from skattn._optimize.levenberg_marquardt import LevenbergMarquardt
from skattn._optimize.monitor import Task, Trained
from skattn._sklearn import Interval

__all__ = ["LBFGS", "Adam", "GaussNewton", "GradientDescent", "Solver"]

_POSITIVE = [Interval(Real, 0, None, closed="neither")]
_NOT_NEGATIVE = [Interval(Real, 0, None, closed="left")]
_COUNT = [Interval(Integral, 1, None, closed="left")]
# Longest Gauss-Newton step in the logarithm of any factor.
_LONGEST = 1.5

Array = NDArray[np.float64]


class Solver(BaseEstimator):
    """Base class of solvers, which have parameters, `max_iter` among them, and `minimize`."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}
    #: Steps without a better score at validation rows, after which training stops.
    patience = 10

    def minimize(self, task: Task) -> Trained:
        """Minimise a loss: the task names it, a start, bounds, a monitor and a seed."""
        raise NotImplementedError(f"{type(self).__name__} defines no minimize.")


class GaussNewton(Solver):
    """Damped Gauss-Newton steps (Levenberg and Marquardt): few, each with all derivatives.

    For metrics; variants have no Jacobian in closed form.

    Parameters
    ----------
    max_iter : int, default=100
        Largest number of steps. A linear metric is learned in two stages of so many each: the
        diagonal one it starts from, and its entries.
    tol : float, default=1e-4
        Training has converged when a step lowers the loss by less.
    """

    _parameter_constraints: ClassVar = {"max_iter": _COUNT, "tol": _NOT_NEGATIVE}

    def __init__(self, max_iter=100, tol=1e-4):  # type: ignore[no-untyped-def]
        self.max_iter = max_iter
        self.tol = tol

    def minimize(self, task: Task) -> Trained:
        """Minimise a loss."""

        def linearize(points: Array) -> tuple[Array, Array, Array]:
            values, gradients, matrices = zip(*map(task.loss, points), strict=True)
            return np.array(values), np.stack(gradients), np.stack(matrices)

        method = LevenbergMarquardt(self.tol, self.max_iter, longest=_LONGEST)
        found = method.minimize(linearize, task.start[None], task.bounds, monitor=task.monitor)
        return task.monitor.trained(found.best, found.history, converged=found.has_converged)


class LBFGS(Solver):
    """L-BFGS steps, SciPy's: more, each with a gradient.

    Parameters
    ----------
    max_iter : int, default=100
        Largest number of steps, of each stage as in :class:`GaussNewton`.
    tol : float, default=1e-4
        Training has converged when a step lowers the loss by less, relative to the loss where that
        is above 1.
    """

    _parameter_constraints: ClassVar = {"max_iter": _COUNT, "tol": _NOT_NEGATIVE}

    def __init__(self, max_iter=100, tol=1e-4):  # type: ignore[no-untyped-def]
        self.max_iter = max_iter
        self.tol = tol

    def minimize(self, task: Task) -> Trained:
        """Minimise a loss."""
        return lbfgs(task, self.tol, self.max_iter)


class Adam(Solver):
    """Steps of Adam, with gradients at some of the queries at a time.

    Parameters
    ----------
    learning_rate : float, default=0.05
        Length of a step in each parameter; 0.003 suits networks.
    batch_size : int, default=200
        Number of queries at a time.
    max_iter : int, default=100
        Largest number of epochs, of each stage as in :class:`GaussNewton`.
    patience : int, default=10
        Epochs without a lower loss, by `tol`, after which training has converged; and, with
        validation rows, without a better score at them.
    tol : float, default=1e-4
        By how much a lower loss has to be lower.
    """

    _parameter_constraints: ClassVar = {
        "learning_rate": _POSITIVE,
        "batch_size": _COUNT,
        "max_iter": _COUNT,
        "patience": _COUNT,
        "tol": _NOT_NEGATIVE,
    }

    def __init__(self, learning_rate=0.05, batch_size=200, max_iter=100, patience=10, tol=1e-4):  # type: ignore[no-untyped-def]
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.patience = patience
        self.tol = tol

    def minimize(self, task: Task) -> Trained:
        """Minimise a loss."""
        epochs = self.batch_size, self.max_iter, self.patience
        return adam(task, self.tol, self.learning_rate, *epochs)


class GradientDescent(Solver):
    """Plain gradient descent on the sum of squared errors, in w itself.

    This is the recipe of the textbook [1]_: features and targets stay as they are, the parameters
    are the factors w, and the penalty is `alpha` times their norm. For ``metric="scalar"`` or
    ``"diagonal"`` at degree 0, from a number in `init`.

    Parameters
    ----------
    learning_rate : float, default=0.5
        Factor of the gradient in each step.
    max_iter : int, default=5
        Number of steps; all of them are taken, and the last w is kept.

    References
    ----------
    .. [1] A. Zhang, Z. C. Lipton, M. Li and A. J. Smola (2023). Dive into Deep Learning, chapter
       11.2. Cambridge University Press.

    Examples
    --------
    >>> from skattn import ParametricAttentionRegressor
    >>> from skattn.datasets import make_power_sine
    >>> from skattn.solvers import GradientDescent
    >>> X, y = make_power_sine(50, random_state=0)
    >>> recipe = GradientDescent(learning_rate=0.5, max_iter=5)
    >>> model = ParametricAttentionRegressor(
    ...     "scalar", kernel="gaussian", degree=0, init=1.0, alpha=0, solver=recipe
    ... )
    >>> model.fit(X, y).n_iter_
    5
    """

    _parameter_constraints: ClassVar = {"learning_rate": _POSITIVE, "max_iter": _COUNT}

    def __init__(self, learning_rate=0.5, max_iter=5):  # type: ignore[no-untyped-def]
        self.learning_rate = learning_rate
        self.max_iter = max_iter

    def minimize(self, task: Task) -> Trained:
        """Take the steps."""
        return gradient_descent(task, self.learning_rate, self.max_iter)
