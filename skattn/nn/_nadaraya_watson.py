"""Kernel attention."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from skattn.nn._attend import Attended, attend_kernel
from skattn.nn._coordinates import Coordinates, inverse_bandwidth
from skattn.nn._inputs import Inputs, describe, differentiable_kernel, log_bandwidths
from skattn.nn._layer import AttentionLayer


class NadarayaWatsonAttention(AttentionLayer):
    r"""Weighted means of values under a kernel of the distance from queries to keys.

    .. math:: f(q) = \sum_i w_i(q)\, v_i, \qquad
              w_i(q) = \frac{K(\|(q - k_i) / h\|)}{\sum_j K(\|(q - k_j) / h\|)}

    The estimator of Nadaraya and Watson as a layer: with ``kernel="gaussian"`` a softmax of
    negative squared distances. The logarithm of the bandwidth h is the layer's parameter, so that
    h stays positive.

    Parameters
    ----------
    bandwidth : float or sequence of float of shape (n_features,), default=1.0
        Positive, in units of the features; one number is for all features. Infinity leaves a
        feature out.
    learnable : bool, default=True
        Whether the bandwidth is a parameter. If not, it is a buffer.
    kernel : str, default="gaussian"
        "gaussian", "laplace", "student", "epanechnikov", "biweight", "triweight", "tricube",
        "triangular" or "cosine": see `skattn.kernels`.
    n_features : int, default=None
        If given, each feature has a bandwidth of its own, also when one number starts them all.
    dropout : float, default=0.0
        Probability with which a weight is dropped in training; the others are scaled by
        1 / (1 - dropout).
    device : torch.device or str, default=None
        Where the bandwidth is.
    dtype : torch.dtype, default=None
        Type of the bandwidth; PyTorch's default dtype if None.

    Attributes
    ----------
    log_bandwidth : Tensor of shape () or (n_features,)
        Parameter, or buffer if not learnable.

    Raises
    ------
    ValueError
        If a bandwidth is not positive, the kernel has no derivative or is unknown, or shapes do
        not fit.

    See Also
    --------
    MultiHeadKernelAttention : Several metrics at once.
    skattn.NadarayaWatsonRegressor : Selects the bandwidth of one data set in closed form.

    Notes
    -----
    Time is O(n_queries * n_keys * (n_features + n_values)). Without ``need_weights`` memory does
    not grow with n_queries * n_keys, forward or backward. The Gaussian kernel runs on
    :func:`torch.nn.functional.scaled_dot_product_attention`: keys are centred and -\|k\|²/2 is one
    more coordinate of theirs. Other kernels, windows and self-exclusion run in blocks of queries
    whose weights are computed again in the backward pass. Weights are written out, all of them,
    when they are asked for, and in training with dropout (the Gaussian kernel on CUDA excepted).

    Far from every key, the Gaussian's weights go to the nearest key. Outside the support of all
    keys a compact kernel's weights go to the nearest key, ties shared, and gradients are zero.
    Half precision comes in and goes out; distances and sums are in float32.

    Second derivatives exist for the Gaussian kernel, with ``need_weights=True``, with a window or
    self-exclusion, and otherwise inside ``torch.nn.attention.sdpa_kernel(SDPBackend.MATH)``.

    References
    ----------
    .. [1] Nadaraya, E. A. (1964). On estimating regression. Theory of Probability & Its
       Applications, 9(1), 141-142.
    .. [2] Watson, G. S. (1964). Smooth regression analysis. Sankhya A, 26(4), 359-372.

    Examples
    --------
    >>> import torch
    >>> from skattn.nn import NadarayaWatsonAttention
    >>> attention = NadarayaWatsonAttention(bandwidth=0.5)
    >>> keys = torch.tensor([[0.0], [1.0], [2.0], [3.0]])
    >>> output, weights = attention(torch.tensor([[1.5]]), keys, keys**2, need_weights=True)
    >>> weights.detach()
    tensor([[0.0090, 0.4910, 0.4910, 0.0090]])
    >>> round(output.item(), 3)
    2.536
    """

    log_bandwidth: Tensor

    def __init__(
        self,
        bandwidth: object = 1.0,
        *,
        learnable: bool = True,
        kernel: str = "gaussian",
        n_features: int | None = None,
        dropout: float = 0.0,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(dropout)
        start = log_bandwidths(bandwidth, n_features, device, dtype)
        if learnable:
            self.log_bandwidth = nn.Parameter(start)
        else:
            self.register_buffer("log_bandwidth", start)
        self.kernel = differentiable_kernel(kernel)

    @property
    def bandwidth(self) -> Tensor:
        """The bandwidth, () or (n_features,)."""
        return self.log_bandwidth.exp()

    def _check(self, inputs: Inputs) -> None:
        if self.log_bandwidth.ndim == 1 and len(self.log_bandwidth) != inputs.queries.shape[-1]:
            raise ValueError(
                f"queries and keys must have the {len(self.log_bandwidth)} features that "
                f"bandwidth has entries for; got {inputs.queries.shape[-1]}."
            )

    def _attend(self, inputs: Inputs, dropout: float, need_weights: bool) -> Attended:
        queries, keys, values = inputs.computed_in(inputs.precise)
        inverse = inverse_bandwidth(self.log_bandwidth, keys.dtype)
        where = Coordinates(queries, keys, inputs.center(keys), inverse)
        return attend_kernel(self.kernel, where, values, inputs.pattern, dropout, need_weights)

    def _shown(self) -> list[str]:
        learnable = isinstance(self.log_bandwidth, nn.Parameter)
        bandwidth = f"bandwidth={describe(self.bandwidth)}"
        return [bandwidth, f"kernel={self.kernel.name!r}", f"learnable={learnable}"]
