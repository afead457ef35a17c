"""Newton steps within bounds, and what Gauss-Newton matrices leave out of Hessians."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["bounded_steps", "corrected", "free_variables", "secant_update"]

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


def secant_update(rests: Array, changes: Array, explained: Array, steps: Array) -> Array:
    """Parts of Hessians that Gauss-Newton matrices leave out, after steps that changed gradients.

    The former rest is sized first: far from a minimum it belongs to other places. Then it is
    changed as little as explains what the matrix leaves unexplained of the change.

    Parameters
    ----------
    rests : ndarray of shape (n_points, d, d)
        Symmetric.
    changes, explained, steps : ndarray of shape (n_points, d)
        Changes of the gradients, the part of them that the matrices explain, and the steps.

    Returns
    -------
    ndarray of shape (n_points, d, d)
        As it was where the gradient did not grow along the step.
    """
    along = (changes * steps).sum(axis=1)[:, None, None]
    grows = along > 1e-12
    along = np.where(grows, along, 1.0)
    unexplained = changes - explained
    lengths = np.abs((steps * (rests @ steps[:, :, None])[:, :, 0]).sum(axis=1))
    wanted = np.abs((steps * unexplained).sum(axis=1))
    shares = np.minimum(1.0, wanted / np.where(lengths > 0.0, lengths, np.inf))
    sized = rests * shares[:, None, None]
    missed = unexplained - (sized @ steps[:, :, None])[:, :, 0]
    cross = missed[:, :, None] * changes[:, None, :]
    twice = (missed * steps).sum(axis=1)[:, None, None] / along**2
    update = (cross + cross.transpose(0, 2, 1)) / along
    update -= twice * (changes[:, :, None] * changes[:, None, :])
    return np.where(grows, sized + update, rests)


def corrected(matrices: Array, rests: Array, is_free: Mask) -> Array:
    """Matrices plus what they leave out, where that is positive definite in the free variables."""
    both = is_free[:, :, None] & is_free[:, None, :]
    full = matrices + rests
    inner = np.where(both, full, np.eye(full.shape[1]))
    positive = np.linalg.eigvalsh(inner)[:, 0] > 0.0
    return np.where(positive[:, None, None], full, matrices)


def free_variables(points: Array, gradients: Array, bounds: tuple[Array, Array]) -> Mask:
    """Variables that are not at a bound that their gradient leads out of."""
    leaves = (points <= bounds[0]) & (gradients >= 0.0)
    leaves |= (points >= bounds[1]) & (gradients <= 0.0)
    return np.logical_not(leaves)


def bounded_steps(
    points: Array, gradients: Array, matrices: Array, bounds: tuple[Array, Array]
) -> Array:
    """Newton steps within bounds, of one point or several.

    A variable at a bound that its gradient leads out of is held. A variable whose step would cross
    a bound stops there, and the others step accordingly.

    Parameters
    ----------
    points, gradients : ndarray of shape (n_points, d)
        Points within the bounds.
    matrices : ndarray of shape (n_points, d, d)
        Positive definite Hessians.
    bounds : tuple of two ndarray of shape (d,)
        Lower and upper bounds.

    Returns
    -------
    ndarray of shape (n_points, d)
    """
    is_free, steps = free_variables(points, gradients, bounds), np.zeros_like(points)
    while is_free.any():
        target, inner = -gradients, matrices
        if not is_free.all():
            target = target - (matrices @ steps[:, :, None])[:, :, 0]
            target = np.where(is_free, target, 0.0)
            both = is_free[:, :, None] & is_free[:, None, :]
            inner = np.where(both, matrices, np.eye(points.shape[1]))
        steps = steps + np.linalg.solve(inner, target[:, :, None])[:, :, 0]
        ahead = points + steps
        beyond = is_free & ((ahead < bounds[0]) | (ahead > bounds[1]))
        if not beyond.any():
            break
        within = np.minimum(np.maximum(ahead, bounds[0]), bounds[1]) - points
        again = is_free & beyond.any(axis=1, keepdims=True) & ~beyond
        steps = np.where(again, 0.0, within)
        is_free = again
    return steps
