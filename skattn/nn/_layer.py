"""The base class of attention layers."""

from __future__ import annotations

from torch import Tensor, nn

from skattn.nn._attend import Attended
from skattn.nn._inputs import Inputs, check_dropout, full_precision, read_inputs
from skattn.nn._mask import Mask


class AttentionLayer(nn.Module):
    """A module that reads inputs, attends, and returns the output in their dtype."""

    same_features = True

    def __init__(self, dropout: float) -> None:
        super().__init__()
        check_dropout(dropout)
        self.dropout = dropout

    def forward(
        self,
        queries: Tensor,
        keys: Tensor | None = None,
        values: Tensor | None = None,
        mask: Mask | Tensor | None = None,
        need_weights: bool = False,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """Attend from queries to keys.

        Parameters
        ----------
        queries : Tensor of shape (..., n_queries, n_features)
            Leading dimensions of all tensors broadcast.
        keys : Tensor of shape (..., n_keys, n_features), default=None
            The queries if None: self-attention, as in :class:`torch.nn.Sequential`.
        values : Tensor of shape (..., n_keys, n_values), default=None
            The keys if None.
        mask : Mask or Tensor of bool of shape (..., n_queries, n_keys), default=None
            Which queries may attend to which keys; True means may.
        need_weights : bool, default=False
            Whether to return the weights too, which then take memory.

        Returns
        -------
        output : Tensor of shape (..., n_queries, n_values)
            Zero for queries that may attend to no key.
        weights : Tensor of shape (..., n_queries, n_keys)
            Only if asked for; before dropout, and at least in float32. Rows sum to one, or to zero
            for queries that may attend to no key.

        Raises
        ------
        ValueError
            If shapes do not fit each other or the layer.
        """
        inputs = read_inputs(queries, keys, values, mask, self.same_features)
        self._check(inputs)
        with full_precision(queries.device):
            dropout = self.dropout if self.training else 0.0
            output, weights = self._attend(inputs, dropout, need_weights)
            if inputs.spoilt is not None:
                output = output * inputs.spoilt.outputs
                weights = None if weights is None else weights * inputs.spoilt.weights
        output = output.to(inputs.dtype)
        return output if weights is None else (output, weights)

    def _check(self, inputs: Inputs) -> None:
        """Refuse features that the layer was not made for."""

    def _attend(self, inputs: Inputs, dropout: float, need_weights: bool) -> Attended:
        raise NotImplementedError(f"{type(self).__name__} does not say how it attends.")

    def extra_repr(self) -> str:
        """Parameters that are shown when the layer is printed.

        Returns
        -------
        str
            The parameters, with the present bandwidth.
        """
        dropout = [f"dropout={self.dropout}"] if self.dropout else []
        return ", ".join([*self._shown(), *dropout])

    def _shown(self) -> list[str]:
        return []
