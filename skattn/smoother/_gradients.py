"""How predictions change with the query."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from skattn.attention import Request, Resources, Rows, inverse_radii, read_rows
from skattn.smoother._lines import fit_lines

Array = NDArray[np.float64]

# Sums of terms that cancel are zero up to this share of them.
_ROUNDING = 1e-14


def smooth_gradient(request: Request, resources: Resources) -> tuple[Array, NDArray[np.bool_]]:
    """Derivatives of the predictions in the coordinates of the queries.

    Parameters
    ----------
    request : Request
        With a line, the slopes of the local lines are returned, in its coordinates. Otherwise the
        derivatives of the mean, in the queries' coordinates, radii held fixed; the kernel has a
        slope.
    resources : Resources

    Returns
    -------
    gradient : ndarray of shape (n_queries, n_coordinates, n_outputs)
        Zero outside every support.
    outside : ndarray of shape (n_queries,) of bool
        Queries without a key in the support.
    """
    width = (request.line.keys if request.line is not None else request.keys).shape[1]
    gradient = np.empty((len(request.queries), width, request.values.shape[1]))
    outside = np.zeros(len(gradient), dtype=bool)

    def receive(block: Rows) -> None:
        outside[block.queries] = block.outside
        if request.line is not None:
            gradient[block.queries] = fit_lines(block, request.line, request.values).slope
        else:
            gradient[block.queries] = _mean_gradient(block, request.take(block.queries))

    read_rows(request, resources, receive)
    return gradient, outside


def _mean_gradient(block: Rows, request: Request) -> Array:
    """With g = 2 (d log K / d u**2) / r**2: sum_i w_i g_i (q - k_i) (v_i - f)."""
    distances = cdist(request.queries, request.keys)
    inverse = inverse_radii(request, distances)
    with np.errstate(over="ignore"):
        change = 2.0 * request.kernel.log_slope((distances * inverse) ** 2) * inverse**2
    weights = block.weights
    center, mean = weights @ request.keys, weights @ request.values
    change = np.where(weights > 0.0, change, 0.0) * weights
    change[block.outside] = 0.0
    gradient = np.empty((len(weights), request.keys.shape[1], mean.shape[1]))
    for output, values in enumerate(request.values.T):
        moved = change * (values - mean[:, output, None])
        # keys relative to their mean: far away, what the differences q - k_i share cancels
        total, size = moved.sum(axis=1), np.abs(moved).sum(axis=1)
        total = np.where(np.abs(total) > _ROUNDING * size, total, 0.0)[:, None]
        away = moved @ request.keys - total * center
        gradient[:, :, output] = (request.queries - center) * total - away
    return gradient
