"""Attention layers for networks of your own, on PyTorch tensors (extra ``torch``).

Importing this module imports PyTorch; ``import skattn`` does not import this module.
"""

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        'skattn.nn needs PyTorch, which is not installed: pip install "skattn[torch]".'
    ) from error

from skattn.nn._mask import Mask
from skattn.nn._multi_head import MultiHeadKernelAttention
from skattn.nn._nadaraya_watson import NadarayaWatsonAttention
from skattn.nn._network import AttentionRegressionNetwork
from skattn.nn._scores import AdditiveAttention, ScaledDotProductAttention

__all__ = [
    "AdditiveAttention",
    "AttentionRegressionNetwork",
    "Mask",
    "MultiHeadKernelAttention",
    "NadarayaWatsonAttention",
    "ScaledDotProductAttention",
]
