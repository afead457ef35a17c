"""Where training starts: the best metric that treats all features alike."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import pdist

from skattn._geometry import evenly_spaced
from skattn._learning._metric import ScalarMetric
from skattn._learning._objective import LeaveOneOut

Array = NDArray[np.float64]

# Half-octaves around the scale at which a median distance counts as one bandwidth or so.
_SHIFTS = np.arange(-3.0, 2.01, 0.5)
_RIDGES = (1e-3, 1e-2, 1e-1, 1.0)
# Rows whose distances give the scale.
_ROWS = 300


def common_start(errors: LeaveOneOut) -> tuple[float, float]:
    """The log-scale common to all features, and the ridge, of least leave-one-out error.

    Parameters
    ----------
    errors : LeaveOneOut
        At few queries: all combinations of a grid are tried.

    Returns
    -------
    log_scale : float
    ridge : float
        1 at degree 0, where there is none.
    """
    features = errors.problem.features
    sample = features[evenly_spaced(len(features), _ROWS)]
    distances = pdist(sample, "sqeuclidean")
    positive = distances[distances > 0.0]
    middle = np.log(28.0 / np.median(positive)) / 2.0 if positive.size else 0.0
    metric = ScalarMetric(features.shape[1])
    ridges = _RIDGES if errors.problem.line is not None else (1.0,)
    tried = []
    for shift in _SHIFTS:
        at = np.array([middle + shift])
        for ridge, left in zip(ridges, errors.errors_at(metric, at, ridges), strict=True):
            tried.append((float(errors.share @ (left**2).mean(axis=1)), middle + shift, ridge))
    _, log_scale, ridge = min(tried)
    return log_scale, ridge
