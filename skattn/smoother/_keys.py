"""Training rows as keys: what turns rows of features into requests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from skattn.attention import Head, Line, Radii, Request
from skattn.geometry import Directions, Frame, Own, Table, Unit
from skattn.kernels import Kernel
from skattn.radii import neighbor_radii

Array = NDArray[np.float64]


class Map(Protocol):
    """From features to coordinates."""

    def coordinates(self, rows: Array) -> Array:
        """Coordinates of rows (n_rows, n_features), of shape (n_rows, n_coordinates)."""
        ...

    def gradient(self, slopes: Array, rows: Array) -> tuple[NDArray[np.intp], Array]:
        """Features, and slopes (n_rows, n_features, n_outputs) in them, of those in coordinates."""
        ...


class Gates(Protocol):
    """The shares of several heads."""

    def shares(self, rows: Array) -> Array:
        """Shares for rows (n_rows, n_features), of shape (n_rows, n_heads); they sum to 1."""
        ...


class Scales(Protocol):
    """Factors of all inverse bandwidths of a query."""

    def factors(self, rows: Array) -> Array:
        """Positive factors for rows (n_rows, n_features), (n_rows,)."""
        ...


@dataclass(frozen=True)
class EqualGates:
    """The same share for all heads: their mean."""

    n_heads: int

    def shares(self, rows: Array) -> Array:
        """Shares for rows, all the same."""
        return np.full((len(rows), self.n_heads), 1.0 / self.n_heads)


@dataclass(frozen=True)
class Adaptive:
    """Bandwidths that follow the distance to the k-th nearest key.

    Attributes
    ----------
    of : {"query", "key"}
        Whose distance it is.
    n_neighbors : int
        k.
    """

    of: str
    n_neighbors: int


@dataclass(frozen=True)
class Keys:
    """Training rows in coordinates.

    Attributes
    ----------
    table : Table
        The rows.
    kernel : Kernel
    frame : Map
        To the kernel's coordinates.
    directions : Map or None
        The coordinates of local lines; None at degree 0.
    adaptive : Adaptive or None
    ridge : float
        Of local lines.
    unit : Unit
        Of the values.
    coordinates : ndarray of shape (n_rows, n_coordinates)
        Of all rows, those of no weight included.
    line : ndarray of shape (n_rows, n_directions) or None
        Of all rows.
    values : ndarray of shape (n_keys, n_outputs)
        In their unit.
    radii : ndarray of shape (n_keys, 2) or None
        Where every key has a bandwidth: to its `n_neighbors`-th neighbour, and to the next one.
    heads : tuple of Keys
        Where there are several kinds of attention: the same rows in the coordinates of each.
    gates : Gates or None
        Their shares.
    scales : Scales or None
        Where the bandwidths of queries vary.
    log_factors : ndarray of shape (n_keys,) or None
        Logarithms of what multiplies the sample weights, at most 0.
    """

    table: Table
    kernel: Kernel
    frame: Map
    directions: Map | None
    adaptive: Adaptive | None
    ridge: float
    unit: Unit
    coordinates: Array
    line: Array | None
    values: Array
    radii: Array | None
    heads: tuple[Keys, ...] = ()
    gates: Gates | None = None
    scales: Scales | None = None
    log_factors: Array | None = None

    @classmethod
    def mixed(cls, heads: Sequence[Keys], gates: Gates) -> Keys:
        """The same training rows in the coordinates of several heads."""
        return replace(heads[0], heads=tuple(heads), gates=gates)

    @classmethod
    def of(
        cls,
        table: Table,
        kernel: Kernel,
        bandwidth: Array,
        spread: Array | None,
        adaptive: Adaptive | None,
    ) -> Keys:
        """Prepare training rows; local lines are fitted if the features' spreads are given."""
        keys = slice(0, table.n_keys)
        directions = None
        if spread is not None:
            directions = Directions.around(table.X[keys], table.weights[keys], bandwidth, spread)
        return cls.mapped(
            table, kernel, Frame.around(table.X[keys], bandwidth), directions, adaptive
        )

    @classmethod
    def mapped(
        cls,
        table: Table,
        kernel: Kernel,
        frame: Map,
        directions: Map | None,
        adaptive: Adaptive | None = None,
        ridge: float = 0.0,
    ) -> Keys:
        """Prepare training rows, given the maps to their coordinates."""
        keys = slice(0, table.n_keys)
        line = None if directions is None else directions.coordinates(table.X)
        coordinates = frame.coordinates(table.X)
        radii = None
        if adaptive is not None and adaptive.of == "key":
            numbers = adaptive.n_neighbors + np.arange(2)
            own = table.one_of_itself().take(keys)
            radii = neighbor_radii(
                coordinates[keys], coordinates[keys], table.counts(), numbers, own
            )
        unit, values = Unit.of(table.y[keys])
        return cls(
            table,
            kernel,
            frame,
            directions,
            adaptive,
            ridge,
            unit,
            coordinates,
            line,
            values,
            radii,
        )

    def at(self, X: Array) -> Request:
        """What queries (n_queries, n_features) ask for."""
        return self._mixed(X, self._at(X), lambda keys: keys.at(X))

    def _at(self, X: Array) -> Request:
        coordinates = self.frame.coordinates(X)
        line = None if self.directions is None else self.directions.coordinates(X)
        return self._request(coordinates, line, None, self._radii(X, coordinates, None))

    def leave_one_out(self) -> Request:
        """What the rows ask for, each without itself, or whatever is left out with it."""
        return self._mixed(self.table.X, self._leave_one_out(), Keys.leave_one_out)

    def _leave_one_out(self) -> Request:
        own = self.table.own()
        radii = self._radii(self.table.X, self.coordinates, own)
        if radii is not None and self.radii is not None and self.table.leaves_one_unit():
            radii = Radii(keys=self.radii[:, 0], without=self.radii[:, 1])
        return self._request(self.coordinates, self.line, own, radii)

    def rows(self) -> Request:
        """What the rows ask for, nothing left out; a radius does not count its row."""
        return self._mixed(self.table.X, self._rows(), Keys.rows)

    def _rows(self) -> Request:
        radii = self._radii(self.table.X, self.coordinates, self.table.one_of_itself())
        return self._request(self.coordinates, self.line, self.table.itself(), radii)

    def _mixed(self, X: Array, request: Request, ask: Callable[[Keys], Request]) -> Request:
        """The request with those of the heads, if there are any."""
        if self.gates is None:
            return request
        shares = self.gates.shares(X)
        parts = zip(shares.T, self.heads, strict=True)
        return replace(request, heads=tuple(Head(gate, ask(keys)) for gate, keys in parts))

    def _radii(self, X: Array, coordinates: Array, own: Own | None) -> Radii | None:
        if self.scales is not None:
            return Radii(queries=1.0 / self.scales.factors(X))
        if self.adaptive is None:
            return None
        if self.radii is not None:
            return Radii(keys=self.radii[:, 0])
        keys, numbers = self.coordinates[: self.table.n_keys], np.array([self.adaptive.n_neighbors])
        radii = neighbor_radii(coordinates, keys, self.table.counts(), numbers, own)
        return Radii(queries=radii[:, 0])

    def _request(
        self, coordinates: Array, line: Array | None, own: Own | None, radii: Radii | None
    ) -> Request:
        keys = slice(0, self.table.n_keys)
        log_weights = np.log(self.table.weights[keys])
        if self.log_factors is not None:
            log_weights = log_weights + self.log_factors
        return Request(
            coordinates,
            self.coordinates[keys],
            self.values,
            self.kernel,
            log_weights - log_weights.max(),
            own,
            self.table.repeats(),
            radii,
            None if line is None or self.line is None else Line(line, self.line[keys], self.ridge),
        )
