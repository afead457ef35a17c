"""From what a user hands to `fit` to a training set."""

from __future__ import annotations

import sys
import warnings
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from skattn._bandwidth import share_of_copies
from skattn._geometry.training_set import TrainingSet
from skattn._sklearn import check_groups, check_rows, check_weights

# The share of copied rows from which leave-one-out is likely to see them.
_MANY_COPIES = 0.2
# Modules between a user's line and a warning: scikit-learn's wrap `fit`.
_OURS = ("skattn.", "sklearn.", "contextlib")


@dataclass(frozen=True)
class Training:
    """Validated training data.

    Attributes
    ----------
    training_set : TrainingSet
        The rows, in float64.
    single_output : bool
        Whether targets were one-dimensional.
    dtype : numpy.dtype
        Type of results for queries of the same type.
    """

    training_set: TrainingSet
    single_output: bool
    dtype: np.dtype


def read_training_data(estimator, X, y, sample_weight, groups):
    """Validate training data, and bring the rows into canonical order."""
    X, y = check_rows(estimator, X, y, reset=True)
    weights, groups = check_weights(sample_weight, X), check_groups(groups, X)
    targets = y.reshape(len(y), -1).astype(np.float64)
    training_set = TrainingSet.canonical(X.astype(np.float64), targets, weights, groups)
    single = np.dtype(np.float32)
    dtype = single if X.dtype == y.dtype == single else np.dtype(np.float64)
    return Training(training_set, y.ndim == 1, dtype)


@contextmanager
def all_or_nothing(estimator):
    """Give an estimator its former state back if fitting fails or is interrupted."""
    before = dict(vars(estimator))
    try:
        yield
    except BaseException:
        vars(estimator).clear()
        vars(estimator).update(before)
        raise


def warn_of_copies(training_set):
    """Warn of rows that leave-one-out predicts from their twins, unless groups tell of them."""
    copies = 0.0 if training_set.groups is not None else share_of_copies(training_set)
    if copies > _MANY_COPIES:
        warn_user(
            f"{copies:.0%} of the training rows, by weight, are copies of others, features and "
            "targets alike. Leave-one-out predicts a copy from its twins and chooses too small a "
            "bandwidth; pass fit(..., groups=labels) to leave copies out together."
        )


def warn_user(message, category=UserWarning):
    """Warn in the name of the caller's line: the first one outside this package."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_globals["__name__"].startswith(_OURS):
        frame, level = frame.f_back, level + 1
    warnings.warn(message, category, stacklevel=level)
