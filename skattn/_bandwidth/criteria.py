"""Criteria: how good a bandwidth is, from errors and the trace of the smoother matrix.

A criterion is one class, and one entry of `CRITERIA`. Squares are the mean squared errors of each
output in units of its variance; the trace is that of the smoother matrix; n is the number of rows.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from skattn._geometry.training_set import Exclusion, TrainingSet

__all__ = [
    "CRITERIA",
    "INFINITE",
    "CorrectedAkaike",
    "Criterion",
    "GeneralizedCrossValidation",
    "LeaveOneOut",
]

Array = NDArray[np.float64]

# Mean squares, in units of the variance, that are rounding of an exact fit.
_EXACT = 1e-30
# Stands for an infinite criterion where arithmetic is done with it.
INFINITE = 1e100
# Fits of a smaller share of rows that are not used up interpolate.
_INTERPOLATES = 1e-12


class Criterion(ABC):
    """Judgement of fits to training rows; lower is better.

    Attributes
    ----------
    name : str
        Name that users write.
    leaves_out : bool
        Whether each row is predicted without itself.
    is_logarithm : bool
        Whether values are logarithms of squares.
    """

    name: ClassVar[str]
    leaves_out: ClassVar[bool] = False
    is_logarithm: ClassVar[bool] = False

    def excluded(self, training_set: TrainingSet) -> Exclusion:
        """Keys that each row must not see; otherwise its own key, retained, whose weight counts."""
        return training_set.nothing()

    @abstractmethod
    def value(self, squares: Array, trace: Array, n: float) -> Array:
        """Values (...,) of squares (..., n_outputs) and traces (...,); inf for interpolation."""

    @abstractmethod
    def slopes(self, squares: Array, trace: Array, n: float) -> tuple[Array, Array]:
        """Derivatives in squares (..., n_outputs) and trace (...,); zero where values are inf."""

    def unit(self, value: float) -> float:
        """Size that differences are measured by: the value, or one if it is a logarithm."""
        return 1.0 if self.is_logarithm else min(abs(value), INFINITE)

    @property
    def of_an_exact_fit(self) -> float:
        """The value where all errors are zero."""
        return -np.inf if self.is_logarithm else 0.0


class LeaveOneOut(Criterion):
    """Mean squared error of predictions of each row without itself."""

    name = "loo"
    leaves_out = True

    def excluded(self, training_set: TrainingSet) -> Exclusion:
        """One unit of each row, its copies, or its group."""
        return training_set.leave_one_out()

    def value(self, squares: Array, trace: Array, n: float) -> Array:
        """The mean over outputs."""
        return np.asarray(squares.mean(axis=-1))

    def slopes(self, squares: Array, trace: Array, n: float) -> tuple[Array, Array]:
        """Shares of the outputs."""
        return np.full_like(squares, 1.0 / squares.shape[-1]), np.zeros_like(trace)


class GeneralizedCrossValidation(Criterion):
    """Mean r**2 / (1 - tr S / n)**2 (Craven and Wahba, 1979)."""

    name = "gcv"

    def value(self, squares: Array, trace: Array, n: float) -> Array:
        """The mean over outputs."""
        left = 1.0 - trace / n
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.where(left > _INTERPOLATES, squares.mean(axis=-1) / left**2, np.inf)

    def slopes(self, squares: Array, trace: Array, n: float) -> tuple[Array, Array]:
        """Derivatives of the quotient."""
        left = 1.0 - trace / n
        usable = left > _INTERPOLATES
        inverse = np.where(usable, 1.0 / np.where(usable, left, 1.0), 0.0)
        by_squares = np.broadcast_to((inverse**2 / squares.shape[-1])[..., None], squares.shape)
        return by_squares, 2.0 * squares.mean(axis=-1) * inverse**3 / n


class CorrectedAkaike(Criterion):
    """log(mean r**2) + (1 + tr S / n) / (1 - (tr S + 2) / n) (Hurvich, Simonoff and Tsai, 1998)."""

    name = "aicc"
    is_logarithm = True

    def value(self, squares: Array, trace: Array, n: float) -> Array:
        """The mean over outputs; inf where the denominator is not positive."""
        left = 1.0 - (trace + 2.0) / n
        with np.errstate(divide="ignore", invalid="ignore"):
            fit = np.log(np.maximum(squares, _EXACT)).mean(axis=-1)
            return np.where(left > _INTERPOLATES, fit + (1.0 + trace / n) / left, np.inf)

    def slopes(self, squares: Array, trace: Array, n: float) -> tuple[Array, Array]:
        """Derivatives of the logarithm and of the penalty."""
        left = 1.0 - (trace + 2.0) / n
        usable = left > _INTERPOLATES
        inverse = np.where(usable, 1.0 / np.where(usable, left, 1.0), 0.0)
        by_squares = usable[..., None] / (np.maximum(squares, _EXACT) * squares.shape[-1])
        return by_squares, (inverse + (1.0 + trace / n) * inverse**2) / n


# A new criterion is one entry.
CRITERIA: dict[str, Criterion] = {
    each.name: each for each in (LeaveOneOut(), GeneralizedCrossValidation(), CorrectedAkaike())
}
