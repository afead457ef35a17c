"""Training rows as learned attention sees them: features, regressors, values of order one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from skattn._geometry.scaling import deviation
from skattn._geometry.training_set import Exclusion, TrainingSet
from skattn._geometry.transforms import (
    MOST_DIRECTIONS,
    FeatureMap,
    LocalBasis,
    QuadraticBasis,
    Ranks,
    Scaler,
    principal_axes,
)
from skattn._smoother import Component, LocalLinear, LocalMean, Mixture
from skattn.kernels import Kernel
from skattn.variants import Model
from skattn.variants._model import StandardFeatures

__all__ = ["Design", "Problem"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class Problem:
    """Keys to learn from, in units of order one.

    The metric maps `features` (n_keys, n_features), of which the first `n_plain` are no ranks, to
    coordinates; lines are in the `regressors` (n_keys, n_directions), None at degree 0. The
    exclusion is that of leave-one-out, for each key. Rows that are `hidden` are no keys, so that
    nothing is learned of their values.
    """

    features: Array
    regressors: Array | None
    values: Array
    weights: Array
    excluded: Exclusion
    kernel: Kernel
    n_plain: int
    hidden: Indices | None = None


@dataclass(frozen=True)
class Design:
    """Training rows, and the transforms from their features to what is learned from.

    Features that are not constant are scaled, less their `middle`, the medians; there may be
    `ranks` beside them. Local lines have a `basis`, None at degree 0. The problem has the
    deduplicated rows in all these coordinates; None where nothing can be learned.
    """

    training_set: TrainingSet
    kernel: Kernel
    scaler: Scaler
    ranks: Ranks | None
    basis: LocalBasis | QuadraticBasis | None
    middle: Array
    problem: Problem | None

    @classmethod
    def standardized(
        cls, training_set: TrainingSet, kernel: Kernel, degree: int, has_ranks: bool
    ) -> Design:
        """Design in which features and targets are standardised."""
        rows = training_set.deduplicated
        scale, unit = deviation(rows.X, rows.weights), deviation(rows.y, rows.weights)
        design = cls._around(training_set, kernel, scale)
        scaled, varies = design.scaler.coordinates(rows.X), np.isfinite(unit)
        design = replace(design, middle=_middle(scaled))
        if not (np.isfinite(scale).any() and varies.any()):
            return design
        features, values = scaled, rows.y[:, varies] / unit[varies]
        if has_ranks:
            design = replace(design, ranks=Ranks.of(scaled, rows.weights))
            features = np.hstack([scaled, design.ranks.coordinates(scaled)])  # type: ignore[union-attr]
        design = design._learning_from(_rounded(features), _rounded(values))
        if degree == 0:
            return design
        is_wide = scaled.shape[1] > MOST_DIRECTIONS
        axes = principal_axes(scaled, rows.weights) if is_wide else None
        return design._with_basis(LocalBasis(design.scaler, axes))

    @classmethod
    def unscaled(cls, training_set: TrainingSet, kernel: Kernel) -> Design:
        """Design in which features and targets are as they are, for means."""
        rows = training_set.deduplicated
        scale, unit = deviation(rows.X, rows.weights), deviation(rows.y, rows.weights)
        design = cls._around(training_set, kernel, np.where(np.isfinite(scale), 1.0, np.inf))
        varies = np.isfinite(unit)
        if not (np.isfinite(scale).any() and varies.any()):
            return design
        return design._learning_from(design.scaler.coordinates(rows.X), rows.y[:, varies])

    @classmethod
    def _around(cls, training_set: TrainingSet, kernel: Kernel, scale: Array) -> Design:
        scaler = Scaler.around(training_set.deduplicated.X, scale)
        middle = np.zeros(len(scaler.features))
        return cls(training_set, kernel, scaler, None, None, middle, None)

    def _learning_from(self, features: Array, values: Array) -> Design:
        rows, n_plain = self.training_set.deduplicated, len(self.scaler.features)
        known = features, None, values, rows.weights, rows.leave_one_out()
        return replace(self, problem=Problem(*known, self.kernel, n_plain))

    def _with_basis(self, basis: LocalBasis | QuadraticBasis) -> Design:
        """The design with lines in these regressors."""
        regressors = _rounded(basis.coordinates(self.training_set.deduplicated.X))
        problem: Any = self.problem
        return replace(self, basis=basis, problem=replace(problem, regressors=regressors))

    def bent(self, axis: Array) -> Design:
        """The design with parabolas along an axis of the standardised features.

        It is the design itself where the square is constant.
        """
        rows, basis = self.training_set.deduplicated, self.basis
        assert isinstance(basis, LocalBasis)
        if basis.axes is not None:
            axis = basis.axes.T @ axis
            axis = axis / np.linalg.norm(axis)
        quadratic = QuadraticBasis.of(basis, axis, rows.X, rows.weights)
        return self if quadratic is None else self._with_basis(quadratic)

    def hiding(self, rows: Indices) -> Design:
        """The design in which some of the rows are no keys."""
        problem: Any = self.problem
        return replace(self, problem=replace(problem, hidden=rows))

    @property
    def standard(self) -> StandardFeatures:
        """Features that variants depend on."""
        return StandardFeatures(self.scaler, self.middle)

    def component(self, matrix: Array, ridge: float) -> Component:
        """The training rows as keys under a metric."""
        transform = FeatureMap(self.scaler, self.ranks, matrix)
        local_fit = LocalMean() if self.basis is None else LocalLinear(ridge)
        return Component.of(self.training_set, self.kernel, transform, self.basis, local_fit)

    def smoother(self, model: Model, parts: Sequence[Array], ridge: float) -> Component | Mixture:
        """The training rows as keys under a model."""
        components = [self.component(matrix, ridge) for matrix in model.matrices(parts)]
        return model.smoother(parts, components, self.standard)

    def projection(self, matrix: Array) -> Array:
        """Matrix of features in their units, (n_features, n_coordinates)."""
        projection = np.zeros((self.training_set.X.shape[1], matrix.shape[1]))
        n_scaled = len(self.scaler.features)
        projection[self.scaler.features] = matrix[:n_scaled] / self.scaler.bandwidth[:, None]
        return projection

    def rank_weights(self, matrix: Array) -> Array:
        """Factor of the ranks of each feature, (n_features,); zeros without ranks."""
        weights, n_scaled = np.zeros(self.training_set.X.shape[1]), len(self.scaler.features)
        if self.ranks is not None:
            weights[self.scaler.features] = np.linalg.norm(matrix[n_scaled:], axis=1)
        return weights

    def axis(self) -> Array:
        """Axis along which lines bend, (n_features,) in standardised features; zeros if none."""
        axis = np.zeros(self.training_set.X.shape[1])
        if isinstance(self.basis, QuadraticBasis):
            axes, bent = self.basis.basis.axes, self.basis.axis
            axis[self.scaler.features] = bent if axes is None else axes @ bent
        return axis


def _rounded(columns: Array) -> Array:
    """Columns of order one, centred, without the last digits, which depend on the data's units."""
    return np.round((columns - _middle(columns)) * 2.0**30) / 2.0**30


def _middle(columns: Array) -> Array:
    """Median of each column, which one far row does not move away from the others."""
    return np.partition(columns, len(columns) // 2, axis=0)[len(columns) // 2]
