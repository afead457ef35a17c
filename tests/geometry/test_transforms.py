"""Transforms: coordinates that stay finite, ranks, learned maps and parabolas."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from scipy.stats import rankdata

from skattn._geometry.transforms import FeatureMap, LocalBasis, QuadraticBasis, Ranks, Scaler


def test_coordinates_are_centered_and_scaled():
    rows = np.array([[0.0, 10.0], [4.0, 30.0]])
    scaler = Scaler.around(rows, np.array([2.0, 5.0]))
    coordinates = scaler.coordinates(rows)
    assert_allclose(coordinates[1] - coordinates[0], [2.0, 4.0])


def test_infinite_bandwidth_smooths_a_feature_out():
    rows = np.array([[0.0, 1.0], [1.0, 1e300]])
    scaler = Scaler.around(rows, np.array([1.0, np.inf]))
    assert_array_equal(scaler.features, [0])
    moved = scaler.coordinates(np.array([[0.0, -1e308], [1.0, np.pi]]))
    assert_array_equal(moved, scaler.coordinates(rows))


def test_all_features_smoothed_out_leave_one_that_is_zero():
    rows = np.array([[0.0, 1.0], [1.0, 1e300]])
    scaler = Scaler.around(rows, np.array([np.inf, np.inf]))
    assert_array_equal(scaler.coordinates(rows), [[0.0], [0.0]])


@pytest.mark.parametrize("bandwidth", [1e-300, 1e-10, 1.0])
def test_far_rows_keep_their_direction_and_stay_finite(bandwidth):
    scaler = Scaler(np.arange(2), np.zeros(2), np.full(2, bandwidth))
    coordinates = scaler.coordinates(np.array([[1.7e308, -0.85e308]]))
    assert np.isfinite(coordinates).all()
    assert_allclose(coordinates[0, 0] / coordinates[0, 1], -2.0)
    assert_allclose(np.abs(coordinates).max(), 1e100)


def test_rows_within_reach_are_not_pulled_back():
    scaler = Scaler(np.arange(1), np.zeros(1), np.ones(1))
    assert_array_equal(scaler.coordinates(np.array([[1e99], [1e101]]))[:, 0], [1e99, 1e100])


def test_keys_stay_finite_for_any_bandwidth():
    rows = np.array([[-1.7e308], [0.0], [1.7e308]])
    coordinates = Scaler.around(rows, np.array([1e-300])).coordinates(rows)
    assert_allclose(np.diff(coordinates[:, 0]), 1e90)


def test_an_outlier_does_not_widen_tiny_bandwidths():
    rows = np.array([[0.0], [1.0], [2.0], [3.0], [1e250]])
    coordinates = Scaler.around(rows, np.array([0.5])).coordinates(rows)
    assert_array_equal(np.diff(coordinates[:4, 0]), 2.0)
    assert coordinates[4, 0] == 1e100


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


def map_of(rng, with_ranks, n_coordinates=2):
    X = rng.standard_normal((30, 3)) * [1.0, 100.0, 1.0] + [0.0, 1e6, 0.0]
    X[:, 2] = 4.0
    scaler = Scaler.around(X, np.array([0.5, 50.0, np.inf]))
    ranks = Ranks.of(scaler.coordinates(X), np.ones(30)) if with_ranks else None
    matrix = rng.standard_normal((4 if with_ranks else 2, n_coordinates))
    return X, FeatureMap(scaler, ranks, matrix)


@pytest.mark.parametrize("with_ranks", [False, True])
def test_coordinates_are_scaled_features_and_ranks_times_the_matrix(with_ranks, rng):
    X, feature_map = map_of(rng, with_ranks)
    scaled = (X[:, :2] - feature_map.scaler.center) / [0.5, 50.0]
    if with_ranks:
        ranks = [standardised(rankdata(column), np.ones(30)) for column in X[:, :2].T]
        scaled = np.column_stack([scaled, *ranks])
    assert_allclose(feature_map.scaled(X), scaled, rtol=1e-9, atol=1e-12)
    assert_allclose(feature_map.coordinates(X), scaled @ feature_map.matrix, rtol=1e-9, atol=1e-9)


def test_constant_features_do_not_count(rng):
    X, feature_map = map_of(rng, True)
    other = X + np.array([0.0, 0.0, 77.0])
    assert_array_equal(feature_map.coordinates(other), feature_map.coordinates(X))


@pytest.mark.parametrize("with_ranks", [False, True])
def test_far_rows_have_finite_coordinates_in_their_direction(with_ranks, rng):
    _, feature_map = map_of(rng, with_ranks)
    far = np.array([[1e300, 0.0, 4.0], [-1.7e308, 1.7e308, 4.0], [0.0, -1e200, -1e300]])
    coordinates = feature_map.coordinates(far)
    assert np.isfinite(coordinates).all()
    assert np.isfinite((coordinates**2).sum(axis=1)).all()
    expected = np.sign(far[0, 0]) * feature_map.matrix[0] / np.linalg.norm(feature_map.matrix[0])
    assert_allclose(coordinates[0] / np.linalg.norm(coordinates[0]), expected, atol=1e-6)


@pytest.mark.parametrize("with_ranks", [False, True])
def test_gradients_are_derivatives(with_ranks, rng):
    X, feature_map = map_of(rng, with_ranks)
    rows, slopes = X[:5] * (1.0 + 1e-5), rng.standard_normal((5, 2, 3))  # between the knots
    features, by_feature = feature_map.gradient(slopes, rows)
    assert_array_equal(features, [0, 1])
    for j, step in enumerate(np.diag([1e-7, 1e-5, 0.0])[:2]):
        moved = feature_map.coordinates(rows + step) - feature_map.coordinates(rows - step)
        expected = np.einsum("qc,qcp->qp", moved / (2.0 * step[j]), slopes)
        assert_allclose(by_feature[:, j], expected, rtol=1e-5, atol=1e-6)


# ---------------------------------------------------------------------------------------------
# Parabolas


def quadratic_of(rng, shift=0.0, weights=None):
    X = rng.standard_normal((40, 3)) * [1.0, 100.0, 1.0] + [0.0, 1e4, 0.0] + shift
    X[:, 2] = 4.0
    basis = LocalBasis(Scaler.around(X, np.array([0.5, 50.0, np.inf])), None)
    weights = np.ones(40) if weights is None else weights
    return X, QuadraticBasis.of(basis, np.array([0.6, -0.8]), X, weights)


@pytest.mark.parametrize("weighted", [False, True])
def test_quadratic_coordinates_are_scaled_features_and_a_standardised_square(weighted, rng):
    weights = rng.uniform(0.2, 3.0, 40) if weighted else np.ones(40)
    X, quadratic = quadratic_of(rng, weights=weights)
    share = weights / weights.sum()
    scaled = (X[:, :2] - quadratic.basis.scaler.center) / [0.5, 50.0]
    along = scaled @ [0.6, -0.8]
    along -= share @ along
    square = along**2 - share @ along**2
    expected = np.column_stack([scaled, square / np.sqrt(share @ square**2)])
    assert_allclose(quadratic.coordinates(X), expected, atol=1e-9)
    assert_allclose([quadratic.low, quadratic.high], [along.min(), along.max()], atol=1e-9)


def test_beyond_the_training_rows_the_square_stays_what_it_is(rng):
    X, quadratic = quadratic_of(rng)
    along = quadratic.basis.coordinates(X) @ quadratic.axis
    first, last = X[[along.argmin()]], X[[along.argmax()]]
    out = np.array([0.6 * 0.5, -0.8 * 50.0, 0.0])
    for row, sign in ((first, -1.0), (last, 1.0)):
        at = quadratic.coordinates(row)[0, 2]
        far = quadratic.coordinates(row + sign * out * np.array([[0.1], [3.0], [1e9]]))
        assert_allclose(far[:, 2], at, rtol=1e-9)


def test_quadratic_gradients_are_derivatives_inside_and_beyond_the_range(rng):
    X, quadratic = quadratic_of(rng)
    out = np.array([0.6 * 0.5, -0.8 * 50.0, 0.0])
    rows = np.vstack([X[:6], X[:3] + 20.0 * out, X[:3] - 20.0 * out])
    slopes = rng.standard_normal((12, 3, 2))
    features, by_feature = quadratic.gradient(slopes, rows)
    assert_array_equal(features, [0, 1])
    along = quadratic.basis.coordinates(rows) @ quadratic.axis - quadratic.origin
    within = (along > quadratic.low + 1e-3) & (along < quadratic.high - 1e-3)
    away = (along < quadratic.low - 1e-3) | (along > quadratic.high + 1e-3)
    assert within.sum() >= 4
    assert away.sum() == 6
    smooth = within | away
    for j, step in enumerate(np.diag([1e-5, 1e-3, 0.0])[:2]):
        moved = quadratic.coordinates(rows + step) - quadratic.coordinates(rows - step)
        expected = np.einsum("qc,qcp->qp", moved / (2.0 * step[j]), slopes)
        assert_allclose(by_feature[smooth, j], expected[smooth], rtol=1e-6, atol=1e-7)
    # beyond the range nothing but the lines is left
    flat = quadratic.basis.gradient(slopes[:, :2], rows)[1]
    assert_array_equal(by_feature[away], flat[away])
    assert (by_feature[within] != flat[within]).any()


def test_the_origin_of_the_scaler_does_not_matter_to_the_square(rng):
    X, quadratic = quadratic_of(np.random.default_rng(1))
    scaler = quadratic.basis.scaler
    moved = Scaler(scaler.features, scaler.center + np.array([3.0, -700.0]), scaler.bandwidth)
    other = QuadraticBasis.of(LocalBasis(moved, None), quadratic.axis, X, np.ones(40))
    rows, slopes = X[:9] + rng.standard_normal((9, 3)), rng.standard_normal((9, 3, 2))
    assert_allclose(other.coordinates(rows)[:, 2], quadratic.coordinates(rows)[:, 2], atol=1e-9)
    assert_allclose(other.gradient(slopes, rows)[1], quadratic.gradient(slopes, rows)[1], rtol=1e-7)
    assert_allclose([other.low, other.high], [quadratic.low, quadratic.high], atol=1e-9)


def test_two_values_along_an_axis_have_no_square():
    X = np.array([[0.0], [1.0], [0.0], [1.0]])
    basis = LocalBasis(Scaler.around(X, np.ones(1)), None)
    assert QuadraticBasis.of(basis, np.ones(1), X, np.ones(4)) is None
    assert QuadraticBasis.of(basis, np.ones(1), X, np.array([1.0, 1.0, 1.0, 7.0])) is not None
