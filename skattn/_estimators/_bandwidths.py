"""Bandwidths that users give, and data that none can be selected from."""

from __future__ import annotations

import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skattn._bandwidth import CRITERIA
from skattn._estimators._training import warn_of_copies, warn_user


def check_applicable(adaptive, n_neighbors, anisotropic, bandwidth):
    """Refuse parameters that would have no effect."""
    if n_neighbors is not None and adaptive is None:
        raise ValueError(
            "n_neighbors is the number of neighbors that adaptive bandwidths reach; got "
            f"n_neighbors={n_neighbors} with adaptive=None. Use adaptive='query' or 'key', or "
            "n_neighbors=None."
        )
    if not (anisotropic or (isinstance(bandwidth, str) and bandwidth in CRITERIA)):
        raise ValueError(
            "anisotropic=False seeks one multiple of the features' spreads, for a bandwidth that "
            f"is selected by one of {tuple(CRITERIA)}; got bandwidth={bandwidth!r}. Leave "
            "anisotropic at True."
        )


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
    if training_set.groups is not None and not CRITERIA[name].leaves_out:
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
    if CRITERIA[name].leaves_out:
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


def given_bandwidths(bandwidths, n_features):
    """Bandwidths (n_bandwidths, n_features) of a curve from what a user gave."""
    given = np.asarray(bandwidths)
    if given.ndim not in (1, 2) or not given.size:
        raise ValueError(
            "bandwidths must be an array of shape (n_bandwidths,) or (n_bandwidths, "
            f"n_features={n_features}), not empty; got shape {given.shape}."
        )
    return np.array([given_bandwidth(row, n_features) for row in given])


def given_numbers(numbers, adaptive):
    """Numbers of neighbours of a curve from what a user gave."""
    given = np.asarray(numbers)
    if given.ndim != 1 or not given.size or given.dtype.kind not in "iu" or (given < 1).any():
        raise ValueError(
            f"bandwidths must be an array of positive whole numbers, the numbers of "
            f"neighbors, with adaptive={adaptive!r}; got {numbers!r}."
        )
    return given


def warn_of_unfinished_search(name):
    """Say that bandwidths may not be those of least criterion."""
    warn_user(
        f"The search for the bandwidths of least {name!r} was stopped before it ended; the best "
        "ones are kept. Give bandwidths, or select one multiple of the features' spreads with "
        "anisotropic=False.",
        ConvergenceWarning,
    )
