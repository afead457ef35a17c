"""Variances of the targets, from leave-one-out residuals."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from skattn._attention import Resources
from skattn._smoother import Component, LeftOut, Mixture, Regression, predict

__all__ = ["leave_one_out_residuals", "local_means", "value_variances"]

Array = NDArray[np.float64]


def leave_one_out_residuals(smoother: Component | Mixture, resources: Resources) -> LeftOut:
    """Leave-one-out residuals of the keys, in the units of their values."""
    training_set = smoother.training_set
    regression = smoother.leave_one_out().take(training_set.keys)
    prediction, _, _ = predict(regression, resources)
    assert regression.excluded is not None
    residuals, multiplicity = smoother.values - prediction, training_set.multiplicity
    return LeftOut(residuals, training_set.counts(), multiplicity, regression.excluded)


def value_variances(smoother: Component | Mixture, resources: Resources, *, local: bool) -> Array:
    """Variances of the values of the keys around the mean, (n_keys, n_outputs).

    Parameters
    ----------
    smoother : Component or Mixture
        The training rows.
    local : bool
        Whether variances are weighted means of squared residuals around each key; otherwise they
        are the same everywhere.
    """
    left_out = leave_one_out_residuals(smoother, resources)
    squares = left_out.residuals**2
    if not local:
        variance = left_out.counts @ squares / left_out.counts.sum()
        return np.broadcast_to(variance, squares.shape)
    regression = smoother.in_sample().take(smoother.training_set.keys)
    return local_means(regression, resources, squares)


def local_means(regression: Regression, resources: Resources, values: Array) -> Array:
    """Attention-weighted means of some values of the keys, (n_queries, n_columns)."""
    return predict(regression.means_of(values), resources)[0]
