"""The scikit-learn face of the package."""

from skattn._estimators.linear import Linear
from skattn._estimators.nadaraya_watson import NadarayaWatsonRegressor
from skattn._estimators.parametric import ParametricAttentionRegressor

__all__ = ["Linear", "NadarayaWatsonRegressor", "ParametricAttentionRegressor"]
