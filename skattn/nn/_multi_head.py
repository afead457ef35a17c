"""Several kernel attentions side by side."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor, nn

from skattn.nn._attend import Attended, attend_kernel
from skattn.nn._coordinates import Coordinates, inverse_bandwidth
from skattn.nn._inputs import (
    Inputs,
    check_count,
    describe,
    differentiable_kernel,
    log_bandwidth_of_heads,
)
from skattn.nn._layer import AttentionLayer
from skattn.nn._mask import Pattern


class MultiHeadKernelAttention(AttentionLayer):
    r"""A convex mixture of kernel attentions, each with a metric of its own.

    .. math:: w_i(q) = \sum_m g_m(q)\, w_i^{(m)}(q), \qquad
              w_i^{(m)}(q) \propto K(\|A_m (q - k_i)\| / h_m)

    Heads are mixed by gates g that are positive and sum to one, not concatenated and projected. So
    the weights of the layer are weights again: ``weights @ values`` is the output, and the output
    stays in the range of the values.

    Parameters
    ----------
    n_features : int
        Number of features of queries and keys.
    n_heads : int, default=4
        Number of metrics.
    n_coordinates : int, default=None
        Number of coordinates that each head projects to; n_features if None.
    bandwidth : float, default=1.0
        One positive number, in units of the projected features. Heads start at up to twice as much
        and down to half of it.
    kernel : str, default="gaussian"
        A kernel with a derivative, as for `NadarayaWatsonAttention`.
    gated_by_query : bool, default=False
        Whether the gates are a function of the query, the softmax of a linear one, rather than
        constants.
    dropout : float, default=0.0
        Probability with which a weight of a head is dropped in training.
    device : torch.device or str, default=None
        Where the parameters are.
    dtype : torch.dtype, default=None
        Type of the parameters; PyTorch's default dtype if None.

    Attributes
    ----------
    projection : Parameter of shape (n_heads, n_features, n_coordinates)
        A_m up to a factor: each is used at a Frobenius norm of sqrt(n_coordinates), so that its
        size cannot stand in for the bandwidth. They start orthogonal, drawn by PyTorch's
        generator.
    log_bandwidth : Parameter of shape (n_heads,)
        log h. To start heads at bandwidths of your own, copy their logarithms into
        ``log_bandwidth.data``.
    gate : torch.nn.Linear or Parameter of shape (n_heads,)
        Logits of the gates; all heads start with the same share.

    Raises
    ------
    ValueError
        If a number is not positive, the kernel is unknown, or shapes do not fit.

    See Also
    --------
    NadarayaWatsonAttention : One head, without a projection.

    Notes
    -----
    Time and memory are n_heads times those of `NadarayaWatsonAttention`, except that the values are
    shared.

    Examples
    --------
    >>> import torch
    >>> from skattn.nn import MultiHeadKernelAttention
    >>> attention = MultiHeadKernelAttention(3, n_heads=2)
    >>> keys, values = torch.eye(3), torch.arange(3.0)[:, None]
    >>> output, weights = attention(keys, keys, values, need_weights=True)
    >>> torch.allclose(weights @ values, output), torch.allclose(weights.sum(-1), torch.ones(3))
    (True, True)
    """

    def __init__(
        self,
        n_features: int,
        n_heads: int = 4,
        *,
        n_coordinates: int | None = None,
        bandwidth: float = 1.0,
        kernel: str = "gaussian",
        gated_by_query: bool = False,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(dropout)
        n_coordinates = n_features if n_coordinates is None else n_coordinates
        check_count("n_features", n_features)
        check_count("n_heads", n_heads)
        check_count("n_coordinates", n_coordinates)
        start = log_bandwidth_of_heads(bandwidth, n_heads, device, dtype)
        maps = start.new_empty(n_heads, n_features, n_coordinates)
        for head in maps:
            nn.init.orthogonal_(head)
        self.kernel = differentiable_kernel(kernel)
        self.log_bandwidth = nn.Parameter(start)
        self.projection = nn.Parameter(maps)
        self.gate: nn.Linear | nn.Parameter = (
            _zero_linear(n_features, start)
            if gated_by_query
            else nn.Parameter(torch.zeros_like(start))
        )

    @property
    def bandwidth(self) -> Tensor:
        """The bandwidth of each head, (n_heads,)."""
        return self.log_bandwidth.exp()

    def gates(self, queries: Tensor) -> Tensor:
        """Share of each head.

        Parameters
        ----------
        queries : Tensor of shape (..., n_queries, n_features)
            Queries, as for `forward`.

        Returns
        -------
        Tensor of shape (..., n_queries or 1, n_heads)
            Positive; rows sum to one.
        """
        if isinstance(self.gate, nn.Linear):
            bias, weight = self.gate.bias, self.gate.weight
            logits = queries @ weight.mT.to(queries.dtype) + bias.to(queries.dtype)
        else:
            logits = self.gate.to(queries.dtype)[None]
        return torch.softmax(logits, dim=-1)

    def _check(self, inputs: Inputs) -> None:
        if inputs.queries.shape[-1] != self.projection.shape[1]:
            raise ValueError(
                f"queries and keys must have n_features={self.projection.shape[1]} features; got "
                f"{inputs.queries.shape[-1]}."
            )

    def _attend(self, inputs: Inputs, dropout: float, need_weights: bool) -> Attended:
        queries, keys, values = inputs.computed_in(inputs.precise)
        heads, weights = attend_kernel(
            self.kernel,
            self._coordinates(queries, keys, inputs.center(keys)),
            values[..., None, :, :],
            _for_heads(inputs.pattern),
            dropout,
            need_weights,
        )
        shares = self.gates(queries).mT[..., None]  # (..., n_heads, n_queries or 1, 1)
        mixed = None if weights is None else (shares * weights).sum(dim=-3)
        return (shares * heads).sum(dim=-3), mixed

    def _coordinates(self, queries: Tensor, keys: Tensor, center: Tensor) -> Coordinates:
        projection = self.projection.to(keys.dtype)
        norm = torch.linalg.vector_norm(projection, dim=(1, 2), keepdim=True)
        maps = projection * (projection.shape[2] ** 0.5 / norm)
        inverse = inverse_bandwidth(self.log_bandwidth, keys.dtype)[:, None, None]
        rows = [(each - center)[..., None, :, :] @ maps for each in (queries, keys)]
        return Coordinates(rows[0], rows[1], keys.new_zeros(1, 1), inverse)

    def _shown(self) -> list[str]:
        n_heads, n_features, n_coordinates = self.projection.shape
        sizes = f"n_features={n_features}, n_heads={n_heads}, n_coordinates={n_coordinates}"
        return [sizes, f"bandwidth={describe(self.bandwidth)}", f"kernel={self.kernel.name!r}"]


def _for_heads(pattern: Pattern) -> Pattern:
    table = pattern.table
    if table is not None and table.ndim > 2:
        table = table[..., None, :, :]
    return replace(pattern, table=table)


def _zero_linear(n_features: int, like: Tensor) -> nn.Linear:
    layer = nn.Linear(n_features, len(like), device=like.device, dtype=like.dtype)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer
