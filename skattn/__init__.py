"""Kernel regression is attention: a prediction is attention over the training rows."""

from skattn._estimators import NadarayaWatsonRegressor, ParametricAttentionRegressor

__all__ = ["NadarayaWatsonRegressor", "ParametricAttentionRegressor"]
__version__ = "0.1.0.dev0"
