"""Linear smoothers: predictions S y, and what is read off the rows of S."""

from skattn._smoother.bandwidth_slopes import BandwidthSlopes, bandwidth_slopes
from skattn._smoother.component import Component, Mixture, mean_of, neighbor_key_scale
from skattn._smoother.local_fit import Fit, LocalFit, LocalMean
from skattn._smoother.local_linear import LocalLinear
from skattn._smoother.local_regression import LocalRegression
from skattn._smoother.mixture import MixedRegression, Regression, remove
from skattn._smoother.removal import LeftOut
from skattn._smoother.statistics import (
    component_weights,
    effective_neighbors,
    gradient,
    predict,
    prediction_variance,
    smoother_matrix,
)

__all__ = [
    "BandwidthSlopes",
    "Component",
    "Fit",
    "LeftOut",
    "LocalFit",
    "LocalLinear",
    "LocalMean",
    "LocalRegression",
    "MixedRegression",
    "Mixture",
    "Regression",
    "bandwidth_slopes",
    "component_weights",
    "effective_neighbors",
    "gradient",
    "mean_of",
    "neighbor_key_scale",
    "predict",
    "prediction_variance",
    "remove",
    "smoother_matrix",
]
