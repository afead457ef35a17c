"""Attention whose scores are no kernel of a distance."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from skattn.nn._attend import Attended, attend, is_fused, lead_shape, weigh
from skattn.nn._blocks import row_slices
from skattn.nn._inputs import Inputs, check_count, check_scale
from skattn.nn._layer import AttentionLayer
from skattn.nn._profiles import Softmax, masked_softmax


class ScaledDotProductAttention(AttentionLayer):
    r"""Weighted means of values under the softmax of scaled products of queries and keys.

    .. math:: w_i(q) \propto \exp(c\, q \cdot k_i)

    Transformers' attention, without projections, with the masks of this package. Its weights look
    for long keys in the direction of the query, not for near ones.

    Parameters
    ----------
    scale : float, default=None
        The factor c, not zero; 1 / sqrt(n_features) if None.
    dropout : float, default=0.0
        Probability with which a weight is dropped in training.

    Raises
    ------
    ValueError
        If the scale is zero or not finite, or shapes do not fit.

    Notes
    -----
    Time and memory, masks and second derivatives are those of `NadarayaWatsonAttention` with the
    Gaussian kernel. Half precision is left to PyTorch's fused kernel, which sums in float32.

    References
    ----------
    .. [1] Vaswani, A. et al. (2017). Attention is all you need. NeurIPS 30.

    Examples
    --------
    >>> import torch
    >>> from skattn.nn import ScaledDotProductAttention
    >>> keys = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> ScaledDotProductAttention(scale=1.0)(keys, need_weights=True)[1]
    tensor([[0.7311, 0.2689],
            [0.2689, 0.7311]])
    """

    def __init__(self, scale: float | None = None, *, dropout: float = 0.0) -> None:
        super().__init__(dropout)
        check_scale(scale)
        self.scale = scale

    def _attend(self, inputs: Inputs, dropout: float, need_weights: bool) -> Attended:
        profile = Softmax()
        fused = not need_weights and is_fused(profile, inputs.queries, inputs.pattern)
        queries, keys, values = inputs.computed_in(inputs.dtype if fused else inputs.precise)
        scale = keys.shape[-1] ** -0.5 if self.scale is None else self.scale
        rows = queries * scale, keys
        return attend(profile, rows, values, inputs.pattern, dropout, need_weights)

    def _shown(self) -> list[str]:
        return ["scale=1/sqrt(n_features)" if self.scale is None else f"scale={self.scale:.4g}"]


class AdditiveAttention(AttentionLayer):
    r"""Weighted means of values under the softmax of a small network's scores.

    .. math:: w_i(q) \propto \exp\bigl(a \cdot \tanh(Q q + P k_i + b)\bigr)

    Queries and keys may have different numbers of features.

    Parameters
    ----------
    n_features : int
        Number of features of the queries.
    n_hidden : int, default=16
        Number of hidden units, the length of a.
    n_key_features : int, default=None
        Number of features of the keys; that of the queries if None.
    dropout : float, default=0.0
        Probability with which a weight is dropped in training.
    device : torch.device or str, default=None
        Where the parameters are.
    dtype : torch.dtype, default=None
        Type of the parameters; PyTorch's default dtype if None.

    Attributes
    ----------
    query_projection, key_projection, score : torch.nn.Linear
        Q with b, P, and a.

    Raises
    ------
    ValueError
        If a number is not positive, or shapes do not fit.

    Notes
    -----
    Time is O(n_queries * n_keys * n_hidden). Memory is that of a block of queries, whose hidden
    units are computed again in the backward pass, unless the weights are asked for. It is slower
    than kernel attention by about the factor n_hidden, since a tanh costs as much as a weight.

    References
    ----------
    .. [1] Bahdanau, D., Cho, K. and Bengio, Y. (2015). Neural machine translation by jointly
       learning to align and translate. ICLR.

    Examples
    --------
    >>> import torch
    >>> from skattn.nn import AdditiveAttention
    >>> attention = AdditiveAttention(3, n_key_features=5)
    >>> attention(torch.zeros(2, 3), torch.zeros(4, 5), torch.ones(4, 1)).tolist()
    [[1.0], [1.0]]
    """

    same_features = False

    def __init__(
        self,
        n_features: int,
        n_hidden: int = 16,
        *,
        n_key_features: int | None = None,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(dropout)
        n_key_features = n_features if n_key_features is None else n_key_features
        check_count("n_features", n_features)
        check_count("n_hidden", n_hidden)
        check_count("n_key_features", n_key_features)
        self.query_projection = nn.Linear(n_features, n_hidden, device=device, dtype=dtype)
        self.key_projection = nn.Linear(
            n_key_features, n_hidden, bias=False, device=device, dtype=dtype
        )
        self.score = nn.Linear(n_hidden, 1, bias=False, device=device, dtype=dtype)

    def _check(self, inputs: Inputs) -> None:
        for name, rows, layer in (
            ("queries", inputs.queries, self.query_projection),
            ("keys", inputs.keys, self.key_projection),
        ):
            if rows.shape[-1] != layer.in_features:
                raise ValueError(
                    f"{name} must have {layer.in_features} features; got {rows.shape[-1]}."
                )

    def _attend(self, inputs: Inputs, dropout: float, need_weights: bool) -> Attended:
        query, key, values = inputs.computed_in(inputs.precise)
        query, key = _linear(self.query_projection, query), _linear(self.key_projection, key)
        n_queries, n_keys = query.shape[-2], key.shape[-2]
        everything = slice(0, n_queries), slice(0, n_keys)
        if need_weights or n_queries == 0:
            output, weights = self._block(inputs, query, key, values, everything, dropout)
            return output, weights if need_weights else None
        size = n_keys * self.score.in_features * lead_shape(query, key, values).numel()
        parts = []
        for row in row_slices(n_queries, size, query.device.type):
            where = row, inputs.pattern.columns(row, n_keys)
            block = inputs, query, key, values, where, dropout
            part = checkpoint(self._block, *block, use_reentrant=False)
            parts.append(part[0])
        return torch.cat(parts, dim=-2), None

    def _block(
        self,
        inputs: Inputs,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        where: tuple[slice, slice],
        dropout: float,
    ) -> Attended:
        row, column = where
        hidden = torch.tanh(queries[..., row, None, :] + keys[..., None, column, :])
        scores = _linear(self.score, hidden)[..., 0]
        weights = masked_softmax(scores, inputs.pattern.block(row, column, scores.device))
        return weigh(weights, values[..., column, :], dropout, True)


def _linear(layer: nn.Linear, rows: Tensor) -> Tensor:
    """Apply a linear layer in the dtype of the rows."""
    bias = None if layer.bias is None else layer.bias.to(rows.dtype)
    return nn.functional.linear(rows, layer.weight.to(rows.dtype), bias)
