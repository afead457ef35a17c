"""The scikit-learn face of the package."""

from skattn._estimators._nadaraya_watson import NadarayaWatsonRegressor
from skattn._estimators._parametric import ParametricAttentionRegressor

__all__ = ["NadarayaWatsonRegressor", "ParametricAttentionRegressor"]
