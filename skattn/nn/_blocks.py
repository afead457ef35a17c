"""Attention in blocks of queries, in memory that does not grow with queries times keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from skattn.nn._mask import Pattern
from skattn.nn._profiles import Profile, open_rows, silence, softmax_weights

# Entries of a block of queries and keys: for the cache of a core, and for a device.
BLOCK_ENTRIES = {"cpu": 1 << 18, "cuda": 1 << 26}


def block_slices(
    shape: tuple[int, int, int], pattern: Pattern, device: str
) -> Iterator[tuple[slice, slice, slice]]:
    """Blocks (batches, queries, keys they may see) of (n_batches, n_queries, n_keys) weights."""
    n_batches, n_queries, n_keys = shape
    entries = _entries(device)
    breadth = n_keys if pattern.breadth is None else min(n_keys, pattern.breadth)
    rows = max(1, entries // max(1, n_keys))
    if breadth < n_keys:  # rows as many as the window is broad see two windows of keys
        rows = max(rows, min(max(64, breadth), entries // (2 * breadth)))
    batches = max(1, entries // max(1, n_queries * n_keys)) if rows >= n_queries else 1
    for batch in range(0, n_batches, batches):
        for row in range(0, n_queries, rows):
            queries = slice(row, min(row + rows, n_queries))
            keys = pattern.columns(queries, n_keys)
            if keys.stop > keys.start:
                yield slice(batch, min(batch + batches, n_batches)), queries, keys


def row_slices(n_queries: int, row_entries: int, device: str) -> Iterator[slice]:
    """Blocks of queries that take `row_entries` numbers each."""
    step = max(1, _entries(device) // max(1, row_entries))
    for row in range(0, n_queries, step):
        yield slice(row, min(row + step, n_queries))


def _entries(device: str) -> int:
    return BLOCK_ENTRIES["cpu" if device == "cpu" else "cuda"]


class BlockAttention(torch.autograd.Function):
    """Weights times values, without keeping the weights for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, profile: Profile, pattern: Pattern
    ) -> Tensor:
        """Output (n_batches, n_queries, n_values)."""
        ctx.profile, ctx.pattern = profile, pattern
        output = queries.new_zeros(*queries.shape[:2], values.shape[-1])
        for batch, row, column in _slices(queries, keys, pattern):
            allowed = pattern.take(batch).block(row, column, queries.device)
            seen, blind = open_rows(allowed)
            weights = profile.weights(queries[batch, row], keys[batch, column], seen)[0]
            output[batch, row] = silence(weights @ values[batch, column], blind)
        ctx.save_for_backward(queries, keys, values, output)
        return output

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients in closed form, or by autograd if they are to be differentiated again."""
        queries, keys, values, output = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *_twice(ctx, queries, keys, values, gradient), None, None
        by_query, by_key, by_value = map(torch.zeros_like, (queries, keys, values))
        drift = (gradient * output).sum(dim=-1, keepdim=True)
        for batch, row, column in _slices(queries, keys, ctx.pattern):
            query, key, grad = queries[batch, row], keys[batch, column], gradient[batch, row]
            allowed = ctx.pattern.take(batch).block(row, column, queries.device)
            seen, blind = open_rows(allowed)
            grad = silence(grad, blind)
            weights, slopes = ctx.profile.weights(query, key, seen)
            by_value[batch, column] += weights.mT @ grad
            change = (grad @ values[batch, column].mT).sub_(drift[batch, row]).mul_(slopes)
            of_query, of_key = ctx.profile.gradients(change, query, key)
            by_query[batch, row] += of_query
            by_key[batch, column] += of_key
        return by_query, by_key, by_value, None, None


class KernelWeights(torch.autograd.Function):
    """Weights (n_batches, n_queries, n_keys), written out."""

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, profile: Profile, allowed: Tensor | None
    ) -> Tensor:
        """Weights of queries and keys of shape (n_batches, n, n_features)."""
        seen, blind = open_rows(allowed)
        weights, slopes = (silence(part, blind) for part in profile.weights(queries, keys, seen))
        ctx.profile = profile
        ctx.save_for_backward(queries, keys, weights, slopes)
        return weights

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients in closed form."""
        if torch.is_grad_enabled():
            raise _no_second_derivative(ctx.profile)
        queries, keys, weights, slopes = ctx.saved_tensors
        change = slopes * (gradient - (gradient * weights).sum(dim=-1, keepdim=True))
        return *ctx.profile.gradients(change, queries, keys), None, None


def _slices(
    queries: Tensor, keys: Tensor, pattern: Pattern
) -> Iterator[tuple[slice, slice, slice]]:
    shape = queries.shape[0], queries.shape[1], keys.shape[1]
    return block_slices(shape, pattern, queries.device.type)


def _twice(
    ctx: Any, queries: Tensor, keys: Tensor, values: Tensor, gradient: Tensor
) -> tuple[Tensor, ...]:
    if not ctx.profile.is_softmax:
        raise _no_second_derivative(ctx.profile)
    everything = slice(0, queries.shape[1]), slice(0, keys.shape[1])
    allowed = ctx.pattern.block(*everything, queries.device)
    output = softmax_weights(queries, keys, allowed) @ values
    inputs = (queries, keys, values)
    wanted = [tensor for tensor in inputs if tensor.requires_grad]
    found = iter(torch.autograd.grad(output, wanted, gradient, create_graph=True))
    return tuple(next(found) if tensor.requires_grad else None for tensor in inputs)  # type: ignore[misc]


def _no_second_derivative(profile: Any) -> RuntimeError:
    return RuntimeError(
        f"kernel={profile.kernel.name!r} has no second derivatives here; call backward or "
        "torch.autograd.grad without create_graph, or use kernel='gaussian'."
    )
