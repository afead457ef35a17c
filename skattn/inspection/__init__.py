"""Displays of weights, fits, bandwidths, training and intervals; and effects of training rows.

Displays follow scikit-learn's: the constructor stores arrays, `from_estimator` computes them and
draws, `plot` draws. Drawing needs Matplotlib (``pip install "skattn[plot]"``).
"""

from skattn.inspection._attention import AttentionDisplay
from skattn.inspection._bandwidth import BandwidthDisplay
from skattn.inspection._effect import leave_row_out_effect
from skattn.inspection._interval import PredictionIntervalDisplay
from skattn.inspection._loss_curve import LossCurveDisplay
from skattn.inspection._profile import AttentionProfileDisplay
from skattn.inspection._regression import RegressionDisplay

__all__ = [
    "AttentionDisplay",
    "AttentionProfileDisplay",
    "BandwidthDisplay",
    "LossCurveDisplay",
    "PredictionIntervalDisplay",
    "RegressionDisplay",
    "leave_row_out_effect",
]
