"""Coordinates, in which kernels see distances."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

# Largest coordinate, in bandwidths, whose square is far from overflow.
_LARGEST = {torch.float32: 1e15, torch.float64: 1e100}
# Log-bandwidths below act as these, whose inverse does not overflow.
_NARROWEST = {torch.float32: -80.0, torch.float64: -600.0}


def inverse_bandwidth(log_bandwidth: Tensor, dtype: torch.dtype) -> Tensor:
    """One over the bandwidth in some dtype, finite however narrow it is."""
    return torch.exp(-log_bandwidth.to(dtype).clamp(min=_NARROWEST[dtype]))


@dataclass(frozen=True, eq=False)
class Coordinates:
    """Queries and keys (..., n, n_features), and the origin and unit of their coordinates.

    The center (..., 1, n_features) is subtracted from both, so that no digits are lost far from the
    origin; `inverse` is one over the bandwidth, of any shape that broadcasts. Bandwidths at which
    squared distances would overflow act as wider ones: all weight goes to the nearest key.
    """

    queries: Tensor
    keys: Tensor
    center: Tensor
    inverse: Tensor

    @property
    def size(self) -> int:
        """Number of coordinates."""
        return self.keys.shape[-1]

    @property
    def n_queries(self) -> int:
        """Number of queries."""
        return self.queries.shape[-2]

    def scaled(self) -> tuple[Tensor, Tensor]:
        """Centred queries and keys in bandwidths."""
        inverse = self._bounded_inverse()
        return (self.queries - self.center) * inverse, (self.keys - self.center) * inverse

    def _bounded_inverse(self) -> Tensor:
        """Inverse bandwidths at which coordinates stay far below where squares overflow."""
        largest = _LARGEST[self.keys.dtype]
        if self.inverse.numel() == 0 or not bool((self.inverse > largest**0.5).any()):
            return self.inverse
        rows = (self.queries.detach() - self.center, self.keys.detach() - self.center)
        reach = [each.abs().amax(dim=-2, keepdim=True) for each in rows if each.shape[-2]]
        farthest = functools.reduce(torch.maximum, reach)
        return torch.minimum(self.inverse, largest / farthest.clamp(min=1.0 / largest))

    def folded(self, n_columns: int) -> tuple[Tensor, Tensor]:
        """Queries and keys (..., n, n_columns) whose products are log-weights of the Gaussian.

        (q, 1).(k, -|k|**2 / 2) is -|q - k|**2 / 2 but for |q|**2 / 2, which all keys of a query
        share. Further columns are zero.
        """
        wide = torch.broadcast_shapes(self.queries.shape, self.center.shape)
        queries = self.queries.expand(wide)
        return _Fold.apply(queries, self.keys, self.center, self._bounded_inverse(), n_columns)


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
