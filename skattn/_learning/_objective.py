"""Leave-one-out errors as a function of a metric, with their derivatives in closed form."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from skattn._attention import slices
from skattn._attention._torch import kernel_weights
from skattn._geometry import Own
from skattn._learning._metric import Metric

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Entries of a block of queries and keys: for the cache of a core, and for a device.
_BLOCK_ENTRIES = {"cpu": 1 << 17, "cuda": 1 << 26}


@dataclass(frozen=True)
class Problem:
    """What is learned from, in units of order one.

    Attributes
    ----------
    features : ndarray of shape (n_keys, n_features)
        What the metric maps to coordinates.
    line : ndarray of shape (n_keys, n_directions) or None
        Coordinates of local lines; None at degree 0.
    values : ndarray of shape (n_keys, n_outputs)
    weights : ndarray of shape (n_keys,)
        Positive sample weights.
    own : Own
        What is left out for each key.
    kernel : str
    n_plain : int
        How many of the features are no ranks; those come first.
    hidden : ndarray of shape (n_hidden,) or None
        Rows that are no keys, so that nothing is learned of their values.
    """

    features: Array
    line: Array | None
    values: Array
    weights: Array
    own: Own
    kernel: str
    n_plain: int
    hidden: Indices | None = None


class LeaveOneOut:
    """Leave-one-out predictions of some of the keys, on a device.

    Parameters
    ----------
    problem : Problem
    queries : ndarray of shape (n_queries,)
        Which keys are predicted from the others.
    device : torch.device
    dtype : torch.dtype
    """

    def __init__(
        self, problem: Problem, queries: Indices, device: torch.device, dtype: torch.dtype
    ) -> None:
        def tensor(array: Array) -> Tensor:
            return torch.tensor(array, dtype=dtype, device=device)

        self.problem = problem
        self.features, self.values = tensor(problem.features), tensor(problem.values)
        self.line = None if problem.line is None else tensor(problem.line)
        weights = problem.weights / problem.weights.max()
        if problem.hidden is not None:
            weights[problem.hidden] = 0.0
        self.weights, self.has_weights = tensor(weights), bool((weights != weights[0]).any())
        if self.line is not None:
            self.pairs, self.moments = _moments(self.line, self.values)
        self._divide(queries)

    def _divide(self, queries: Indices) -> None:
        weights = self.problem.weights
        self.queries = queries
        self.share = weights[queries] / weights[queries].sum()
        step = max(32, _BLOCK_ENTRIES[self.weights.device.type] // len(weights))
        self.blocks = [Block(self, queries[rows]) for rows in slices(len(queries), step)]

    def at(self, positions: Indices) -> LeaveOneOut:
        """The same of some of the queries."""
        some = copy.copy(self)
        some._divide(self.queries[positions])
        return some

    def errors(self, metric: Metric, parameters: Array, ridge: float) -> Array:
        """Values less leave-one-out predictions, (n_queries, n_outputs)."""
        return self.errors_at(metric, parameters, (ridge,))[0]

    def errors_at(self, metric: Metric, parameters: Array, ridges: Sequence[float]) -> list[Array]:
        """The errors at each of some ridges, from the same weights."""
        coordinates = self._coordinates(metric, parameters)
        blocks = []
        for block in self.blocks:
            fit = Fit(block, *block.weights(block.squared(coordinates)))
            blocks.append([_numbers(fit.solve(ridge)) for ridge in ridges])
        return [np.vstack(parts) for parts in zip(*blocks, strict=True)]

    def _coordinates(self, metric: Metric, parameters: Array) -> Tensor:
        matrix = torch.as_tensor(metric.matrix(parameters))
        return self.features @ matrix.to(self.features.device, self.features.dtype)

    def r_squared(self, errors: Array) -> float:
        """One less the mean square of errors over the variance of all values, mean over outputs."""
        weights = self.problem.weights / self.problem.weights.sum()
        around = self.problem.values - weights @ self.problem.values
        return float(1.0 - (self.share @ errors**2 / (weights @ around**2)).mean())

    def linearize(self, metric: Metric, parameters: Array, ridge: float) -> tuple[Array, Array]:
        """The errors, and derivatives of the predictions in the parameters and in log(ridge).

        Returns
        -------
        errors : ndarray of shape (n_queries, n_outputs)
        jacobian : ndarray of shape (n_queries, n_outputs, n_parameters + 1)
            The last column is zero at degree 0.
        """
        coordinates = self._coordinates(metric, parameters)
        errors, jacobians = [], []
        for block in self.blocks:
            fit = Fit(block, *block.weights(block.squared(coordinates)))
            errors.append(_numbers(fit.solve(ridge)))
            columns = []
            for output in range(self.values.shape[1]):
                changes, by_ridge = fit.changes(output), -ridge * fit.pull(output)
                by_parameter = metric.jacobian(parameters, changes, block.features, self.features)
                columns.append(torch.cat([by_parameter, by_ridge[:, None]], dim=1))
            jacobians.append(_numbers(torch.stack(columns, dim=1)))
        return np.vstack(errors), np.concatenate(jacobians)


class Block:
    """Some queries, and what each of them leaves out."""

    def __init__(self, problem: LeaveOneOut, queries: Indices) -> None:
        self.problem = problem
        index = torch.as_tensor(queries, device=problem.features.device)
        self.index = index
        self.features, self.values = problem.features[index], problem.values[index]
        self.line = None if problem.line is None else problem.line[index]
        own = problem.problem.own.take(queries)
        rows, keys = own.entries(0, len(problem.features))
        self.own = tuple(torch.as_tensor(part, device=index.device) for part in (rows, keys))
        self.kept = torch.as_tensor(own.kept[rows], dtype=self.values.dtype, device=index.device)

    def squared(self, coordinates: Tensor) -> Tensor:
        """Squared distances to all keys, (n_queries, n_keys), given coordinates of all keys."""
        queries = coordinates[self.index]
        # one product makes them: |q|**2 + |k|**2 - 2 q'k
        ones = torch.ones_like(coordinates[:, :1])
        left = [-2.0 * queries, (queries**2).sum(dim=1, keepdim=True), ones[: len(queries)]]
        right = [coordinates, ones, (coordinates**2).sum(dim=1, keepdim=True)]
        squared = (torch.cat(left, dim=1) @ torch.cat(right, dim=1).T).clamp_(min=0.0)
        if self.problem.problem.hidden is not None:
            squared[:, self.problem.problem.hidden] = torch.inf
        # what stays of a row is at distance zero, without rounding
        squared[self.own] = torch.where(self.kept > 0.0, 0.0, torch.inf).to(squared.dtype)
        return squared

    def weights(self, squared: Tensor, factors: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Normalised weights and slopes of the kernel, at squared distances in bandwidths.

        `factors`, of shape (n_keys,) or (n_queries, n_keys), multiply the weights. Where they are
        zero, for some keys of each query, keys are not there.
        """
        problem = self.problem
        if factors is not None:
            squared = torch.where(factors > 0.0, squared, torch.inf)
        weights, slopes = kernel_weights(problem.problem.kernel, squared)
        if problem.has_weights:
            weights, slopes = weights * problem.weights, slopes * problem.weights
        if factors is not None:
            weights, slopes = weights * factors, slopes * factors
        weights[self.own] = weights[self.own] * self.kept
        slopes[self.own] = slopes[self.own] * self.kept
        total = weights.sum(dim=1, keepdim=True)
        empty = (total <= torch.finfo(total.dtype).tiny)[:, 0]
        if empty.any():  # the nearest key takes all, and nothing changes
            nearest = squared[empty].argmin(dim=1)
            weights[empty] = torch.nn.functional.one_hot(nearest, weights.shape[1]).to(total.dtype)
            slopes[empty] = 0.0
            total = weights.sum(dim=1, keepdim=True)
        return weights.div_(total), slopes.div_(total)


class Fit:
    """Means or local lines of a block, from normalised weights and slopes.

    As `skattn._smoother` has them, with a ridge added to the covariance of the keys.
    """

    def __init__(self, block: Block, weights: Tensor, slopes: Tensor) -> None:
        self.block, self.weights, self.slopes = block, weights, slopes
        self.values, self.keys = block.problem.values, block.problem.line
        if self.keys is None:
            self.level = weights @ self.values
            return
        sizes = self.values.shape[1], self.keys.shape[1]
        product = weights @ block.problem.moments
        pairs = product.shape[1] - sum(sizes) - sizes[0] * sizes[1]
        self.level, self.center, pairs, cross = product.split(
            [*sizes, pairs, sizes[0] * sizes[1]], dim=1
        )
        first, second = block.problem.pairs
        covariance = pairs.new_empty(len(weights), sizes[1], sizes[1])
        covariance[:, first, second] = covariance[:, second, first] = pairs
        self.covariance = covariance - self.center[:, :, None] * self.center[:, None, :]
        cross = cross.reshape(len(weights), sizes[1], sizes[0])
        self.cross = cross - self.center[:, :, None] * self.level[:, None, :]

    def solve(self, ridge: float) -> Tensor:
        """Fit means or lines, and return the errors, (n_queries, n_outputs)."""
        self.ridge, queries = ridge, self.block.line
        if queries is None:
            self.errors = self.block.values - self.level
            return self.errors
        ridged = self.covariance.clone()
        ridged.diagonal(dim1=1, dim2=2).add_(ridge)
        away = (queries - self.center)[:, :, None]
        solved = torch.linalg.solve(ridged, torch.cat([away, self.cross], dim=2))
        self.arm, self.slope = solved[:, :, 0], solved[:, :, 1:]
        self.errors = self.block.values - self.level - (away * self.slope).sum(dim=1)
        return self.errors

    def pull(self, output: int) -> Tensor:
        """arm' slope: what the ridge takes from a prediction is ridge times that."""
        if self.keys is None:
            return torch.zeros_like(self.level[:, 0])
        return (self.arm * self.slope[:, :, output]).sum(dim=1)

    def changes(self, output: int) -> Tensor:
        """Derivatives of the predictions in squared distances, (n_queries, n_keys)."""
        return self.pushes(output).mul_(self.slopes)

    def pushes(self, output: int) -> Tensor:
        """Derivatives of the predictions in the weights before they are normalised."""
        values = self.values[:, output]
        if self.keys is None:
            return values - self.level[:, output, None]
        slope = self.slope[:, :, output]
        constant = (self.center * slope).sum(dim=1) - self.level[:, output]
        residuals = torch.addmm(constant[:, None] + values, slope, self.keys.T, alpha=-1.0)
        constant = 1.0 - (self.center * self.arm).sum(dim=1)
        push = torch.addmm(constant[:, None], self.arm, self.keys.T)
        return push.mul_(residuals).sub_(self.ridge * self.pull(output)[:, None])


def _moments(line: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
    """Pairs of directions, and the columns whose weighted means local lines are made of."""
    n_directions = line.shape[1]
    pairs = torch.triu_indices(n_directions, n_directions, device=line.device)
    products = (line[:, :, None] * values[:, None, :]).reshape(len(line), -1)
    return pairs, torch.cat([values, line, line[:, pairs[0]] * line[:, pairs[1]], products], dim=1)


def _numbers(tensor: Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)
