"""Attention: fused, in blocks, or with the weights written out."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional

from skattn.kernels import Kernel
from skattn.nn._blocks import BlockAttention, KernelWeights
from skattn.nn._coordinates import Coordinates
from skattn.nn._mask import Pattern
from skattn.nn._profiles import Profile, Radial, Softmax, open_rows, silence, softmax_weights

__all__ = ["Attended", "attend", "attend_kernel", "is_fused", "lead_shape", "weigh"]

Attended = tuple[Tensor, Tensor | None]


def lead_shape(*tensors: Tensor) -> torch.Size:
    """Leading dimensions that tensors of two or more dimensions broadcast to."""
    return torch.broadcast_shapes(*(tensor.shape[:-2] for tensor in tensors))


def is_fused(profile: Profile, tensor: Tensor, pattern: Pattern) -> bool:
    """Whether PyTorch's fused attention serves a request without weights."""
    if not profile.is_softmax or (tensor.is_cuda and tensor.dtype == torch.float64):
        return False
    return pattern.causal_only or not pattern.positional


def fused_size(n_columns: int, dtype: torch.dtype) -> int:
    """Number of columns rounded up to whole vector registers, as the fused kernel prefers."""
    multiple = 8 if dtype == torch.float64 else 16
    return -(-n_columns // multiple) * multiple


def attend_kernel(
    kernel: Kernel,
    coordinates: Coordinates,
    values: Tensor,
    pattern: Pattern,
    dropout: float,
    need_weights: bool,
) -> Attended:
    """Attend with a kernel of the distance; parameters and returns as for `attend`."""
    if bool(coordinates.inverse.isnan().any()):
        shape = *lead_shape(coordinates.queries, coordinates.keys, values), coordinates.n_queries
        nothing = values.new_full((*shape, coordinates.keys.shape[-2]), torch.nan)
        return weigh(nothing + coordinates.inverse.sum(), values, 0.0, need_weights)
    if not (kernel.is_exponential and kernel.rate == -0.5):
        return attend(Radial(kernel), coordinates.scaled(), values, pattern, dropout, need_weights)
    size = coordinates.size + 1
    if not need_weights and is_fused(Softmax(), values, pattern):
        size = fused_size(max(size, values.shape[-1]), values.dtype)
    return attend(Softmax(), coordinates.folded(size), values, pattern, dropout, need_weights)


def attend(
    profile: Profile,
    projected: tuple[Tensor, Tensor],
    values: Tensor,
    pattern: Pattern,
    dropout: float,
    need_weights: bool,
) -> Attended:
    """Weighted sums of values, and the weights before dropout if they are asked for.

    Queries and keys are given as the profile takes them, (..., n, n_features); values and output
    are (..., n, n_values), weights (..., n_queries, n_keys).
    """
    queries, keys = projected
    if keys.shape[-2] == 0:
        shape = *lead_shape(queries, keys, values), queries.shape[-2], 0
        return weigh(queries.new_zeros(shape), values, 0.0, need_weights)
    if not need_weights and is_fused(profile, queries, pattern):
        return _fused(queries, keys, values, pattern, dropout), None
    if need_weights or dropout > 0.0:
        allowed = pattern.block(
            slice(0, queries.shape[-2]), slice(0, keys.shape[-2]), queries.device
        )
        weights = _weights(profile, queries, keys, allowed)
        return weigh(weights, values, dropout, need_weights)
    flat, lead = _flattened(queries, keys, values)
    flat_pattern = replace(pattern, table=_flat_table(pattern.table, lead))
    output = BlockAttention.apply(*flat, profile, flat_pattern)
    return output.reshape(*lead, *output.shape[1:]), None


def weigh(weights: Tensor, values: Tensor, dropout: float, need_weights: bool) -> Attended:
    """Sums of values with given weights."""
    kept = functional.dropout(weights, dropout) if dropout > 0.0 else weights
    return kept @ values, weights if need_weights else None


def _weights(profile: Profile, queries: Tensor, keys: Tensor, allowed: Tensor | None) -> Tensor:
    if profile.is_softmax:
        return softmax_weights(queries, keys, allowed)
    flat, lead = _flattened(queries, keys)
    weights = KernelWeights.apply(*flat, profile, _flat_table(allowed, lead))
    return weights.reshape(*lead, *weights.shape[1:])


def _fused(
    queries: Tensor, keys: Tensor, values: Tensor, pattern: Pattern, dropout: float
) -> Tensor:
    lead, n_values = lead_shape(queries, keys, values), values.shape[-1]
    # one size for all three is what the fused kernel asks for
    size = fused_size(max(queries.shape[-1], n_values), queries.dtype)
    query, key, value = (_four(_padded(rows, size), lead) for rows in (queries, keys, values))
    seen, blind = None, None
    if pattern.table is not None:
        table = pattern.table.to(queries.device)
        opened, blind = open_rows(table.expand(*table.shape[:-1], keys.shape[-2]))
        seen = None if opened is None else _four(opened, lead)
    output = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=seen,
        dropout_p=dropout,
        is_causal=pattern.causal_only,
        scale=1.0,
    )
    output = output[..., :n_values].reshape(*lead, queries.shape[-2], n_values)
    return silence(output, blind)


def _padded(tensor: Tensor, size: int) -> Tensor:
    missing = size - tensor.shape[-1]
    return functional.pad(tensor, (0, missing)) if missing else tensor


def _four(tensor: Tensor, lead: torch.Size) -> Tensor:
    """Broadcast to two leading dimensions, without a copy where strides allow it."""
    tensor = tensor.expand(*lead, *tensor.shape[-2:])
    if len(lead) > 2:
        tensor = tensor.reshape(-1, *tensor.shape[-3:])
    return tensor[(None,) * (4 - tensor.ndim)]


def _flattened(*tensors: Tensor) -> tuple[list[Tensor], torch.Size]:
    lead = lead_shape(*tensors)
    wide = (tensor.expand(*lead, *tensor.shape[-2:]) for tensor in tensors)
    return [tensor.reshape(lead.numel(), *tensor.shape[-2:]) for tensor in wide], lead


def _flat_table(table: Tensor | None, lead: torch.Size) -> Tensor | None:
    if table is None or table.shape[:-2].numel() == 1:
        return table if table is None else table.reshape(1, *table.shape[-2:])
    return table.expand(*lead, *table.shape[-2:]).reshape(lead.numel(), *table.shape[-2:])
