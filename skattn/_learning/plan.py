"""Plans of learning: resolved parameters of a `ParametricAttentionRegressor`."""

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
    """Metric to learn: "auto", "scalar", "diagonal" or "linear", with as many coordinates."""

    name: str
    n_components: int | None = None
    has_ranks: bool = False

    def name_for(self, n_features: int) -> str:
        """The name for a number of features, which "auto" depends on."""
        if self.name != "auto":
            return self.name
        return "linear" if n_features <= _MOST_LINEAR else "diagonal"


@dataclass(frozen=True)
class Plan:
    """Resolved parameters.

    `curvature` is None where the data decide, `start` where the first factor of all features is
    sought; `validation_fraction` is 0 for no validation rows. The variant's solver is that of the
    metric where there is no variant.
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
