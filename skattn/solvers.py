"""Solvers: how the loss of a :class:`~skattn.ParametricAttentionRegressor` is minimised.

Each is a small object of parameters, for ``solver=``; searches reach them as ``solver__max_iter``.
"""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any, ClassVar

from numpy.typing import NDArray
from sklearn.base import BaseEstimator

from skattn._optimize.first_order import Batches, adam, gradient_descent, lbfgs
from skattn._optimize.gauss_newton import gauss_newton
from skattn._optimize.monitor import Bounds, Loss, Monitor, Trained
from skattn._sklearn import Interval

__all__ = ["LBFGS", "Adam", "GaussNewton", "GradientDescent", "Solver"]

_POSITIVE = Interval(Real, 0, None, closed="neither")
_NOT_NEGATIVE = Interval(Real, 0, None, closed="left")
_COUNT = Interval(Integral, 1, None, closed="left")


class Solver(BaseEstimator):
    """Base class of solvers.

    A solver has parameters, `max_iter` among them, and `minimize`.
    """

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {}
    #: Steps without a better score at validation rows, after which training stops.
    patience = 10

    def minimize(
        self, loss: Loss, start: NDArray[Any], bounds: Bounds, monitor: Monitor, seed: int
    ) -> Trained:
        """Minimise a loss.

        Parameters
        ----------
        loss : Loss
            Function of parameters; returns its value, gradient and Hessian.
        start : ndarray of shape (n_parameters,)
            First parameters.
        bounds : Bounds
            Bounds of the parameters.
        monitor : Monitor
            Sees the start and every step, and says when to stop.
        seed : int
            Seed of whatever is drawn.

        Returns
        -------
        Trained
            The best parameters, and how they were reached.
        """
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

    _parameter_constraints: ClassVar = {"max_iter": [_COUNT], "tol": [_NOT_NEGATIVE]}

    def __init__(self, max_iter=100, tol=1e-4):  # type: ignore[no-untyped-def]
        self.max_iter = max_iter
        self.tol = tol

    def minimize(
        self, loss: Loss, start: NDArray[Any], bounds: Bounds, monitor: Monitor, seed: int
    ) -> Trained:
        """Minimise a loss; parameters as for :meth:`Solver.minimize`."""
        return gauss_newton(loss, start, bounds, self.tol, self.max_iter, monitor)


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

    _parameter_constraints: ClassVar = {"max_iter": [_COUNT], "tol": [_NOT_NEGATIVE]}

    def __init__(self, max_iter=100, tol=1e-4):  # type: ignore[no-untyped-def]
        self.max_iter = max_iter
        self.tol = tol

    def minimize(
        self, loss: Loss, start: NDArray[Any], bounds: Bounds, monitor: Monitor, seed: int
    ) -> Trained:
        """Minimise a loss; parameters as for :meth:`Solver.minimize`."""
        return lbfgs(loss, start, bounds, self.tol, self.max_iter, monitor)


class Adam(Solver):
    """Steps of Adam, with gradients at some of the queries at a time.

    Parameters
    ----------
    learning_rate : float, default=0.05
        Length of a step in each parameter. 0.003 for networks.
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
        "learning_rate": [_POSITIVE],
        "batch_size": [_COUNT],
        "max_iter": [_COUNT],
        "patience": [_COUNT],
        "tol": [_NOT_NEGATIVE],
    }

    def __init__(self, learning_rate=0.05, batch_size=200, max_iter=100, patience=10, tol=1e-4):  # type: ignore[no-untyped-def]
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.patience = patience
        self.tol = tol

    def minimize(
        self, loss: Loss, start: NDArray[Any], bounds: Bounds, monitor: Monitor, seed: int
    ) -> Trained:
        """Minimise a loss; parameters as for :meth:`Solver.minimize`."""
        batches = Batches(self.batch_size, self.learning_rate, self.patience, seed)
        return adam(loss, start, bounds, self.tol, self.max_iter, monitor, batches)


class GradientDescent(Solver):
    """Plain gradient descent on the sum of squared errors, in w itself: the textbook's recipe [1]_.

    Features and targets stay as they are, the parameters are the factors w, and the penalty is
    `alpha` times their norm. For ``metric="scalar"`` or ``"diagonal"`` at degree 0, from a number
    in `init`.

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
    >>> model = ParametricAttentionRegressor(
    ...     metric="scalar",
    ...     kernel="gaussian",
    ...     degree=0,
    ...     init=1.0,
    ...     alpha=0,
    ...     solver=GradientDescent(learning_rate=0.5, max_iter=5),
    ... )
    >>> model.fit(X, y).n_iter_
    5
    """

    _parameter_constraints: ClassVar = {"learning_rate": [_POSITIVE], "max_iter": [_COUNT]}

    def __init__(self, learning_rate=0.5, max_iter=5):  # type: ignore[no-untyped-def]
        self.learning_rate = learning_rate
        self.max_iter = max_iter

    def minimize(
        self, loss: Loss, start: NDArray[Any], bounds: Bounds, monitor: Monitor, seed: int
    ) -> Trained:
        """Take the steps; parameters as for :meth:`Solver.minimize`."""
        return gradient_descent(loss, start, self.learning_rate, self.max_iter, monitor)
