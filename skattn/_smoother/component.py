"""Training rows at rest: what turns rows of features into local regressions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from skattn._attention import Attention, KeyScale, Products
from skattn._geometry.neighbors import neighbor_distances
from skattn._geometry.scaling import TargetScaling
from skattn._geometry.training_set import Exclusion, TrainingSet
from skattn._geometry.transforms import Transform
from skattn._smoother.local_fit import LocalFit, LocalMean
from skattn._smoother.local_regression import LocalRegression
from skattn._smoother.mixture import MixedRegression
from skattn.kernels import Kernel

__all__ = ["Component", "Gate", "Mixture", "NeighborScale", "QueryScale", "neighbor_key_scale"]

Array = NDArray[np.float64]


class QueryScale(Protocol):
    """Bandwidths that vary with the query."""

    def scales(self, X: Array, coordinates: Array, excluded: Exclusion | None) -> Array:
        """Divisors of the distances of queries, (n_queries,).

        Parameters
        ----------
        X : ndarray of shape (n_queries, n_features)
            Features.
        coordinates : ndarray of shape (n_queries, n_coordinates)
            Their coordinates.
        excluded : Exclusion or None
            Keys that the queries must not see.
        """
        ...


class Gate(Protocol):
    """Shares of several components."""

    def shares(self, X: Array) -> Array:
        """Shares at rows (n_rows, n_features), of shape (n_rows, n_components); they sum to 1."""
        ...


@dataclass(frozen=True)
class NeighborScale:
    """Distance to the k-th nearest key, for bandwidths that follow the density of the data.

    Attributes
    ----------
    keys : ndarray of shape (n_keys, n_coordinates)
        Coordinates of the keys.
    counts : ndarray of shape (n_keys,)
        Number of rows that each key counts as.
    n_neighbors : int
        k.
    """

    keys: Array
    counts: Array
    n_neighbors: int

    def scales(self, X: Array, coordinates: Array, excluded: Exclusion | None) -> Array:
        """Distances to the k-th nearest key, (n_queries,)."""
        numbers = np.array([self.n_neighbors])
        return neighbor_distances(coordinates, self.keys, self.counts, numbers, excluded)[:, 0]


def neighbor_key_scale(training_set: TrainingSet, keys: Array, n_neighbors: int) -> KeyScale:
    """Radius of each key: the distance to its `n_neighbors`-th neighbour, and to the next one."""
    excluded = training_set.one_unit().take(training_set.keys)
    numbers = n_neighbors + np.arange(2)
    both = neighbor_distances(keys, keys, training_set.counts(), numbers, excluded)
    return KeyScale(both[:, 0], both[:, 1])


@dataclass(frozen=True)
class Component:
    """Training rows as keys of one kind of attention.

    Attributes
    ----------
    training_set : TrainingSet
        The rows.
    kernel : Kernel
        What weight a distance earns.
    transform : Transform
        Features to the kernel's coordinates.
    basis : Transform or None
        Features to the regressors of local lines; None at degree 0.
    local_fit : LocalFit
        The mean, or a line.
    query_scale : QueryScale or None
        Bandwidths that vary with the query.
    key_scale : KeyScale or None
        Bandwidths that vary with the key.
    log_factors : ndarray of shape (n_keys,) or None
        Logarithms of factors of the sample weights.
    scaling : TargetScaling
        Units of the values.
    values : ndarray of shape (n_keys, n_outputs)
        Targets in these units.
    coordinates : ndarray of shape (n_rows, n_coordinates)
        Coordinates of all rows, those of no weight included.
    regressors : ndarray of shape (n_rows, n_directions) or None
        Regressors of all rows.
    """

    training_set: TrainingSet
    kernel: Kernel
    transform: Transform
    basis: Transform | None
    local_fit: LocalFit
    query_scale: QueryScale | None
    key_scale: KeyScale | None
    log_factors: Array | None
    scaling: TargetScaling
    values: Array
    coordinates: Array
    regressors: Array | None

    @classmethod
    def of(
        cls,
        training_set: TrainingSet,
        kernel: Kernel,
        transform: Transform,
        basis: Transform | None = None,
        local_fit: LocalFit | None = None,
    ) -> Component:
        """Prepare training rows, given the transforms to their coordinates and regressors.

        The local fit is the mean if there is none.
        """
        X = training_set.X
        scaling, values = TargetScaling.of(training_set.y[training_set.keys])
        regressors = None if basis is None else basis.coordinates(X)
        known = training_set, kernel, transform, basis, local_fit or LocalMean()
        prepared = scaling, values, transform.coordinates(X), regressors
        return cls(*known, None, None, None, *prepared)

    @property
    def degree(self) -> int:
        """Degree of the local fits."""
        return self.local_fit.degree

    @property
    def components(self) -> tuple[Component, ...]:
        """The only component."""
        return (self,)

    def with_neighbors(self, adaptive: str, n_neighbors: int) -> Component:
        """Component with bandwidths that follow the distance to the k-th nearest key.

        Parameters
        ----------
        adaptive : {"query", "key"}
            Whose distance it is.
        n_neighbors : int
            k.
        """
        keys = self.coordinates[self.training_set.keys]
        if adaptive == "key":
            return replace(self, key_scale=neighbor_key_scale(self.training_set, keys, n_neighbors))
        counts = self.training_set.counts()
        return replace(self, query_scale=NeighborScale(keys, counts, n_neighbors))

    def at(self, X: Array) -> LocalRegression:
        """The regression of queries (n_queries, n_features)."""
        regressors = None if self.basis is None else self.basis.coordinates(X)
        return self._regression(X, self.transform.coordinates(X), regressors, None, None)

    def leave_one_out(self) -> LocalRegression:
        """The regression of the rows, each without itself, or whatever is left out with it."""
        excluded = self.training_set.leave_one_out()
        return self._in_sample(excluded, excluded)

    def in_sample(self) -> LocalRegression:
        """The regression of the rows, nothing left out; a radius does not count its row."""
        return self._in_sample(self.training_set.nothing(), self.training_set.one_unit())

    def _in_sample(self, excluded: Exclusion, of_scale: Exclusion) -> LocalRegression:
        X = self.training_set.X
        return self._regression(X, self.coordinates, self.regressors, excluded, of_scale)

    def _regression(
        self,
        X: Array,
        coordinates: Array,
        regressors: Array | None,
        excluded: Exclusion | None,
        of_scale: Exclusion | None,
    ) -> LocalRegression:
        keys = self.training_set.keys
        log_weights = np.log(self.training_set.weights[keys])
        if self.log_factors is not None:
            log_weights = log_weights + self.log_factors
        query_scale = None
        if self.query_scale is not None:
            query_scale = self.query_scale.scales(X, coordinates, of_scale)
        key_scale = self.key_scale
        is_without = excluded is not None and excluded is of_scale
        if key_scale is not None and not (is_without and self.training_set.leaves_one_unit()):
            key_scale = KeyScale(key_scale.radius)
        attention = Attention(
            coordinates,
            self.coordinates[keys],
            self.kernel,
            log_weights,
            excluded,
            query_scale,
            key_scale,
        )
        own = None if self.regressors is None else self.regressors[keys]
        to_features = self.transform if self.basis is None else self.basis
        products = Products(self.values, own)
        return LocalRegression(attention, products, self.local_fit, regressors, to_features)


@dataclass(frozen=True)
class Mixture:
    """Training rows as keys of several components, gated.

    Attributes
    ----------
    components : tuple of Component
        Of the same training set.
    gate : Gate
        Shares of the components.
    """

    components: tuple[Component, ...]
    gate: Gate

    @property
    def training_set(self) -> TrainingSet:
        """The rows."""
        return self.components[0].training_set

    @property
    def kernel(self) -> Kernel:
        """Kernel of the first component."""
        return self.components[0].kernel

    @property
    def scaling(self) -> TargetScaling:
        """Units of the values."""
        return self.components[0].scaling

    @property
    def values(self) -> Array:
        """Targets in these units."""
        return self.components[0].values

    @property
    def degree(self) -> int:
        """Degree of the local fits."""
        return self.components[0].degree

    def at(self, X: Array) -> MixedRegression:
        """The regression of queries (n_queries, n_features)."""
        return self._mixed(X, lambda each: each.at(X))

    def leave_one_out(self) -> MixedRegression:
        """The regression of the rows, each without itself, or whatever is left out with it."""
        return self._mixed(self.training_set.X, Component.leave_one_out)

    def in_sample(self) -> MixedRegression:
        """The regression of the rows, nothing left out."""
        return self._mixed(self.training_set.X, Component.in_sample)

    def _mixed(self, X: Array, regress: Callable[[Component], LocalRegression]) -> MixedRegression:
        regressions = tuple(regress(each) for each in self.components)
        return MixedRegression(regressions, self.gate.shares(X).T)


@dataclass(frozen=True)
class MemberGate:
    """Shares of the components of several members, each of the same share.

    Attributes
    ----------
    members : tuple of Component or Mixture
        Whose mean is taken.
    """

    members: tuple[Component | Mixture, ...]

    def shares(self, X: Array) -> Array:
        """Shares of all components of all members, (n_rows, n_components)."""
        ones = np.ones((len(X), 1))
        each = [m.gate.shares(X) if isinstance(m, Mixture) else ones for m in self.members]
        return np.hstack(each) / len(self.members)


def mean_of(members: Sequence[Component | Mixture]) -> Component | Mixture:
    """The mean of several members over the same training rows; the only one, if there is one."""
    if len(members) == 1:
        return members[0]
    components = tuple(part for member in members for part in member.components)
    return Mixture(components, MemberGate(tuple(members)))
