"""Coordinates, in which kernels see distances."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Queries and keys (..., n, n_features), and the origin and unit of their coordinates.

    The center (..., 1, n_features) is subtracted from both, so that no digits are lost far from the
    origin; `inverse` is one over the bandwidth, of any shape that broadcasts.
    """

    queries: Tensor
    keys: Tensor
    center: Tensor
    inverse: Tensor

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.keys.shape[-1]

    def scaled(self) -> tuple[Tensor, Tensor]:
        """Centred queries and keys in bandwidths."""
        return (self.queries - self.center) * self.inverse, (self.keys - self.center) * self.inverse

    def folded(self, n_columns: int) -> tuple[Tensor, Tensor]:
        """Queries and keys (..., n, n_columns) whose products are log-weights of the Gaussian.

        (q, 1).(k, -|k|**2 / 2) is -|q - k|**2 / 2 but for |q|**2 / 2, which all keys of a query
        share. Further columns are zero.
        """
        wide = torch.broadcast_shapes(self.queries.shape, self.center.shape)
        queries = self.queries.expand(wide)
        return _Fold.apply(queries, self.keys, self.center, self.inverse, n_columns)


class _Fold(torch.autograd.Function):
    """Folded coordinates, which keep only their arguments for the backward pass."""

    @staticmethod
    def forward(
        ctx: Any, queries: Tensor, keys: Tensor, center: Tensor, inverse: Tensor, n_columns: int
    ) -> tuple[Tensor, Tensor]:
        """Fill the columns."""
        ctx.save_for_backward(queries, keys, center, inverse)
        size = keys.shape[-1]
        rows = []
        for given in (queries, keys):
            folded = given.new_zeros(*given.shape[:-1], n_columns)
            torch.sub(given, center, out=folded[..., :size])
            rows.append(folded)
            folded[..., :size] *= inverse
        rows[0][..., size] = 1.0
        rows[1][..., size] = -0.5 * rows[1][..., :size].square().sum(dim=-1)
        return rows[0], rows[1]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients in closed form."""
        queries, keys, center, inverse = ctx.saved_tensors
        size = keys.shape[-1]
        from_center, key_from_center = queries - center, keys - center
        by_query, by_key = (gradient[..., :size] for gradient in gradients)
        by_key = by_key - gradients[1][..., size, None] * (key_from_center * inverse)
        by_inverse = None
        if ctx.needs_input_grad[3]:
            by_inverse = (by_query * from_center).sum_to_size(inverse.shape)
            by_inverse = by_inverse + (by_key * key_from_center).sum_to_size(inverse.shape)
        return by_query * inverse, by_key * inverse, None, by_inverse, None
