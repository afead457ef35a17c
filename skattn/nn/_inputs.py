"""Inputs and parameters of layers, checked."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from numbers import Real

import torch
from torch import Tensor

from skattn.kernels import DIFFERENTIABLE, KERNELS, Kernel
from skattn.nn._attend import lead_shape
from skattn.nn._mask import Mask, Pattern, fit_mask, visible_keys


@dataclass(frozen=True, eq=False)
class Inputs:
    """Queries, keys, values and mask of one call.

    Tensors have one dtype, that of the output, and shape (..., n, n_columns). Keys and values that
    no query sees, where `present` (..., n_keys) is False, are zero, and so are entries that are not
    finite: `spoilt` tells which outputs and weights they spoil.
    """

    queries: Tensor
    keys: Tensor
    values: Tensor
    present: Tensor | None
    pattern: Pattern
    dtype: torch.dtype
    spoilt: Spoilt | None

    def computed_in(self, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values in another dtype."""
        return self.queries.to(dtype), self.keys.to(dtype), self.values.to(dtype)

    @property
    def precise(self) -> torch.dtype:
        """Type of the inputs, or float32 for half precision."""
        return torch.promote_types(self.queries.dtype, torch.float32)

    def center(self, keys: Tensor) -> Tensor:
        """Mean of the keys that some query sees, (..., 1, n_features), without a gradient."""
        keys = keys.detach()
        if self.present is None:
            return keys.sum(dim=-2, keepdim=True) / max(1, keys.shape[-2])
        number = self.present.sum(dim=-1).clamp(min=1)[..., None, None].to(keys.device)
        return keys.sum(dim=-2, keepdim=True) / number


def read_inputs(
    queries: Tensor,
    keys: Tensor | None,
    values: Tensor | None,
    mask: Mask | Tensor | None,
    same_features: bool,
) -> Inputs:
    """Check the arguments of a layer; keys default to queries, values to keys."""
    keys = queries if keys is None else keys
    values = keys if values is None else values
    _check_tensors(queries, keys, values, same_features)
    lead = lead_shape(queries, keys, values)
    n_queries, n_keys = queries.shape[-2], keys.shape[-2]
    mask = mask if isinstance(mask, Mask) else Mask() if mask is None else Mask(allowed=mask)
    pattern, present = fit_mask(mask, n_queries, n_keys, lead), visible_keys(mask, n_keys)
    dtype = torch.promote_types(queries.dtype, torch.promote_types(keys.dtype, values.dtype))
    if present is not None:
        padding = ~present[..., None].to(keys.device)
        keys, values = keys.masked_fill(padding, 0.0), values.masked_fill(padding, 0.0)
    tensors = queries.to(dtype), keys.to(dtype), values.to(dtype)
    spoilt = None
    wide = torch.promote_types(dtype, torch.float32)
    if not math.isfinite(sum(float(each.detach().sum(dtype=wide)) for each in tensors)):
        spoilt = Spoilt.of(*tensors, pattern)
        tensors = tuple(torch.where(each.isfinite(), each, 0.0) for each in tensors)  # type: ignore[assignment]
    return Inputs(*tensors, present, pattern, dtype, spoilt)


@dataclass(frozen=True, eq=False)
class Spoilt:
    """Factors of outputs and of weights, (..., n_queries, 1): NaN where a query sees what is NaN.

    PyTorch's fused kernels return zeros there, and NaN where nothing is seen of it.
    """

    outputs: Tensor
    weights: Tensor

    @classmethod
    def of(cls, queries: Tensor, keys: Tensor, values: Tensor, pattern: Pattern) -> Spoilt:
        """Find queries that are not finite, and those that see such keys or values."""
        is_bad = [~each.detach().isfinite().all(dim=-1) for each in (queries, keys, values)]
        everything = slice(0, queries.shape[-2]), slice(0, keys.shape[-2])
        allowed = pattern.block(*everything, queries.device)

        def seen(bad: Tensor) -> Tensor:
            pairs = bad[..., None, :] if allowed is None else bad[..., None, :] & allowed
            return pairs.any(dim=-1)

        by_features = is_bad[0] | seen(is_bad[1])
        found = by_features | seen(is_bad[2]), by_features
        return cls(*(torch.where(each, torch.nan, 1.0).to(queries)[..., None] for each in found))


def _check_tensors(queries: Tensor, keys: Tensor, values: Tensor, same_features: bool) -> None:
    for name, tensor in (("queries", queries), ("keys", keys), ("values", values)):
        if tensor.ndim < 2 or not tensor.is_floating_point():
            raise ValueError(
                f"{name} must be a floating-point tensor of shape (..., n, n_columns); got "
                f"{tensor.dtype} of shape {tuple(tensor.shape)}. A single column is added by "
                "[..., None], integers become numbers by .float()."
            )
    if same_features and queries.shape[-1] != keys.shape[-1]:
        raise ValueError(
            f"queries and keys must have as many features; got {queries.shape[-1]} for queries of "
            f"shape {tuple(queries.shape)} and {keys.shape[-1]} for keys of shape "
            f"{tuple(keys.shape)}."
        )
    if keys.shape[-2] != values.shape[-2]:
        raise ValueError(
            f"values must have one row for each of the {keys.shape[-2]} keys; got shape "
            f"{tuple(values.shape)}. Are columns of values missing? values[..., None] adds one."
        )
    try:
        lead_shape(queries, keys, values)
    except RuntimeError as error:
        shapes = ", ".join(str(tuple(tensor.shape)) for tensor in (queries, keys, values))
        raise ValueError(
            "the leading dimensions of queries, keys and values must broadcast; got shapes "
            f"{shapes}."
        ) from error


def differentiable_kernel(name: str) -> Kernel:
    """Kernel of a name, refused if it has no derivative."""
    if name in DIFFERENTIABLE:
        return KERNELS[name]
    names = ", ".join(map(repr, DIFFERENTIABLE))
    raise ValueError(
        f"kernel must be one of {names}; got {name!r}. A kernel without a derivative cannot "
        "be learned through: skattn.NadarayaWatsonRegressor has those too."
    )


def check_dropout(dropout: float) -> None:
    """Refuse a dropout that is no probability below one."""
    if not _is_real(dropout) or not 0.0 <= dropout < 1.0:
        raise ValueError(
            f"dropout must be a probability, at least 0 and less than 1; got {dropout!r}."
        )


def check_scale(scale: float | None) -> None:
    """Refuse a scale that is no number, zero, or not finite."""
    if scale is not None and (not _is_real(scale) or scale == 0.0 or not math.isfinite(scale)):
        raise ValueError(f"scale must be None or a finite number, not 0; got {scale!r}.")


def _is_real(number: object) -> bool:
    return isinstance(number, Real) and not isinstance(number, bool)


def check_count(name: str, number: int) -> None:
    """Refuse a count that is no positive integer."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ValueError(f"{name} must be a positive integer; got {number!r}.")


def log_bandwidths(
    bandwidth: object,
    n_features: int | None,
    device: torch.device | str | None,
    dtype: torch.dtype | None,
) -> Tensor:
    """Logarithm of a checked bandwidth: one number, or one for each feature."""
    tensor = _positive(bandwidth)
    if tensor is None or tensor.ndim > 1:
        raise ValueError(
            "bandwidth must be a positive number or one for each feature, in units of the "
            f"feature; got {bandwidth!r}. Infinity leaves a feature out. A bandwidth that is "
            "selected by name is for skattn.NadarayaWatsonRegressor: hand over its bandwidth_."
        )
    if n_features is not None:
        check_count("n_features", n_features)
        if tensor.ndim == 1 and len(tensor) != n_features:
            raise ValueError(
                f"bandwidth must have one entry for each of the n_features={n_features} features; "
                f"got {len(tensor)}. Give one number to start all features alike."
            )
        tensor = tensor.expand(n_features)
    return _log(tensor, device, dtype)


def log_bandwidth_of_heads(
    bandwidth: object,
    n_heads: int,
    device: torch.device | str | None,
    dtype: torch.dtype | None,
) -> Tensor:
    """Logarithms of the first bandwidths of heads, from half of a checked one to twice it."""
    tensor = _positive(bandwidth)
    if tensor is None or tensor.ndim > 0:
        raise ValueError(
            "bandwidth must be one positive number, in units of the projected features; got "
            f"{bandwidth!r}. Heads start around it; to start them elsewhere, copy the logarithms "
            "of their bandwidths into log_bandwidth.data."
        )
    middle = _log(tensor, device, dtype).expand(n_heads)
    if n_heads == 1:
        return middle.clone()
    return middle + math.log(2.0) * torch.linspace(-1.0, 1.0, n_heads).to(middle)


def _positive(bandwidth: object) -> Tensor | None:
    """Positive numbers as a tensor in double precision; None if they are anything else."""
    try:
        tensor = torch.as_tensor(bandwidth, dtype=torch.float64).detach().cpu()
    except (TypeError, ValueError, RuntimeError):
        return None
    positive = tensor.numel() > 0 and bool((tensor > 0.0).all())
    return tensor if positive and not isinstance(bandwidth, bool) else None


def _log(tensor: Tensor, device: torch.device | str | None, dtype: torch.dtype | None) -> Tensor:
    dtype = torch.get_default_dtype() if dtype is None else dtype
    return tensor.log().to(device=device, dtype=dtype)


def describe(numbers: Tensor) -> str:
    """Print the first few numbers of a tensor."""
    few = [f"{number:.4g}" for number in numbers.detach().flatten()[:4].tolist()]
    if numbers.ndim == 0:
        return few[0]
    return f"[{', '.join(few)}{', ...' if numbers.numel() > 4 else ''}]"


@contextmanager
def full_precision(device: torch.device) -> Iterator[None]:
    """Suspend autocast: distances are differences of squares, not for half precision."""
    with torch.autocast(device_type=device.type, enabled=False):
        yield
