"""What learned attention sees of training rows: features, lines and values of order one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from skattn._bandwidth import deviation
from skattn._geometry.feature_maps import BentDirections, Embedding, EncodedEmbedding, Ranks
from skattn._geometry import MOST_DIRECTIONS, Directions, Frame, Table, principal_axes
from skattn.kernels import Kernel
from skattn.modifiers import RowGates, RowScales, Standard
from skattn._smoother import Keys


@dataclass(frozen=True)
class Design:
    """Training rows, and the maps from their features to what is learned from.

    Attributes
    ----------
    table : Table
        The training rows.
    kernel : Kernel
    frame : Frame
        Standardises the features that are not constant.
    ranks : Ranks or None
    directions : Directions, BentDirections or None
        Of local lines; None at degree 0.
    middle : ndarray of shape (n_scaled,)
        What is subtracted from the features in the frame.
    problem : learning.Problem
        The rows in all these coordinates, equal ones as one of their joint weight.
    """

    table: Table
    kernel: Kernel
    frame: Frame
    ranks: Ranks | None
    directions: Any
    middle: np.ndarray
    problem: Any

    @classmethod
    def of(cls, problem_of, table, kernel, *, has_ranks, has_lines, is_raw):
        """The design of training rows; None where there is nothing to tell apart, or to tell.

        With `is_raw`, features and targets stay in their units.
        """
        merged = table.merged()
        scale, unit = deviation(merged.X, merged.weights), deviation(merged.y, merged.weights)
        varies = np.isfinite(unit)
        if not (np.isfinite(scale).any() and varies.any()):
            return None
        frame = Frame.around(merged.X, np.where(np.isfinite(scale) & is_raw, 1.0, scale))
        scaled = frame.coordinates(merged.X)
        ranks = Ranks.of(scaled, merged.weights) if has_ranks else None
        features = scaled if ranks is None else np.hstack([scaled, ranks.coordinates(scaled)])
        directions = _directions(frame, scaled, merged.weights) if has_lines else None
        values, middle = merged.y[:, varies], np.zeros(scaled.shape[1])
        if not is_raw:
            features, values = _canonical(features), _canonical(values / unit[varies])
            middle = _middle(scaled)
        own, n_plain = merged.own(), scaled.shape[1]
        problem = problem_of(features, None, values, merged.weights, own, kernel.name, n_plain)
        return cls(table, kernel, frame, ranks, None, middle, problem)._along(directions)

    def _along(self, directions):
        """The design with lines in these directions."""
        if directions is None:
            return self
        line = _canonical(directions.coordinates(self.table.merged().X))
        return replace(self, directions=directions, problem=replace(self.problem, line=line))

    def bent(self, axis):
        """The design with parabolas along an axis of the standardised features."""
        merged, directions = self.table.merged(), self.directions
        if directions.axes is not None:
            axis = directions.axes.T @ axis
            axis = axis / np.linalg.norm(axis)
        bent = BentDirections.of(directions, axis, merged.X, merged.weights)
        return self if bent is None else self._along(bent)

    def keys(self, matrix, ridge):
        """The training rows as keys under a metric."""
        embedding = Embedding(self.frame, self.ranks, matrix)
        return Keys.mapped(self.table, self.kernel, embedding, self.directions, None, ridge)

    def keys_of(self, modification, ridge):
        """The training rows as keys under a metric that depends on the rows."""
        heads = [self.keys(matrix, ridge) for matrix in modification.matrices]
        standard, only = Standard(self.frame, self.middle), heads[0]
        if modification.gates is not None:
            return Keys.mixed(heads, RowGates(standard, modification.gates))
        if modification.scale is not None:
            return replace(only, scales=RowScales(standard, modification.scale))
        if modification.log_factors is not None:
            factors = modification.log_factors[self.table.places_when_merged()]
            return replace(only, log_factors=factors)
        if modification.encoder is not None:
            embedding = EncodedEmbedding(only.frame, standard, modification.encoder)
            return Keys.mapped(self.table, self.kernel, embedding, self.directions, None, ridge)
        return only

    def projection(self, matrix):
        """What features in their units are multiplied with, (n_features, n_coordinates)."""
        projection = np.zeros((self.table.X.shape[1], matrix.shape[1]))
        n_scaled = len(self.frame.features)
        projection[self.frame.features] = matrix[:n_scaled] / self.frame.bandwidth[:, None]
        return projection

    def rank_factors(self, matrix):
        """What the ranks of each feature are multiplied with, (n_features,); None without ranks."""
        if self.ranks is None:
            return None
        factors, n_scaled = np.zeros(self.table.X.shape[1]), len(self.frame.features)
        factors[self.frame.features] = np.linalg.norm(matrix[n_scaled:], axis=1)
        return factors

    def axis(self):
        """The axis along which lines bend, (n_features,) in standardised features; or None."""
        bent = self.directions
        if not isinstance(bent, BentDirections):
            return None
        inner, axis = bent.directions.axes, np.zeros(self.table.X.shape[1])
        axis[self.frame.features] = bent.axis if inner is None else inner @ bent.axis
        return axis


def _canonical(columns):
    """Columns of order one, centred, without the last digits, which depend on the data's units."""
    return np.round((columns - _middle(columns)) * 2.0**30) / 2.0**30


def _middle(columns):
    """Of the columns the median, which one far row does not move away from the others."""
    return np.partition(columns, len(columns) // 2, axis=0)[len(columns) // 2]


def _directions(frame, scaled, weights):
    """Where lines are fitted: the scaled features, or their leading principal components."""
    many = scaled.shape[1] > MOST_DIRECTIONS
    return Directions(frame, principal_axes(scaled, weights) if many else None)
