"""Variants: what a :class:`~skattn.ParametricAttentionRegressor` learns beside its metric.

Each is a small object of parameters, for ``variant=``; searches reach them as
``variant__n_components``. Each file has both halves of a model: what is trained, on tensors, and
what predicts, with NumPy.
"""

from skattn.variants._encoder import Encoder
from skattn.variants._fixed_share import FixedShare
from skattn.variants._mixture import Mixture
from skattn.variants._model import (
    Beginning,
    LearnableMetric,
    Model,
    ParameterBlock,
    RowNumbers,
    Variant,
)
from skattn.variants._query_scale import QueryScale
from skattn.variants._region_scale import RegionScale
from skattn.variants._sample_reweighting import SampleReweighting

__all__ = [
    "Beginning",
    "Encoder",
    "FixedShare",
    "LearnableMetric",
    "Mixture",
    "Model",
    "ParameterBlock",
    "QueryScale",
    "RegionScale",
    "RowNumbers",
    "SampleReweighting",
    "Variant",
]
