"""Regression networks around attention."""

from __future__ import annotations

from torch import Tensor, nn

from skattn.nn._mask import Mask
from skattn.nn._nadaraya_watson import NadarayaWatsonAttention


class AttentionRegressionNetwork(nn.Module):
    r"""Regression by attention over a context set, in coordinates that an encoder learns.

    .. math:: f(q) = \mathrm{head}\Bigl(\sum_i w_i(\phi(q))\, v_i\Bigr),
              \qquad w_i \text{ from } \phi(q), \phi(k_i)

    Queries and keys pass through one encoder, since a distance needs the same map on both sides;
    the values are not encoded. Without a head the output is a weighted mean of the values, and
    stays in their range.

    Parameters
    ----------
    encoder : torch.nn.Module, default=None
        Maps (..., n, n_features) to (..., n, n_coordinates). The identity if None.
    attention : torch.nn.Module, default=None
        A layer of this package, or any other called with queries, keys, values, mask and
        need_weights. ``NadarayaWatsonAttention()`` if None.
    head : torch.nn.Module, default=None
        Maps (..., n_queries, n_values) to the output. The identity if None.

    See Also
    --------
    skattn.ParametricAttentionRegressor : Learns a linear encoder, in closed form.

    Notes
    -----
    Train it with the training rows as queries and as context, and ``Mask(exclude_self=True)``:
    otherwise every row would learn to attend to itself. Predict with the training rows as context
    and no mask. Features and targets are best standardised: bandwidth and encoder start at one.

    Time and memory are those of its parts.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from skattn.nn import AttentionRegressionNetwork, Mask
    >>> x = torch.linspace(-1.0, 1.0, 50)[:, None]
    >>> y = torch.sin(4.0 * x)
    >>> network = AttentionRegressionNetwork(nn.Linear(1, 4))
    >>> optimizer = torch.optim.Adam(network.parameters(), lr=0.1)
    >>> for _ in range(50):
    ...     optimizer.zero_grad()
    ...     loss = ((network(x, x, y, mask=Mask(exclude_self=True)) - y) ** 2).mean()
    ...     loss.backward()
    ...     _ = optimizer.step()
    >>> bool(loss < 0.01)
    True
    """

    def __init__(
        self,
        encoder: nn.Module | None = None,
        attention: nn.Module | None = None,
        head: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.encoder = nn.Identity() if encoder is None else encoder
        self.attention = NadarayaWatsonAttention() if attention is None else attention
        self.head = nn.Identity() if head is None else head

    def forward(
        self,
        queries: Tensor,
        keys: Tensor,
        values: Tensor,
        mask: Mask | Tensor | None = None,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Predict at queries from a context of keys and values.

        Parameters
        ----------
        queries : Tensor of shape (..., n_queries, n_features)
            Points to predict at; leading dimensions of all tensors broadcast.
        keys : Tensor of shape (..., n_keys, n_features)
            The context: as a rule, the training rows.
        values : Tensor of shape (..., n_keys, n_values)
            Targets of the context.
        mask : Mask or Tensor of bool of shape (..., n_queries, n_keys), default=None
            Which queries may attend to which keys; True means may.
        need_weights : bool, default=False
            Whether to return the weights too.

        Returns
        -------
        output : Tensor of shape (..., n_queries, n_outputs)
            The weighted means, mapped by the head.
        weights : Tensor of shape (..., n_queries, n_keys)
            Only if asked for.
        """
        encoded = self.encoder(queries)
        context = encoded if keys is queries else self.encoder(keys)
        if need_weights:
            output, weights = self.attention(encoded, context, values, mask, need_weights=True)
            return self.head(output), weights
        return self.head(self.attention(encoded, context, values, mask))
