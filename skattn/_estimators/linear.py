"""The linear metric, with its parameters."""

from __future__ import annotations

from numbers import Integral
from typing import ClassVar

from sklearn.base import BaseEstimator

from skattn._sklearn import Interval

__all__ = ["Linear"]


class Linear(BaseEstimator):
    """A linear map before distances, for ``metric=``; ``metric="linear"`` is ``Linear()``.

    It is learned from the best diagonal metric, towards which it is shrunk.

    Parameters
    ----------
    n_components : int, default=None
        Number of coordinates, at most that of features (twice as many with ranks). None is one for
        each feature; ranks then keep a factor of their own each.
    ranks : bool, default=False
        Whether the ranks of the features join them: what counts may be how many training rows lie
        between two values. Local lines are in the features.

    Examples
    --------
    >>> from skattn import Linear, ParametricAttentionRegressor
    >>> model = ParametricAttentionRegressor(metric=Linear(n_components=2))
    """

    _parameter_constraints: ClassVar = {
        "n_components": [Interval(Integral, 1, None, closed="left"), None],
        "ranks": ["boolean"],
    }

    def __init__(self, n_components=None, ranks=False):
        self.n_components = n_components
        self.ranks = ranks
