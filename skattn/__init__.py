"""Kernel regression is attention: a prediction is attention over the training rows."""

from skattn._estimators import Linear, NadarayaWatsonRegressor, ParametricAttentionRegressor

__all__ = ["Linear", "NadarayaWatsonRegressor", "ParametricAttentionRegressor"]
__version__ = "0.1.0.dev0"
