"""Learned maps: ranks of training rows, and coordinates that stay finite."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import rankdata

pytest.importorskip("torch")

from skattn.embedding import Embedding, Ranks
from skattn.geometry import Frame


def standardised(ranks, weights):
    share = weights / weights.sum()
    centered = ranks - share @ ranks
    return centered / np.sqrt(share @ centered**2)


def test_ranks_are_standardised_mean_ranks(rng):
    columns = np.column_stack([rng.standard_normal(30), rng.integers(0, 5, 30)])
    ranks = Ranks.of(columns, np.ones(30)).coordinates(columns)
    for column, found in zip(columns.T, ranks.T, strict=True):
        assert_allclose(found, standardised(rankdata(column), np.ones(30)), atol=1e-12)
    assert_allclose(ranks.mean(axis=0), 0.0, atol=1e-12)
    assert_allclose(ranks.std(axis=0), 1.0)


def test_weights_of_ranks_are_repetitions(rng):
    columns, weights = rng.standard_normal((20, 2)), rng.integers(1, 4, 20)
    rows = np.repeat(np.arange(20), weights)
    weighted = Ranks.of(columns, weights.astype(float))
    repeated = Ranks.of(columns[rows], np.ones(len(rows)))
    queries = rng.standard_normal((9, 2))
    assert_allclose(weighted.coordinates(queries), repeated.coordinates(queries), atol=1e-12)


def test_weights_of_ranks_may_be_scaled(rng):
    columns, weights = rng.standard_normal((20, 1)), rng.random(20)
    one, two = (Ranks.of(columns, factor * weights) for factor in (1.0, 1e-5))
    assert_allclose(one.coordinates(columns), two.coordinates(columns), atol=1e-12)


def test_ranks_follow_monotone_transforms_at_the_training_rows(rng):
    columns = rng.standard_normal((25, 2))
    transformed = np.exp(3.0 * columns)
    assert_allclose(
        Ranks.of(transformed, np.ones(25)).coordinates(transformed),
        Ranks.of(columns, np.ones(25)).coordinates(columns),
        atol=1e-12,
    )


def test_ranks_are_interpolated_between_values_and_stay_beyond_them():
    ranks = Ranks.of(np.array([[0.0], [1.0], [3.0]]), np.ones(3))
    low, middle, high = ranks.coordinates(np.array([[0.0], [1.0], [3.0]]))[:, 0]
    assert_allclose([low, middle, high], [-np.sqrt(1.5), 0.0, np.sqrt(1.5)])
    at = ranks.coordinates(np.array([[0.5], [2.0], [-9.0], [1e300], [-1e300]]))[:, 0]
    assert_allclose(at, [0.5 * low, 0.5 * high, low, high, low])


def test_two_values_are_ranks_of_opposite_sign():
    ranks = Ranks.of(np.array([[0.0], [0.0], [1.0], [0.0]]), np.ones(4))
    found = ranks.coordinates(np.array([[0.0], [1.0]]))[:, 0]
    assert_allclose(found, [-1.0 / np.sqrt(3.0), np.sqrt(3.0)])


def embedding_of(rng, with_ranks, n_coordinates=2):
    X = rng.standard_normal((30, 3)) * [1.0, 100.0, 1.0] + [0.0, 1e6, 0.0]
    X[:, 2] = 4.0
    frame = Frame.around(X, np.array([0.5, 50.0, np.inf]))
    ranks = Ranks.of(frame.coordinates(X), np.ones(30)) if with_ranks else None
    matrix = rng.standard_normal((4 if with_ranks else 2, n_coordinates))
    return X, Embedding(frame, ranks, matrix)


@pytest.mark.parametrize("with_ranks", [False, True])
def test_coordinates_are_scaled_features_and_ranks_times_the_matrix(with_ranks, rng):
    X, embedding = embedding_of(rng, with_ranks)
    scaled = (X[:, :2] - embedding.frame.center) / [0.5, 50.0]
    if with_ranks:
        ranks = [standardised(rankdata(column), np.ones(30)) for column in X[:, :2].T]
        scaled = np.column_stack([scaled, *ranks])
    assert_allclose(embedding.scaled(X), scaled, rtol=1e-9, atol=1e-12)
    assert_allclose(embedding.coordinates(X), scaled @ embedding.matrix, rtol=1e-9, atol=1e-9)


def test_constant_features_do_not_count(rng):
    X, embedding = embedding_of(rng, True)
    other = X + np.array([0.0, 0.0, 77.0])
    assert_array_equal(embedding.coordinates(other), embedding.coordinates(X))


@pytest.mark.parametrize("with_ranks", [False, True])
def test_far_rows_have_finite_coordinates_in_their_direction(with_ranks, rng):
    _, embedding = embedding_of(rng, with_ranks)
    far = np.array([[1e300, 0.0, 4.0], [-1.7e308, 1.7e308, 4.0], [0.0, -1e200, -1e300]])
    coordinates = embedding.coordinates(far)
    assert np.isfinite(coordinates).all()
    assert np.isfinite((coordinates**2).sum(axis=1)).all()
    expected = np.sign(far[0, 0]) * embedding.matrix[0] / np.linalg.norm(embedding.matrix[0])
    assert_allclose(coordinates[0] / np.linalg.norm(coordinates[0]), expected, atol=1e-6)


@pytest.mark.parametrize("with_ranks", [False, True])
def test_gradients_are_derivatives(with_ranks, rng):
    X, embedding = embedding_of(rng, with_ranks)
    rows, slopes = X[:5] * (1.0 + 1e-5), rng.standard_normal((5, 2, 3))  # between the knots
    features, by_feature = embedding.gradient(slopes, rows)
    assert_array_equal(features, [0, 1])
    for j, step in enumerate(np.diag([1e-7, 1e-5, 0.0])[:2]):
        moved = embedding.coordinates(rows + step) - embedding.coordinates(rows - step)
        expected = np.einsum("qc,qcp->qp", moved / (2.0 * step[j]), slopes)
        assert_allclose(by_feature[:, j], expected, rtol=1e-5, atol=1e-6)
