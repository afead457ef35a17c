"""The scikit-learn face of the package."""

from skattn.estimators._nadaraya_watson import NadarayaWatsonRegressor
from skattn.estimators._parametric import ParametricAttentionRegressor

__all__ = ["NadarayaWatsonRegressor", "ParametricAttentionRegressor"]
