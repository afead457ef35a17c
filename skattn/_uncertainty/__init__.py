"""Uncertainty read off attention weights: quantiles, and intervals from leave-one-out residuals."""

from skattn._uncertainty.intervals import interval_rank, jackknife_plus, residual_scales
from skattn._uncertainty.quantiles import weighted_quantiles
from skattn._uncertainty.variance import leave_one_out_residuals, local_means, value_variances

__all__ = [
    "interval_rank",
    "jackknife_plus",
    "leave_one_out_residuals",
    "local_means",
    "residual_scales",
    "value_variances",
    "weighted_quantiles",
]
