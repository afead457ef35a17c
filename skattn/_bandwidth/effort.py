"""Effort of a search: how many rows, starts and steps are tried on a subsample."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

__all__ = ["SUBSAMPLES", "Effort"]

# Rows of the subsamples among whose minima is chosen, from few to many; a common bandwidth is
# sought on the last number of rows.
SUBSAMPLES = (250, 1000)
# Rows from which means need fewer starts, up to 3 features.
_MANY_ROWS = 250
_ALL = 1_000_000


@dataclass(frozen=True)
class Effort:
    """How much is tried on few rows: where rows are few or features many, minima are many.

    Attributes
    ----------
    n_rows : int
        Rows of the first subsample.
    n_random : int
        Starts without structure, besides those of the structure.
    least, most : int
        Range of the number of starts, the best of all, from which to descend.
    pairs : float
        Pairs of rows of all descents together: the number of starts, within its range.
    n_steps : int
        Steps of each descent.
    n_promising : int
        Results, the best of all, that are followed on more rows.
    """

    n_rows: int
    n_random: int
    least: int
    most: int
    pairs: float
    n_steps: int
    n_promising: int

    @classmethod
    def on(cls, n: int, d: int, degree: int) -> Effort:
        """Effort for n rows, d features and fits of some degree."""
        if degree == 0:
            least = max(30, int(np.sqrt(2e6 / d)))
            if n <= _MANY_ROWS or d > 3:
                return cls(min(100, least), 36, _ALL, _ALL, 0.0, 14, 5)
            return cls(min(64, least), 16, _ALL, _ALL, 0.0, 8, 4)
        # minima of lines depend more on single rows: choose late
        n_rows = n if n <= 300 and d <= 5 else min(200, n)
        if d == 2:
            return cls(n_rows, 60, 12, 48, 1.2e5, 8, 8)
        return cls(n_rows, 160, 24, 64, 4e5, 20, 8)

    def n_descents(self, n: int) -> int:
        """Number of starts from which to descend, for n rows."""
        return int(np.clip(self.pairs / n**2, self.least, self.most))
