"""The scikit-learn face of the package."""

from skattn._estimators.nadaraya_watson import NadarayaWatsonRegressor


class ParametricAttentionRegressor:
    pass


__all__ = ["NadarayaWatsonRegressor", "ParametricAttentionRegressor"]
