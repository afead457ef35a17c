"""Local fits: what is read off the moments of a query. Degree 0 is the local mean."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from skattn._attention import Moments

__all__ = ["Fit", "LocalFit", "LocalMean"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Fit:
    """Predictions, and what else was read off the moments.

    Attributes
    ----------
    prediction : ndarray of shape (n_queries, n_outputs)
        The fit at the query.
    leverage : ndarray of shape (n_queries,)
        Weight of the query's own keys in the prediction, as far as it is retained.
    """

    prediction: Array
    leverage: Array

    @property
    def ill_conditioned(self) -> NDArray[np.bool_]:
        """Queries whose moments rounding has spoilt, to be computed again from differences."""
        return np.zeros(len(self.leverage), dtype=bool)

    def write(self, queries: Indices, other: Any) -> None:
        """Overwrite the fits of some queries."""
        for field in fields(self):
            mine = getattr(self, field.name)
            if isinstance(mine, np.ndarray):
                mine[queries] = getattr(other, field.name)


class LocalFit(Protocol):
    """Another reading of the products of degree 0 or 1: it knows no engine.

    Attributes
    ----------
    degree : {0, 1}
        Degree of the products that it reads.
    """

    @property
    def degree(self) -> int:
        """Degree of the products that it reads."""
        ...

    def read(self, moments: Moments, queries: Array | None) -> Fit:
        """Fit at each query.

        Parameters
        ----------
        moments : Moments
            Sums of `Products` of this degree; totals are positive.
        queries : ndarray of shape (n_queries, n_directions) or None
            Regressors of the queries; None at degree 0.
        """
        ...

    def smoother_rows(self, fit: Any, weights: Array, regressors: Array | None) -> Array:
        """Rows of the smoother matrix, (n_queries, n_keys): their products with values are fits.

        Parameters
        ----------
        fit : Fit
            What `read` returned.
        weights : ndarray of shape (n_queries, n_keys)
            Attention weights.
        regressors : ndarray of shape (n_keys, n_directions) or None
            Regressors of the keys.
        """
        ...


@dataclass(frozen=True)
class LocalMean:
    """The attention-weighted mean of the values: Nadaraya-Watson."""

    degree: int = 0

    def read(self, moments: Moments, queries: Array | None) -> Fit:
        """Weighted means; the leverage is the weight of the own keys."""
        return Fit(moments.sums / moments.total[:, None], moments.own / moments.total)

    def smoother_rows(self, fit: Fit, weights: Array, regressors: Array | None) -> Array:
        """The attention weights themselves."""
        return weights
