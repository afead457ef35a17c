"""Bandwidths that users give, and data that none can be selected from."""

from __future__ import annotations

import numpy as np

from skattn._estimators._training import warn_of_copies


def check_neighbors(n_neighbors, training_set):
    """Refuse numbers of neighbours that no row has."""
    most = max(int(training_set.counts().sum() + 1e-9) - 1, 0)
    if n_neighbors is not None and n_neighbors > most:
        raise ValueError(
            f"n_neighbors must be at most the number of other training rows ({most}); got "
            f"{n_neighbors} for n_samples={most + 1}."
        )


def check_selectable(training_set, name, parameter):
    """Refuse what no bandwidth can be judged by; warn of copies that leave-one-out sees."""
    if training_set.n_keys == 1 and not training_set.multiplicity[0] > 1.0:
        raise ValueError(
            f"{parameter} judges bandwidths by rows left out and needs two rows at least; "
            f"got n_samples={training_set.n_keys}. Give a number instead."
        )
    if training_set.groups is not None and name != "loo":
        raise ValueError(
            f"{parameter} leaves nothing out and cannot use groups. Use bandwidth='loo', or "
            "fit without groups."
        )
    if (
        training_set.groups is not None
        and np.unique(training_set.groups[training_set.keys]).size == 1
    ):
        raise ValueError(
            f"groups must have two labels at least for {parameter}, which leaves one group out "
            "at a time; all rows of positive weight have the same. Give a number instead."
        )
    if name == "loo":
        warn_of_copies(training_set)


def given_bandwidth(bandwidth, n_features):
    """A bandwidth for each feature from the numbers a user gave."""
    rule = "must be one positive number, or one for each feature (inf smooths a feature out)"
    try:
        given = np.asarray(bandwidth)
    except ValueError as error:  # lists of unequal lengths
        raise ValueError(f"bandwidth {rule}; got {bandwidth!r}.") from error
    if given.dtype.kind not in "iuf":
        raise ValueError(f"bandwidth {rule}; got {bandwidth!r} of type {given.dtype}.")
    numbers = given.astype(np.float64)
    if numbers.ndim > 1 or (numbers.ndim == 1 and numbers.size != n_features):
        raise ValueError(
            f"bandwidth {rule}; got an array of shape {numbers.shape} for n_features={n_features}."
        )
    if not (numbers > 0.0).all():
        raise ValueError(f"bandwidth {rule}; got {bandwidth!r}.")
    return np.full(n_features, 1.0) * numbers
