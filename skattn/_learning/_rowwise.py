"""Leave-one-out losses of attention in which every row has numbers of its own, and gradients.

A model gives every row coordinates z for each of its heads, and may give it gates g, a log-scale r
and a log-factor c: all functions of the row alone. Between a query q and a key i,

    D_hqi = exp(2 r_q) |z_hq - z_hi|**2,   w_hqi ~ exp(c_i) K(D_hqi),   f(q) = sum_h g_hq f_h(q),

with f_h the mean or local line under w_h. Derivatives in D, g, r and c are in closed form, block by
block; those of the numbers of the rows in the parameters are left to autograd, once for all rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from skattn._learning._objective import Block, Fit, LeaveOneOut
from skattn._learning._trainer import EXACT, Prior

Array = NDArray[np.float64]
Indices = NDArray[np.intp]


@dataclass(frozen=True)
class RowNumbers:
    """What a model gives each row.

    Attributes
    ----------
    coordinates : list of Tensor of shape (n_rows, n_coordinates)
        For each head.
    gates : Tensor of shape (n_rows, n_heads) or None
        Shares of the heads, for rows as queries; None for a single head.
    log_scales : Tensor of shape (n_rows,) or None
        What multiplies all factors of a row as query, as logarithms.
    log_factors : Tensor of shape (n_rows,) or None
        What multiplies the weights of a row as key, as logarithms.
    """

    coordinates: list[Tensor]
    gates: Tensor | None = None
    log_scales: Tensor | None = None
    log_factors: Tensor | None = None

    def tensors(self) -> list[Tensor]:
        """All of them."""
        others = (self.gates, self.log_scales, self.log_factors)
        return [*self.coordinates, *(other for other in others if other is not None)]

    def detached(self) -> RowNumbers:
        """The same numbers, of which gradients are collected by hand."""
        others = (self.gates, self.log_scales, self.log_factors)
        return RowNumbers(
            [part.detach() for part in self.coordinates],
            *(None if other is None else other.detach() for other in others),
        )


class Model(Protocol):
    """A function from parameters to numbers of the rows."""

    @property
    def n_parameters(self) -> int:
        """How many numbers it depends on, the ridge not among them."""
        ...

    def rows(self, parameters: Tensor, features: Tensor) -> RowNumbers:
        """The numbers of all rows (n_rows, n_features); differentiable in the parameters."""
        ...


class RowwiseLoss:
    """log(mean squared leave-one-out error) and the prior's penalty, with the gradient.

    Parameters
    ----------
    errors : LeaveOneOut
        Of the queries whose errors count.
    model : Model
    prior : Prior
        The last parameter is the logarithm of the ridge, where there is one.
    dropout : float
        The probability with which each key is missed by each query, anew each time.
    generator : torch.Generator or None
        Draws them; None drops nothing.
    """

    def __init__(
        self,
        errors: LeaveOneOut,
        model: Model,
        prior: Prior,
        dropout: float = 0.0,
        generator: torch.Generator | None = None,
    ) -> None:
        self.errors, self.model, self.prior = errors, model, prior
        self.dropout, self.generator = dropout, generator

    def at(self, positions: Indices) -> RowwiseLoss:
        """The loss of some of the queries."""
        some = self.errors.at(positions)
        return RowwiseLoss(some, self.model, self.prior, self.dropout, self.generator)

    def sampled(self, parameters: Array) -> float:
        """The loss alone, with what is dropped the same each time."""
        if self.generator is None:
            return self.value(parameters)
        generator = torch.Generator(self.generator.device).manual_seed(0)
        same = RowwiseLoss(self.errors, self.model, self.prior, self.dropout, generator)
        return same.value(parameters)

    def of(self, errors: LeaveOneOut) -> RowwiseLoss:
        """The loss of other queries, without dropout."""
        return RowwiseLoss(errors, self.model, self.prior)

    def split(self, parameters: Array) -> tuple[Array, float]:
        """Those of the model, and the ridge."""
        if self.errors.line is None:
            return parameters, 1.0
        return parameters[:-1], float(np.exp(parameters[-1]))

    def value(self, parameters: Array) -> float:
        """The loss alone."""
        squares = (self.left_out(parameters) ** 2).mean(axis=1)
        return self._penalized(float(self.errors.share @ squares), parameters)

    def r_squared(self, parameters: Array) -> float:
        """One less the mean squared leave-one-out error over the variance of all values."""
        return self.errors.r_squared(self.left_out(parameters))

    def left_out(self, parameters: Array) -> Array:
        """Leave-one-out errors, (n_queries, n_outputs)."""
        parameters, ridge = self.split(parameters)
        with torch.no_grad():
            rows = self.model.rows(self._tensor(parameters), self.errors.features)
            found = [self._block(block, rows, ridge)[0] for block in self.errors.blocks]
        return torch.cat(found).cpu().numpy().astype(np.float64)

    def __call__(self, parameters: Array) -> tuple[float, Array, Array]:
        """The loss, its gradient, and nothing in place of a Hessian."""
        own, ridge = self.split(parameters)
        theta = self._tensor(own).requires_grad_()
        with torch.enable_grad():
            rows = self.model.rows(theta, self.errors.features)
        fixed = rows.detached()
        slopes = _Slopes(fixed)
        shares = torch.as_tensor(self.errors.share, dtype=theta.dtype, device=theta.device)
        total, by_ridge, start = 0.0, 0.0, 0
        with torch.no_grad():
            for block in self.errors.blocks:
                share = shares[start : start + len(block.index)] / self.errors.values.shape[1]
                start += len(block.index)
                left, fits, squared = self._block(block, fixed, ridge)
                total += float((share[:, None] * left**2).sum())
                push = -2.0 * share[:, None] * left
                by_ridge += slopes.add(block, fits, squared, push)
        outputs, gradients = _paired(rows.tensors(), slopes.tensors())
        (by_parameter,) = torch.autograd.grad(outputs, theta, gradients)
        gradient = by_parameter.cpu().numpy().astype(np.float64)
        if self.errors.line is not None:
            gradient = np.append(gradient, by_ridge)
        gradient /= total + EXACT
        gradient += 2.0 * self.prior.precision * (parameters - self.prior.center)
        return self._penalized(total, parameters), gradient, np.zeros((0, 0))

    def _penalized(self, mean_square: float, parameters: Array) -> float:
        deviation = parameters - self.prior.center
        return float(np.log(mean_square + EXACT) + self.prior.precision @ deviation**2)

    def _tensor(self, parameters: Array) -> Tensor:
        features = self.errors.features
        return torch.tensor(parameters, dtype=features.dtype, device=features.device)

    def _block(
        self, block: Block, rows: RowNumbers, ridge: float
    ) -> tuple[Tensor, list[Fit], list[Tensor]]:
        """Errors of a block of queries, and the fits and squared distances of each head."""
        mean, fits, distances = torch.zeros_like(block.values), [], []
        factors = self._factors(block, rows)
        for head, coordinates in enumerate(rows.coordinates):
            squared = block.squared(coordinates)
            if rows.log_scales is not None:
                squared = squared * torch.exp(2.0 * rows.log_scales[block.index])[:, None]
            fit = Fit(block, *block.weights(squared, factors))
            prediction = block.values - fit.solve(ridge)
            gate = 1.0 if rows.gates is None else rows.gates[block.index, head, None]
            mean += gate * prediction
            fits.append(fit)
            distances.append(squared)
        return block.values - mean, fits, distances

    def _factors(self, block: Block, rows: RowNumbers) -> Tensor | None:
        """What multiplies the weights of a block."""
        factors = None
        if rows.log_factors is not None:
            factors = torch.exp(rows.log_factors - rows.log_factors.max())
        if self.generator is None or self.dropout == 0.0:
            return factors
        shape = len(block.index), len(self.errors.features)
        device = self.errors.features.device
        drawn = torch.rand(shape, generator=self.generator, device=device)
        is_kept = drawn >= self.dropout
        is_kept[~self._has_keys(block, is_kept)] = True
        kept = is_kept.to(self.errors.features.dtype)
        return kept if factors is None else kept * factors

    def _has_keys(self, block: Block, is_kept: Tensor) -> Tensor:
        """Queries that are left a key besides their own."""
        left = is_kept & (self.errors.weights > 0.0)
        left[block.own] = False
        return left.any(dim=1)


class _Slopes:
    """Derivatives of the mean squared error in the numbers of the rows, summed over blocks."""

    def __init__(self, rows: RowNumbers) -> None:
        self.rows = rows
        self.sums = RowNumbers(
            [torch.zeros_like(part) for part in rows.coordinates],
            None if rows.gates is None else torch.zeros_like(rows.gates),
            None if rows.log_scales is None else torch.zeros_like(rows.log_scales),
            None if rows.log_factors is None else torch.zeros_like(rows.log_factors),
        )

    def add(self, block: Block, fits: list[Fit], squared: list[Tensor], push: Tensor) -> float:
        """Add those of a block, given derivatives `push` in its predictions.

        Returns the derivative in the logarithm of the ridge.
        """
        by_ridge, index = 0.0, block.index
        for head, fit in enumerate(fits):
            pushed = push
            if self.rows.gates is not None and self.sums.gates is not None:
                prediction = block.values - fit.errors
                self.sums.gates[index, head] += (push * prediction).sum(dim=1)
                pushed = push * self.rows.gates[index, head, None]
            by_weight = torch.zeros_like(fit.slopes)
            for output in range(push.shape[1]):
                by_weight += pushed[:, output, None] * fit.pushes(output)
                by_ridge -= fit.ridge * float((pushed[:, output] * fit.pull(output)).sum())
            self._add_head(block, head, fit, squared[head], by_weight)
        return by_ridge

    def _add_head(
        self, block: Block, head: int, fit: Fit, squared: Tensor, by_weight: Tensor
    ) -> None:
        if self.sums.log_factors is not None:
            self.sums.log_factors.add_((fit.weights * by_weight).sum(dim=0))
        by_distance = by_weight.mul_(fit.slopes)
        index, scales = block.index, self.rows.log_scales
        if scales is not None and self.sums.log_scales is not None:
            finite = torch.where(by_distance == 0.0, 0.0, squared)
            self.sums.log_scales[index] += 2.0 * (by_distance * finite).sum(dim=1)
            by_distance *= torch.exp(2.0 * scales[index])[:, None]
        keys, sums = self.rows.coordinates[head], self.sums.coordinates[head]
        queries = keys[index]
        to_queries = by_distance.sum(dim=1, keepdim=True) * queries - by_distance @ keys
        sums.index_add_(0, index, 2.0 * to_queries)
        sums.add_(2.0 * (by_distance.sum(dim=0)[:, None] * keys - by_distance.T @ queries))

    def tensors(self) -> list[Tensor]:
        """All of them, in the order of `RowNumbers.tensors`."""
        return self.sums.tensors()


def _paired(outputs: list[Tensor], gradients: list[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
    """Those of the outputs that depend on parameters, with their gradients."""
    pairs = [pair for pair in zip(outputs, gradients, strict=True) if pair[0].requires_grad]
    return [pair[0] for pair in pairs], [pair[1] for pair in pairs]
