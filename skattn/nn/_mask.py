"""Masks: which queries may attend to which keys."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

__all__ = ["Mask", "Pattern", "fit_mask", "visible_keys"]


@dataclass(frozen=True, eq=False)
class Mask:
    """A mask: which queries may attend to which keys. All conditions that are given must hold.

    True means *may attend*, as in :func:`torch.nn.functional.scaled_dot_product_attention` and
    unlike the ``key_padding_mask`` of :class:`torch.nn.MultiheadAttention`. Positions count from
    zero on both sides: query i and key i are in the same place, however many there are of each. A
    query that may attend to no key has weights of zero, an output of zero and gradients of zero.

    Parameters
    ----------
    allowed : Tensor of bool of shape (..., n_queries, n_keys), default=None
        Pair by pair.
    keys : Tensor of bool of shape (..., n_keys), default=None
        Which keys are there; the others are padding, whose contents never matter, NaN included.
    lengths : Tensor of int of shape (...), default=None
        How many keys are there, the first ones: ``keys`` in fewer numbers.
    causal : bool, default=False
        Whether query i attends to keys j <= i only.
    window : int, default=None
        Query i attends to keys with abs(i - j) <= window only. Time and memory are then those of
        the window, not of all keys.
    exclude_self : bool, default=False
        Whether query i must not attend to key i: leave-one-out, when the queries are the keys.

    Examples
    --------
    >>> import torch
    >>> from skattn.nn import Mask, NadarayaWatsonAttention
    >>> x = torch.tensor([[0.0], [1.0], [2.0]])
    >>> attention = NadarayaWatsonAttention(1.0, learnable=False)
    >>> attention(x, x, x, mask=Mask(causal=True, exclude_self=True), need_weights=True)[1]
    tensor([[0.0000, 0.0000, 0.0000],
            [1.0000, 0.0000, 0.0000],
            [0.1824, 0.8176, 0.0000]])
    """

    allowed: Tensor | None = None
    keys: Tensor | None = None
    lengths: Tensor | None = None
    causal: bool = False
    window: int | None = None
    exclude_self: bool = False

    def __post_init__(self) -> None:
        for name in ("allowed", "keys"):
            table = getattr(self, name)
            if table is not None and table.dtype != torch.bool:
                raise ValueError(
                    f"{name} must be a tensor of bool, True where a query may attend; got "
                    f"{table.dtype}. A mask of 0 and 1 becomes one by .bool()."
                )
        if self.lengths is not None and (
            self.lengths.is_floating_point() or self.lengths.dtype == torch.bool
        ):
            raise ValueError(f"lengths must be a tensor of integers; got {self.lengths.dtype}.")
        if self.window is not None and (type(self.window) is not int or self.window < 0):
            raise ValueError(
                f"window must be None or a number of positions, at least 0; got {self.window!r}."
            )


def present_keys(mask: Mask, n_keys: int) -> Tensor | None:
    """Keys that are no padding, (..., n_keys) of bool; None if there is no padding."""
    if mask.keys is not None and mask.keys.shape[-1] != n_keys:
        raise ValueError(
            f"keys of the mask must have one entry for each of the {n_keys} keys; got shape "
            f"{tuple(mask.keys.shape)}."
        )
    if mask.lengths is None:
        return mask.keys
    first = torch.arange(n_keys, device=mask.lengths.device) < mask.lengths[..., None]
    return first if mask.keys is None else first & mask.keys


def visible_keys(mask: Mask, n_keys: int) -> Tensor | None:
    """Keys that some query may see, positions apart, (..., n_keys); None if all."""
    present = present_keys(mask, n_keys)
    if mask.allowed is None or mask.allowed.shape[-1] != n_keys:
        return present
    seen = mask.allowed.any(dim=-2)
    if bool(seen.all()):
        return present
    return seen if present is None else seen & present.to(seen.device)


def fit_mask(mask: Mask, n_queries: int, n_keys: int, lead: Sequence[int]) -> Pattern:
    """Pattern of a mask for weights of shape (*lead, n_queries, n_keys)."""
    tables = [] if mask.allowed is None else [mask.allowed]
    present = present_keys(mask, n_keys)
    if present is not None:
        tables.append(present[..., None, :])
    table: Tensor | None = None
    for part in tables:
        _check_table(part, (*lead, n_queries, n_keys))
        table = part if table is None else table & part
    upper = [limit for limit in (0 if mask.causal else None, mask.window) if limit is not None]
    lower = None if mask.window is None else -mask.window
    return Pattern(table, lower, min(upper) if upper else None, mask.exclude_self)


def _check_table(table: Tensor, shape: tuple[int, ...]) -> None:
    sizes = shape[-table.ndim :] if table.ndim <= len(shape) else ()
    fits = bool(sizes) and table.ndim >= 2
    if not fits or any(a not in (1, b) for a, b in zip(table.shape, sizes, strict=True)):
        raise ValueError(
            f"a mask of shape {tuple(table.shape)} does not fit weights of shape {shape}, "
            "(..., n_queries, n_keys): each dimension must be equal or 1. allowed has the shape of "
            "the weights, keys has no dimension of queries, lengths none of queries and keys."
        )


@dataclass(frozen=True, eq=False)
class Pattern:
    """A mask that fits its queries and keys.

    The table is (..., n_queries or 1, n_keys or 1) of bool; `lower` and `upper` are bounds of the
    position of a key less that of the query.
    """

    table: Tensor | None
    lower: int | None
    upper: int | None
    exclude_self: bool

    @property
    def positional(self) -> bool:
        """Whether positions matter."""
        return self.exclude_self or self.lower is not None or self.upper is not None

    @property
    def causal_only(self) -> bool:
        """Whether the mask is the causal one and nothing else."""
        return (
            self.table is None and self.lower is None and self.upper == 0 and not self.exclude_self
        )

    @property
    def breadth(self) -> int | None:
        """Largest number of keys that a query sees; None if there is no bound."""
        return None if self.lower is None or self.upper is None else self.upper - self.lower + 1

    def columns(self, rows: slice, n_keys: int) -> slice:
        """Range of keys that a block of queries may see."""
        start = 0 if self.lower is None else rows.start + self.lower
        stop = n_keys if self.upper is None else rows.stop + self.upper
        start = min(max(start, 0), n_keys)
        return slice(start, max(start, min(stop, n_keys)))

    def take(self, batches: slice) -> Pattern:
        """Pattern of some batches, the first dimension of a table of three."""
        if self.table is None or self.table.shape[0] == 1:
            return self
        return replace(self, table=self.table[batches])

    def block(self, rows: slice, columns: slice, device: torch.device) -> Tensor | None:
        """Table of bool of a block of queries and keys; None if all may attend to all."""
        allowed = None
        if self.table is not None:
            some = rows if self.table.shape[-2] > 1 else slice(None)
            few = columns if self.table.shape[-1] > 1 else slice(None)
            allowed = self.table[..., some, few].to(device)
        if not self.positional:
            return allowed
        keys = torch.arange(columns.start, columns.stop, device=device)
        queries = torch.arange(rows.start, rows.stop, device=device)[:, None]
        conditions = [] if allowed is None else [allowed]
        if self.lower is not None:
            conditions.append(keys >= queries + self.lower)
        if self.upper is not None:
            conditions.append(keys <= queries + self.upper)
        if self.exclude_self:
            conditions.append(keys != queries)
        return functools.reduce(torch.logical_and, conditions)
