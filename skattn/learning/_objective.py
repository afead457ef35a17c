"""Leave-one-out errors as a function of a metric, with their derivatives in closed form."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from skattn.attention import slices
from skattn.attention._torch import kernel_weights
from skattn.geometry import Own
from skattn.learning._metric import Metric

Array = NDArray[np.float64]
Indices = NDArray[np.intp]

# Entries of a block of queries and keys.
_BLOCK_ENTRIES = 1 << 20


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
    """

    features: Array
    line: Array | None
    values: Array
    weights: Array
    own: Own
    kernel: str


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
        self.weights = tensor(problem.weights / problem.weights.max())
        self._divide(queries)

    def _divide(self, queries: Indices) -> None:
        weights = self.problem.weights
        self.queries = queries
        self.share = weights[queries] / weights[queries].sum()
        step = max(16, _BLOCK_ENTRIES // len(weights))
        self.blocks = [_Block(self, queries[rows]) for rows in slices(len(queries), step)]

    def at(self, positions: Indices) -> LeaveOneOut:
        """The same of some of the queries."""
        some = copy.copy(self)
        some._divide(self.queries[positions])
        return some

    def errors(self, metric: Metric, parameters: Array, ridge: float) -> Array:
        """Values less leave-one-out predictions, (n_queries, n_outputs)."""
        matrix = metric.matrix(parameters)
        fits = [block.fit(matrix, ridge) for block in self.blocks]
        return np.vstack([_numbers(fit.errors) for fit in fits])

    def linearize(self, metric: Metric, parameters: Array, ridge: float) -> tuple[Array, Array]:
        """The errors, and derivatives of the predictions in the parameters and in log(ridge).

        Returns
        -------
        errors : ndarray of shape (n_queries, n_outputs)
        jacobian : ndarray of shape (n_queries, n_outputs, n_parameters + 1)
            The last column is zero at degree 0.
        """
        matrix = metric.matrix(parameters)
        errors, jacobians = [], []
        for block in self.blocks:
            fit = block.fit(matrix, ridge)
            errors.append(_numbers(fit.errors))
            columns = []
            for output in range(fit.errors.shape[1]):
                changes, by_ridge = fit.changes(output), -ridge * fit.pull(output)
                by_parameter = metric.jacobian(parameters, changes, block.features, self.features)
                columns.append(torch.cat([by_parameter, by_ridge[:, None]], dim=1))
            jacobians.append(_numbers(torch.stack(columns, dim=1)))
        return np.vstack(errors), np.concatenate(jacobians)


class _Block:
    """Some queries, and what each of them leaves out."""

    def __init__(self, problem: LeaveOneOut, queries: Indices) -> None:
        self.problem = problem
        index = torch.as_tensor(queries, device=problem.features.device)
        self.features, self.values = problem.features[index], problem.values[index]
        self.line = None if problem.line is None else problem.line[index]
        own = problem.problem.own.take(queries)
        rows, keys = own.entries(0, len(problem.features))
        self.own = tuple(torch.as_tensor(part, device=index.device) for part in (rows, keys))
        self.kept = torch.as_tensor(own.kept[rows], dtype=self.values.dtype, device=index.device)

    def fit(self, matrix: Array, ridge: float) -> _Fit:
        """Leave-one-out predictions of the queries, under a linear map of the features."""
        problem = self.problem
        linear = torch.as_tensor(matrix, dtype=self.values.dtype, device=self.values.device)
        keys, queries = problem.features @ linear, self.features @ linear
        norms = (queries**2).sum(dim=1)[:, None] + (keys**2).sum(dim=1)
        squared = torch.clamp(norms - 2.0 * (queries @ keys.T), min=0.0)
        # what stays of a row is at distance zero, without rounding
        squared[self.own] = torch.where(self.kept > 0.0, 0.0, torch.inf).to(squared.dtype)
        weights, slopes = kernel_weights(problem.problem.kernel, squared)
        weights, slopes = weights * problem.weights, slopes * problem.weights
        weights[self.own] = weights[self.own] * self.kept
        slopes[self.own] = slopes[self.own] * self.kept
        total = weights.sum(dim=1, keepdim=True)
        empty = (total <= torch.finfo(total.dtype).tiny)[:, 0]
        if empty.any():  # the nearest key takes all, and nothing changes
            nearest = squared[empty].argmin(dim=1)
            weights[empty] = torch.nn.functional.one_hot(nearest, len(keys)).to(weights.dtype)
            slopes[empty] = 0.0
            total = weights.sum(dim=1, keepdim=True)
        return _Fit(self, weights / total, slopes / total, ridge)


class _Fit:
    """Means or local lines of a block, from normalised weights and slopes.

    As `skattn.smoother` has them, with a ridge added to the covariance of the keys.
    """

    def __init__(self, block: _Block, weights: Tensor, slopes: Tensor, ridge: float) -> None:
        self.values, self.slopes, self.ridge = block.problem.values, slopes, ridge
        self.level = weights @ self.values
        self.keys = block.problem.line
        if block.line is None:
            self.errors = block.values - self.level
        else:
            self._fit_lines(weights, block.line)
            slope = torch.einsum("qj,qjp->qp", block.line - self.center, self.slope)
            self.errors = block.values - self.level - slope

    def _fit_lines(self, weights: Tensor, queries: Tensor) -> None:
        keys, (n_keys, n_outputs) = self.keys, self.values.shape
        assert keys is not None
        n_directions = keys.shape[1]
        first, second = torch.triu_indices(n_directions, n_directions, device=keys.device)
        products = (keys[:, :, None] * self.values[:, None, :]).reshape(n_keys, -1)
        moments = weights @ torch.cat([keys, keys[:, first] * keys[:, second], products], dim=1)
        center, pairs, cross = moments.split([n_directions, len(first), products.shape[1]], dim=1)
        covariance = pairs.new_empty(len(weights), n_directions, n_directions)
        covariance[:, first, second] = covariance[:, second, first] = pairs
        covariance -= center[:, :, None] * center[:, None, :]
        covariance.diagonal(dim1=1, dim2=2).add_(self.ridge)
        cross = cross.reshape(-1, n_directions, n_outputs)
        cross = cross - center[:, :, None] * self.level[:, None, :]
        columns = torch.cat([(queries - center)[:, :, None], cross], dim=2)
        solved = torch.linalg.solve(covariance, columns)
        self.center, self.arm, self.slope = center, solved[:, :, 0], solved[:, :, 1:]

    def pull(self, output: int) -> Tensor:
        """arm' slope: what the ridge takes from a prediction is ridge times that."""
        if self.keys is None:
            return torch.zeros_like(self.level[:, 0])
        return (self.arm * self.slope[:, :, output]).sum(dim=1)

    def changes(self, output: int) -> Tensor:
        """Derivatives of the predictions in squared distances, (n_queries, n_keys)."""
        values = self.values[:, output]
        if self.keys is None:
            return self.slopes * (values - self.level[:, output, None])
        slope = self.slope[:, :, output]
        constant = self.level[:, output] - (self.center * slope).sum(dim=1)
        residuals = values - constant[:, None] - slope @ self.keys.T
        constant = 1.0 - (self.center * self.arm).sum(dim=1)
        change = (constant[:, None] + self.arm @ self.keys.T) * residuals
        return self.slopes * (change - self.ridge * self.pull(output)[:, None])


def _numbers(tensor: Tensor) -> Array:
    return tensor.detach().cpu().numpy().astype(np.float64)
