"""Datasets: targets drawn around a curve that is known, to fit, to plot and to test on."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "make_damped_oscillation",
    "make_heteroscedastic",
    "make_power_sine",
    "make_regime_change",
]

Array = NDArray[np.float64]
RandomState = int | np.random.Generator | np.random.RandomState | None


def make_power_sine(
    n_samples: int = 50,
    *,
    noise: float = 0.5,
    random_state: RandomState = None,
    return_truth: bool = False,
) -> tuple[Array, ...]:
    r"""Textbook curve: a sine along a rising power.

    Dive into Deep Learning's example of attention as kernel regression [1]_,

    .. math::

        y = 2 \sin x + x^{0.8} + \varepsilon,

    with :math:`x` uniform on [0, 5) and normal noise.

    Parameters
    ----------
    n_samples : int, default=50
        Number of rows.
    noise : float, default=0.5
        Standard deviation of the noise.
    random_state : int, Generator, RandomState or None, default=None
        Source of rows and noise. An int gives the same ones at every call, None others.
    return_truth : bool, default=False
        Whether to return the targets without noise too.

    Returns
    -------
    X, y : ndarray of shape (n_samples, 1) and ndarray of shape (n_samples,)
        The feature, ascending, and the targets.
    truth : ndarray of shape (n_samples,)
        The targets without noise. Only if `return_truth`.

    References
    ----------
    .. [1] A. Zhang, Z. C. Lipton, M. Li and A. J. Smola (2023). Dive into Deep Learning.
       Cambridge University Press. Chapter 11, Attention Mechanisms and Transformers.

    Examples
    --------
    >>> from skattn import NadarayaWatsonRegressor
    >>> from skattn.datasets import make_power_sine
    >>> X, y, truth = make_power_sine(random_state=0, return_truth=True)
    >>> X.shape, y.shape
    ((50, 1), (50,))
    >>> error = NadarayaWatsonRegressor().fit(X, y).predict(X) - truth
    >>> bool((error**2).mean() < ((y - truth) ** 2).mean())
    True
    """
    x, rng = _rows(0.0, 5.0, n_samples, random_state)
    return _with_targets(x, 2.0 * np.sin(x) + x**0.8, noise, rng, return_truth)


def make_damped_oscillation(
    n_samples: int = 100,
    *,
    noise: float = 0.1,
    random_state: RandomState = None,
    return_truth: bool = False,
) -> tuple[Array, ...]:
    r"""An oscillation that dies away on both sides.

    .. math::

        y = \sin(x)\, e^{-0.1 x^2} + \varepsilon,

    with :math:`x` uniform on [-5, 5) and normal noise.

    Parameters
    ----------
    n_samples : int, default=100
        Number of rows.
    noise : float, default=0.1
        Standard deviation of the noise.
    random_state : int, Generator, RandomState or None, default=None
        Source of rows and noise. An int gives the same ones at every call, None others.
    return_truth : bool, default=False
        Whether to return the targets without noise too.

    Returns
    -------
    X, y : ndarray of shape (n_samples, 1) and ndarray of shape (n_samples,)
        The feature, ascending, and the targets.
    truth : ndarray of shape (n_samples,)
        The targets without noise. Only if `return_truth`.
    """
    x, rng = _rows(-5.0, 5.0, n_samples, random_state)
    return _with_targets(x, np.sin(x) * np.exp(-0.1 * x**2), noise, rng, return_truth)


def make_heteroscedastic(
    n_samples: int = 200,
    *,
    noise: float = 1.0,
    random_state: RandomState = None,
    return_truth: bool = False,
) -> tuple[Array, ...]:
    r"""A sine under noise that grows twentyfold from left to right.

    .. math::

        y = \sin(2 \pi x) + e^{3 (x - 1)}\, \varepsilon,

    with :math:`x` uniform on [0, 1) and normal noise :math:`\varepsilon`.

    Parameters
    ----------
    n_samples : int, default=200
        Number of rows.
    noise : float, default=1.0
        Standard deviation of the noise at the right end. At x it is ``noise * exp(3 * (x - 1))``:
        by default, 0.05 at the left end.
    random_state : int, Generator, RandomState or None, default=None
        Source of rows and noise. An int gives the same ones at every call, None others.
    return_truth : bool, default=False
        Whether to return the targets without noise too.

    Returns
    -------
    X, y : ndarray of shape (n_samples, 1) and ndarray of shape (n_samples,)
        The feature, ascending, and the targets.
    truth : ndarray of shape (n_samples,)
        The targets without noise: their mean at `X`, not how they spread. Only if `return_truth`.
    """
    x, rng = _rows(0.0, 1.0, n_samples, random_state)
    sd = noise * np.exp(3.0 * (x - 1.0))
    return _with_targets(x, np.sin(2.0 * np.pi * x), sd, rng, return_truth)


def make_regime_change(
    n_samples: int = 200,
    *,
    noise: float = 0.1,
    random_state: RandomState = None,
    return_truth: bool = False,
) -> tuple[Array, ...]:
    r"""A slow sine that becomes eight times as fast half-way.

    No one bandwidth serves both regimes:

    .. math::

        y = \varepsilon + \begin{cases}
            \sin(2 \pi x) & x < 1/2 \\
            \sin(16 \pi x) & x \ge 1/2,
        \end{cases}

    continuous, with :math:`x` uniform on [0, 1) and normal noise.

    Parameters
    ----------
    n_samples : int, default=200
        Number of rows.
    noise : float, default=0.1
        Standard deviation of the noise.
    random_state : int, Generator, RandomState or None, default=None
        Source of rows and noise. An int gives the same ones at every call, None others.
    return_truth : bool, default=False
        Whether to return the targets without noise too.

    Returns
    -------
    X, y : ndarray of shape (n_samples, 1) and ndarray of shape (n_samples,)
        The feature, ascending, and the targets.
    truth : ndarray of shape (n_samples,)
        The targets without noise. Only if `return_truth`.
    """
    x, rng = _rows(0.0, 1.0, n_samples, random_state)
    truth = np.sin(np.where(x < 0.5, 2.0, 16.0) * np.pi * x)
    return _with_targets(x, truth, noise, rng, return_truth)


def _rows(low: float, high: float, n_samples: int, random_state: RandomState) -> tuple[Array, Any]:
    """Ascending values of the feature, and a generator for the noise: never the global one."""
    rng: Any = random_state
    if not isinstance(rng, np.random.RandomState):
        rng = np.random.default_rng(rng)
    return np.sort(rng.uniform(low, high, n_samples)), rng


def _with_targets(
    x: Array, truth: Array, noise: float | Array, rng: Any, return_truth: bool
) -> tuple[Array, ...]:
    """Rows and targets drawn around the truth, which comes third if wanted."""
    y = rng.normal(truth, noise)
    return (x[:, None], y, truth) if return_truth else (x[:, None], y)
