"""The scikit-learn face of the package."""

from skattn.estimators._nadaraya_watson import NadarayaWatsonRegressor

__all__ = ["NadarayaWatsonRegressor"]
