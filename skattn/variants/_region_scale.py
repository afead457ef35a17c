"""A factor of the metric in each of some regions."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any, ClassVar

import numpy as np
from scipy.cluster.vq import kmeans2

from skattn._sklearn import Interval
from skattn._smoother import Component
from skattn.variants import _model
from skattn.variants._model import Array, Components, Model, Parts, RowNumbers, Tensor, softmax

# Standard deviation of the prior of log-factors of regions, and rows of each region at least.
_REGIONS, _ROWS_OF_A_REGION = 1.5, 25


class RegionScale(_model.Variant):
    """A learned factor of the whole metric in each of some regions, weighted by membership.

    Regions are clusters of the training rows; the factor at a query is a geometric mean of theirs,
    by how near their centres are. `query_factors` of the estimator gives it.

    Parameters
    ----------
    n_regions : int, default=8
        Largest number of regions; there are fewer where they would hold less than 25 rows.
    """

    _parameter_constraints: ClassVar = {"n_regions": [Interval(Integral, 2, None, closed="left")]}

    def __init__(self, n_regions=8):  # type: ignore[no-untyped-def]
        self.n_regions = n_regions

    def models(self, beginning: _model.Beginning) -> list[Model]:
        """The only candidate: nothing changed."""
        n_regions = int(np.clip(len(beginning.x) // _ROWS_OF_A_REGION, 2, self.n_regions))
        return [_Model(beginning.metric, Regions.of(beginning.x, n_regions))]


@dataclass(frozen=True)
class Regions:
    """Soft clusters of rows.

    Attributes
    ----------
    centers : ndarray of shape (n_regions, n_plain)
        Means of the clusters.
    width : float
        Distance over which regions pass into each other.
    """

    centers: Array
    width: float

    @classmethod
    def of(cls, x: Array, n_regions: int) -> Regions:
        """Clusters of rows, started along the direction of most variance; fewer of few rows."""
        distinct = np.unique(x, axis=0)
        away = distinct - x.mean(axis=0)
        along = away @ np.linalg.eigh(away.T @ away)[1][:, -1]
        places = ((np.arange(n_regions) + 0.5) * len(distinct) / n_regions).astype(np.intp)
        starts = distinct[np.argsort(along, kind="stable")[np.unique(places)]]
        with warnings.catch_warnings():  # of empty clusters, which are dropped
            warnings.simplefilter("ignore", UserWarning)
            centers, members = kmeans2(x, starts, minit="matrix")
        distances = np.linalg.norm(x - centers[members], axis=1)
        width = float(np.sqrt(np.mean(distances**2))) or 1.0
        return cls(centers[np.unique(members)], width)

    def gates(self) -> tuple[Array, Array]:
        """Matrix and offset of the logits of memberships."""
        return self.centers.T / self.width**2, -0.5 * (self.centers**2).sum(1) / self.width**2

    def memberships(self, x: Array) -> Array:
        """Degrees to which rows belong to regions, (n_rows, n_regions); they sum to 1."""
        products = x @ self.centers.T - 0.5 * (self.centers**2).sum(axis=1)
        return np.asarray(softmax(products / self.width**2))


class _Model(Model):
    def __init__(self, metric: _model.LearnableMetric, regions: Regions) -> None:
        factors = _model.ParameterBlock(np.zeros(len(regions.centers)), _REGIONS)
        super().__init__(metric, [metric.block(), factors])
        self.regions = regions

    def forward(self, parts: Parts, features: Tensor) -> RowNumbers:
        x = features[:, : self.metric.n_plain]
        matrix, offset = (features.new_tensor(part) for part in self.regions.gates())
        coordinates = self.metric.coordinates(parts[0], features)
        return RowNumbers([coordinates], log_scales=softmax(x @ matrix + offset) @ parts[1])

    def smoother(
        self, parts: Parts, components: Components, standard: _model.StandardFeatures
    ) -> Component:
        return replace(components[0], query_scale=MeanScale(standard, self.regions, parts[1]))


@dataclass(frozen=True)
class MeanScale:
    """Divisors of the distances of queries: inverse geometric means of factors of regions."""

    standard: _model.StandardFeatures
    regions: Regions
    log_factors: Array

    def scales(self, X: Array, coordinates: Array, excluded: Any) -> Array:
        """Divisors at rows (n_rows, n_features), (n_rows,)."""
        memberships = self.regions.memberships(self.standard.coordinates(X))
        return np.asarray(np.exp(-(memberships @ self.log_factors)))
