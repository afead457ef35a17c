"""Leave-one-out errors as a function of a metric, with their derivatives in closed form."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from skattn._attention import Products, slices
from skattn._attention.engines.tensor import normalized_weights
from skattn._geometry.distances import tensor_expansion
from skattn._learning.design import Problem
from skattn._learning.metrics import Metric
from skattn._smoother.local_linear import central_moments, pair_places

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Entries of a block of queries and keys: for the cache of a core, and for a device.
_BLOCK_ENTRIES = {"cpu": 1 << 17, "cuda": 1 << 26}


class LeaveOneOut:
    """Leave-one-out predictions of some of the keys (n_queries,), on a device."""

    def __init__(
        self, problem: Problem, queries: Indices, device: torch.device, dtype: torch.dtype
    ) -> None:
        def tensor(array: Array) -> Tensor:
            return torch.tensor(array, dtype=dtype, device=device)

        self.problem = problem
        self.features, self.values = tensor(problem.features), tensor(problem.values)
        weights = problem.weights / problem.weights.max()
        if problem.hidden is not None:
            weights[problem.hidden] = 0.0
        self.weights, self.has_weights = tensor(weights), bool((weights != weights[0]).any())
        self.regressors, self.columns = None, self.values
        if problem.regressors is not None:
            self.regressors = tensor(problem.regressors)
            center = np.zeros(problem.regressors.shape[1])
            self.columns = tensor(Products(problem.values, problem.regressors).columns(center))
            self.places = torch.as_tensor(pair_places(len(center)), device=device)
        self._divide(queries)

    def _divide(self, queries: Indices) -> None:
        weights = self.problem.weights
        self.queries = queries
        self.share = weights[queries] / weights[queries].sum()
        step = max(32, _BLOCK_ENTRIES[self.weights.device.type] // len(weights))
        self.blocks = [Block(self, queries[rows]) for rows in slices(len(queries), step)]

    def at(self, positions: Indices) -> LeaveOneOut:
        """Leave-one-out predictions of some of the queries."""
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
        return self.features @ self.features.new_tensor(metric.matrix(parameters))

    def r_squared(self, errors: Array) -> float:
        """One less the mean square of errors over the variance of all values, mean over outputs."""
        weights = self.problem.weights / self.problem.weights.sum()
        around = self.problem.values - weights @ self.problem.values
        return float(1.0 - (self.share @ errors**2 / (weights @ around**2)).mean())

    def linearize(self, metric: Metric, parameters: Array, ridge: float) -> tuple[Array, Array]:
        """The errors, and derivatives of the predictions in the parameters and in log(ridge).

        The latter are (n_queries, n_outputs, n_parameters + 1); the last column is zero at degree
        0. Neither is finite where lines cannot be solved.
        """
        coordinates = self._coordinates(metric, parameters)
        errors, jacobians = [], []
        for block in self.blocks:
            fit = Fit(block, *block.weights(block.squared(coordinates)))
            errors.append(_numbers(fit.solve(ridge)))
            columns = []
            for output in range(self.values.shape[1]):
                changes, by_ridge = fit.by_distance(output), -ridge * fit.shrinkage(output)
                by_parameter = metric.jacobian(parameters, changes, block.features, self.features)
                columns.append(torch.cat([by_parameter, by_ridge[:, None]], dim=1))
            jacobians.append(_numbers(torch.stack(columns, dim=1)))
        return np.vstack(errors), np.concatenate(jacobians)


class Block:
    """Some queries, and what each of them leaves out."""

    def __init__(self, keys: LeaveOneOut, queries: Indices) -> None:
        self.keys = keys
        self.index = torch.as_tensor(queries, device=keys.features.device)
        self.features, self.values = keys.features[self.index], keys.values[self.index]
        self.regressors = None if keys.regressors is None else keys.regressors[self.index]
        excluded = keys.problem.excluded.take(queries)
        rows, columns = excluded.entries(0, len(keys.features))
        self.retained = self.values.new_tensor(excluded.retained[rows])
        device = self.index.device
        self.excluded = torch.tensor(rows, device=device), torch.tensor(columns, device=device)

    def squared(self, coordinates: Tensor) -> Tensor:
        """Squared distances to all keys, (n_queries, n_keys), given coordinates of all keys."""
        squared = tensor_expansion(coordinates[self.index], coordinates)
        if self.keys.problem.hidden is not None:
            squared[:, self.keys.problem.hidden] = torch.inf
        # what is retained of a row is at distance zero, without rounding
        squared[self.excluded] = torch.where(self.retained > 0.0, 0.0, torch.inf).to(squared.dtype)
        return squared

    def weights(self, squared: Tensor, factors: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Normalised weights and slopes of the kernel, at squared distances in bandwidths.

        `factors`, of shape (n_keys,) or (n_queries, n_keys), multiply the weights. Where they are
        zero, for some keys of each query, keys are not there.
        """
        keys = self.keys
        if keys.has_weights:
            factors = keys.weights if factors is None else factors * keys.weights
        excluded = *self.excluded, self.retained
        return normalized_weights(keys.problem.kernel, squared, factors, excluded)


class Fit:
    """Means or local lines of a block, from normalised weights and slopes.

    As `skattn._smoother` has them, with a ridge added to the covariance of the keys.
    """

    def __init__(self, block: Block, weights: Tensor, slopes: Tensor) -> None:
        self.block, self.weights, self.slopes = block, weights, slopes
        self.values, self.regressors = block.keys.values, block.keys.regressors
        sums = weights @ block.keys.columns
        if self.regressors is None:
            self.mean_value = sums
            return
        moments = central_moments(sums, self.regressors.shape[1], block.keys.places)
        self.mean_value, self.center, self.covariance, self.cross_covariance = moments
        if np.isfinite(block.keys.problem.kernel.support):  # lines are flat outside every support
            is_outside = ~slopes.any(dim=1)
            self.covariance[is_outside] = 0.0
            self.cross_covariance[is_outside] = 0.0

    def solve(self, ridge: float) -> Tensor:
        """Fit means or lines; return the errors, (n_queries, n_outputs), NaN where singular."""
        self.ridge, queries = ridge, self.block.regressors
        if queries is None:
            self.errors = self.block.values - self.mean_value
            return self.errors
        ridged = self.covariance.clone()
        ridged.diagonal(dim1=1, dim2=2).add_(ridge)
        away = (queries - self.center)[:, :, None]
        right = torch.cat([away, self.cross_covariance], dim=2)
        solved, failures = torch.linalg.solve_ex(ridged, right)
        if failures.any():
            solved[failures > 0] = torch.nan
        self.dual, self.slope = solved[:, :, 0], solved[:, :, 1:]
        self.errors = self.block.values - self.mean_value - (away * self.slope).sum(dim=1)
        return self.errors

    def shrinkage(self, output: int) -> Tensor:
        """dual' slope: what the ridge takes from a prediction is ridge times that."""
        if self.regressors is None:
            return torch.zeros_like(self.mean_value[:, 0])
        return (self.dual * self.slope[:, :, output]).sum(dim=1)

    def by_distance(self, output: int) -> Tensor:
        """Derivatives of the predictions in squared distances, (n_queries, n_keys)."""
        return self.by_weight(output).mul_(self.slopes)

    def by_weight(self, output: int) -> Tensor:
        """Derivatives of the predictions in the weights before they are normalised."""
        values = self.values[:, output]
        if self.regressors is None:
            return values - self.mean_value[:, output, None]
        slope = self.slope[:, :, output]
        constant = (self.center * slope).sum(dim=1) - self.mean_value[:, output]
        residuals = torch.addmm(constant[:, None] + values, slope, self.regressors.T, alpha=-1.0)
        constant = 1.0 - (self.center * self.dual).sum(dim=1)
        factors = torch.addmm(constant[:, None], self.dual, self.regressors.T)
        return factors.mul_(residuals).sub_(self.ridge * self.shrinkage(output)[:, None])


def _numbers(tensor: Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)
