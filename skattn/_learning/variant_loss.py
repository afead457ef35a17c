"""The loss of a model that depends on the rows, with its gradient.

Derivatives in distances, gates, scales and factors of rows are in closed form, block by block;
those of the numbers of the rows in the parameters are left to autograd, once for all rows.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from skattn._learning.leave_one_out import Block, Fit, LeaveOneOut
from skattn._learning.losses import EXACT, PenalizedLoss, Prior
from skattn.variants import Model, RowNumbers

__all__ = ["VariantLoss"]

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


class VariantLoss(PenalizedLoss):
    """The loss of a model.

    With a generator, each query misses each key with the probability of dropout, anew each time.
    """

    def __init__(
        self,
        errors: LeaveOneOut,
        prior: Prior,
        model: Model,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__(errors, prior)
        self.model, self.dropout = model, dropout
        self.generator = generator if dropout > 0.0 else None

    def at(self, positions: Indices) -> VariantLoss:
        """The loss of some of the queries."""
        some = self.errors.at(positions)
        return VariantLoss(some, self.prior, self.model, self.dropout, self.generator)

    def of(self, errors: LeaveOneOut) -> VariantLoss:
        """The loss of other queries, without dropout."""
        return VariantLoss(errors, self.prior, self.model)

    def left_out(self, parameters: Array) -> Array:
        """Leave-one-out errors, (n_queries, n_outputs)."""
        own, ridge = self.split(parameters)
        with torch.no_grad():
            rows = self._rows(self._tensor(own))
            found = [self._block(block, rows, ridge)[0] for block in self.errors.blocks]
        return torch.cat(found).cpu().numpy().astype(np.float64)

    def value(self, parameters: Array) -> float:
        """The loss alone, with what is dropped the same each time."""
        if self.generator is None:
            return super().value(parameters)
        generator = torch.Generator(self.generator.device).manual_seed(0)
        same = VariantLoss(self.errors, self.prior, self.model, self.dropout, generator)
        return PenalizedLoss.value(same, parameters)

    def __call__(self, parameters: Array) -> tuple[float, Array, Array]:
        """The loss, its gradient, and nothing in place of a Hessian."""
        own, ridge = self.split(parameters)
        theta = self._tensor(own).requires_grad_()
        with torch.enable_grad():
            rows = self._rows(theta)
        slopes = _Slopes(rows.mapped(torch.detach))
        shares = theta.new_tensor(self.errors.share) / self.errors.values.shape[1]
        total, by_ridge, start = 0.0, 0.0, 0
        with torch.no_grad():
            for block in self.errors.blocks:
                share = shares[start : start + len(block.index), None]
                start += len(block.index)
                left, fits, squared = self._block(block, slopes.rows, ridge)
                total += float((share * left**2).sum())
                by_ridge += slopes.add(block, fits, squared, -2.0 * share * left)
        outputs, gradients = _paired(rows.tensors(), slopes.sums.tensors())
        (by_parameter,) = torch.autograd.grad(outputs, theta, gradients)
        gradient = by_parameter.cpu().numpy().astype(np.float64)
        if self.errors.regressors is not None:
            gradient = np.append(gradient, by_ridge)
        gradient = gradient / (total + EXACT) + self.penalty_slope(parameters)
        return self.penalized(total, parameters), gradient, np.zeros((0, 0))

    def _rows(self, theta: Tensor) -> RowNumbers:
        return self.model.forward(self.model.split(theta), self.errors.features)

    def _tensor(self, parameters: Array) -> Tensor:
        return self.errors.features.new_tensor(parameters)

    def _block(
        self, block: Block, rows: RowNumbers, ridge: float
    ) -> tuple[Tensor, list[Fit], list[Tensor]]:
        """Errors of a block of queries, and the fits and squared distances of each component."""
        mean, fits, distances = torch.zeros_like(block.values), [], []
        factors = self._factors(block, rows)
        for number, coordinates in enumerate(rows.coordinates):
            squared = block.squared(coordinates)
            if rows.log_scales is not None:
                squared = squared * torch.exp(2.0 * rows.log_scales[block.index])[:, None]
            fit = Fit(block, *block.weights(squared, factors))
            prediction = block.values - fit.solve(ridge)
            gate = 1.0 if rows.gates is None else rows.gates[block.index, number, None]
            mean += gate * prediction
            fits.append(fit)
            distances.append(squared)
        return block.values - mean, fits, distances

    def _factors(self, block: Block, rows: RowNumbers) -> Tensor | None:
        """Factors of the weights of a block; None for ones."""
        factors = None
        if rows.log_factors is not None:
            factors = torch.exp(rows.log_factors - rows.log_factors.max())
        if self.generator is None:
            return factors
        features = self.errors.features
        shape = len(block.index), len(features)
        is_kept = torch.rand(shape, generator=self.generator, device=features.device)
        is_kept = is_kept >= self.dropout
        left = is_kept & (self.errors.weights > 0.0)
        left[block.excluded] = False
        is_kept[~left.any(dim=1)] = True  # no query is left without a key
        kept = is_kept.to(features.dtype)
        return kept if factors is None else kept * factors


class _Slopes:
    """Derivatives of the mean squared error in the numbers of the rows, summed over blocks."""

    def __init__(self, rows: RowNumbers) -> None:
        self.rows, self.sums = rows, rows.mapped(torch.zeros_like)

    def add(
        self, block: Block, fits: list[Fit], squared: list[Tensor], by_prediction: Tensor
    ) -> float:
        """Add the derivatives of a block, given those in its predictions.

        Returns the derivative in the logarithm of the ridge.
        """
        by_ridge, index = 0.0, block.index
        for number, fit in enumerate(fits):
            weighted = by_prediction
            if self.rows.gates is not None and self.sums.gates is not None:
                prediction = block.values - fit.errors
                self.sums.gates[index, number] += (by_prediction * prediction).sum(dim=1)
                weighted = by_prediction * self.rows.gates[index, number, None]
            by_weight = torch.zeros_like(fit.slopes)
            for output in range(weighted.shape[1]):
                by_weight += weighted[:, output, None] * fit.by_weight(output)
                by_ridge -= fit.ridge * float((weighted[:, output] * fit.shrinkage(output)).sum())
            if self.sums.log_factors is not None:
                self.sums.log_factors.add_((fit.weights * by_weight).sum(dim=0))
            self._add_distances(block, number, by_weight.mul_(fit.slopes), squared[number])
        return by_ridge

    def _add_distances(
        self, block: Block, number: int, by_distance: Tensor, squared: Tensor
    ) -> None:
        """Add derivatives in scales and coordinates, given those in squared distances."""
        index, scales = block.index, self.rows.log_scales
        if scales is not None and self.sums.log_scales is not None:
            finite = torch.where(by_distance == 0.0, 0.0, squared)
            self.sums.log_scales[index] += 2.0 * (by_distance * finite).sum(dim=1)
            by_distance *= torch.exp(2.0 * scales[index])[:, None]
        keys, sums = self.rows.coordinates[number], self.sums.coordinates[number]
        queries = keys[index]
        to_queries = by_distance.sum(dim=1, keepdim=True) * queries - by_distance @ keys
        sums.index_add_(0, index, 2.0 * to_queries)
        sums.add_(2.0 * (by_distance.sum(dim=0)[:, None] * keys - by_distance.T @ queries))


def _paired(outputs: list[Tensor], gradients: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Outputs that depend on parameters, with their gradients."""
    pairs = [pair for pair in zip(outputs, gradients, strict=True) if pair[0].requires_grad]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
