"""What to learn, and how: resolved parameters of a `ParametricAttentionRegressor`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from skattn.kernels import Kernel
from skattn.solvers import Solver
from skattn.variants import Variant

__all__ = ["MetricChoice", "Plan"]

# Of more features, "auto" learns factors only: full maps have many entries, and overfit.
_MOST_LINEAR = 20


@dataclass(frozen=True)
class MetricChoice:
    """Which metric to learn.

    Attributes
    ----------
    name : {"auto", "scalar", "diagonal", "linear"}
        What parameters it has.
    n_components : int or None
        Coordinates of a linear one; None for as many as there are.
    has_ranks : bool
        Whether ranks join the features.
    """

    name: str
    n_components: int | None = None
    has_ranks: bool = False

    def resolved(self, n_features: int) -> MetricChoice:
        """The choice for a number of features, which "auto" depends on."""
        if self.name != "auto":
            return self
        name = "linear" if n_features <= _MOST_LINEAR else "diagonal"
        return MetricChoice(name, None, self.has_ranks)


@dataclass(frozen=True)
class Plan:
    """What to learn, and how.

    Attributes
    ----------
    kernel : Kernel
        With a slope.
    degree : {0, 1}
        Degree of the local fits.
    metric : MetricChoice
        Which metric.
    curvature : bool or None
        Whether lines bend along an axis; None leaves it to the data.
    variant : Variant or None
        What is learned beside the metric.
    metric_solver, variant_solver : Solver
        How either is learned.
    alpha : float
        Factor of the penalty.
    start : float or None
        First factor of all features; None seeks it.
    validation_fraction : float
        Share of the queries that are held out for validation; 0 for none.
    n_members : int
        Number of models that are averaged.
    rng : RandomState
        Draws rows, batches and first weights.
    """

    kernel: Kernel
    degree: int
    metric: MetricChoice
    curvature: bool | None
    variant: Variant | None
    metric_solver: Solver
    variant_solver: Solver
    alpha: float
    start: float | None
    validation_fraction: float
    n_members: int
    rng: np.random.RandomState

    @property
    def has_stages(self) -> bool:
        """Whether there is more to learn than the log-factors of one metric."""
        is_simple = self.metric.name in ("scalar", "diagonal")
        return not is_simple or self.variant is not None or self.n_members > 1
