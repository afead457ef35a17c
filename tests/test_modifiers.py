"""What depends on a row: gates, scales and encodings, where rows are near, far and between."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skattn._geometry import Frame
from skattn.modifiers import (
    ConstantGates,
    Encoder,
    LinearGates,
    NetworkScale,
    RegionScale,
    RowGates,
    RowScales,
    Standard,
)

FAR = np.array([[1e100, 0.0], [-1e100, 1e100], [0.0, -1e100], [3e50, 1e-3], [0.0, 0.0]])


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


# ---------------------------------------------------------------------------------------------
# Standardised features


def test_standard_features_are_those_of_the_frame_around_the_middle(rng):
    X = rng.standard_normal((30, 3)) * [1.0, 1e4, 1.0] + [0.0, 1e6, 0.0]
    frame = Frame.around(X, np.array([0.5, 2e4, np.inf]))
    middle = np.median(frame.coordinates(X), axis=0)
    found = Standard(frame, middle).of(X)
    expected = (X[:, :2] - np.median(X[:, :2], axis=0)) / [0.5, 2e4]
    assert_allclose(found, expected, atol=1e-9)


def test_functions_of_rows_are_those_of_standard_features(rng):
    X = rng.standard_normal((12, 2)) * [1.0, 1e3] + [5.0, 0.0]
    standard = Standard(Frame.around(X, np.array([2.0, 500.0])), np.array([0.3, -0.1]))
    gates = LinearGates(rng.standard_normal((2, 3)), rng.standard_normal(3))
    scale = NetworkScale(
        rng.standard_normal((2, 4)), rng.standard_normal(4), rng.standard_normal(4)
    )
    x = (X - standard.frame.center) / [2.0, 500.0] - [0.3, -0.1]
    assert_allclose(RowGates(standard, gates).shares(X), gates.shares(x), rtol=1e-12)
    factors = RowScales(standard, scale).factors(X)
    assert_allclose(factors, np.exp(scale.log_scales(x)), rtol=1e-12)


# ---------------------------------------------------------------------------------------------
# Gates


def test_linear_gates_are_a_softmax_and_sum_to_one(rng):
    x, matrix, offset = rng.standard_normal((20, 2)), rng.standard_normal((2, 3)), np.arange(3.0)
    shares = LinearGates(matrix, offset).shares(x)
    assert_allclose(shares, softmax(x @ matrix + offset), rtol=1e-14)
    assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-14)
    moved = LinearGates(matrix, offset + 700.0).shares(x)  # what all logits share does not count
    assert_allclose(moved, shares, rtol=1e-12)


def test_far_away_one_head_has_all_and_all_is_finite():
    gates = LinearGates(np.array([[1.0, -1.0], [0.5, 0.2]]), np.zeros(2))
    shares = gates.shares(FAR)
    assert np.isfinite(shares).all()
    assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-14)
    assert_array_equal(shares[:4], [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    assert_array_equal(shares[4], [0.5, 0.5])


def test_constant_gates_are_the_same_everywhere():
    shares = ConstantGates(np.array([0.3, 0.7])).shares(FAR)
    assert_array_equal(shares, np.tile([0.3, 0.7], (5, 1)))


# ---------------------------------------------------------------------------------------------
# Scales


def test_scales_of_a_network_are_its_formula_and_bounded_however_far(rng):
    weights, offset, outer = rng.standard_normal((2, 8)), rng.random(8), rng.standard_normal(8)
    network, x = NetworkScale(weights, offset, outer), rng.standard_normal((10, 2))
    expected = [sum(outer * np.tanh(row @ weights + offset)) for row in x]
    assert_allclose(network.log_scales(x), expected, rtol=1e-12, atol=1e-12)
    far = network.log_scales(FAR)
    assert np.isfinite(far).all()
    assert (np.abs(far) <= np.abs(outer).sum() * (1.0 + 1e-14)).all()
    # and stay where they are, farther out along a ray
    assert_allclose(network.log_scales(1e3 * FAR[:4]), far[:4], atol=1e-12)
    assert_allclose(far[0], outer @ np.sign(weights[0]), atol=1e-12)


def regions(rng):
    return RegionScale(rng.standard_normal((4, 2)), 0.7, np.array([0.5, -1.0, 0.0, 2.0]))


def test_memberships_are_gaussian_shares_of_the_distances_to_centres(rng):
    scale, x = regions(rng), rng.standard_normal((25, 2))
    squared = ((x[:, None] - scale.centers) ** 2).sum(axis=2)
    weights = np.exp(-0.5 * squared / 0.7**2)
    found = scale.memberships(x)
    assert_allclose(found, weights / weights.sum(axis=1, keepdims=True), rtol=1e-9)
    assert_allclose(found.sum(axis=1), 1.0, rtol=1e-14)
    expected = found @ scale.log_factors
    assert_allclose(scale.log_scales(x), expected, rtol=1e-12)


def test_far_rows_belong_to_the_region_that_is_farthest_along_their_ray(rng):
    scale = regions(rng)
    found = scale.memberships(FAR)
    assert np.isfinite(found).all()
    assert_allclose(found.sum(axis=1), 1.0, rtol=1e-14)
    for row, memberships in zip(FAR[:4], found, strict=False):
        assert_array_equal(memberships, np.arange(4) == np.argmax(scale.centers @ row))
    assert np.isfinite(scale.log_scales(FAR)).all()
    low, high = scale.log_factors.min(), scale.log_factors.max()
    assert ((scale.log_scales(FAR) >= low) & (scale.log_scales(FAR) <= high)).all()


# ---------------------------------------------------------------------------------------------
# Encoders


def encoder(rng, n_features=2, sizes=(6, 5), n_frequencies=3):
    frequencies = 0.3 * rng.standard_normal((n_features, n_frequencies))
    n_inner, layers = n_features * (2 * n_frequencies + 1), []
    for size in sizes:
        layers.append((rng.standard_normal((n_inner, size)), 0.3 * rng.standard_normal(size)))
        n_inner = size
    return Encoder(frequencies, tuple(layers), rng.standard_normal((n_inner, 4)))


def encoded(one, x):
    """Coordinates of one row, by definition."""
    angles = [2.0 * np.pi * f * value for value, fs in zip(x, one.frequencies, strict=True)
              for f in fs]  # fmt: skip
    hidden = np.array([*np.sin(angles), *np.cos(angles), *x])
    for weights, offset in one.layers:
        hidden = np.maximum(0.0, weights.T @ hidden + offset)
    return one.outer.T @ hidden


@pytest.mark.parametrize("sizes", [(), (6,), (6, 5)])
def test_coordinates_of_an_encoder_are_its_formula(sizes, rng):
    one, x = encoder(rng, sizes=sizes), rng.standard_normal((9, 2))
    expected = [encoded(one, row) for row in x]
    assert_allclose(one.coordinates(x), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("n_features", [1, 3])
@pytest.mark.parametrize("sizes", [(), (6,), (6, 5)])
def test_jacobians_of_an_encoder_are_its_derivatives(sizes, n_features, rng):
    one, x = encoder(rng, n_features, sizes), rng.standard_normal((9, n_features))
    jacobian = one.jacobian(x)
    assert jacobian.shape == (9, n_features, 4)
    for j, step in enumerate(1e-6 * np.eye(n_features)):
        expected = (one.coordinates(x + step) - one.coordinates(x - step)) / 2e-6
        assert_allclose(jacobian[:, j], expected, rtol=1e-5, atol=1e-6)
    assert np.abs(jacobian).max() > 0.5


def test_far_rows_are_encoded_as_finite_numbers_whose_squares_are_too(rng):
    one = encoder(rng)
    coordinates = one.coordinates(FAR)
    assert np.isfinite(coordinates).all()
    assert np.isfinite((coordinates**2).sum(axis=1)).all()
    assert np.isfinite(one.jacobian(FAR)).all()
