"""Gates, scales and encodings of rows in NumPy: where rows are near, far and between."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skattn._geometry.transforms import FeatureMap, Scaler
from skattn.variants._encoder import EncodedMap, Network
from skattn.variants._fixed_share import ConstantGate
from skattn.variants._mixture import LinearGate
from skattn.variants._model import StandardFeatures
from skattn.variants._query_scale import NetworkScale
from skattn.variants._region_scale import MeanScale, Regions

FAR = np.array([[1e100, 0.0], [-1e100, 1e100], [0.0, -1e100], [3e50, 1e-3], [0.0, 0.0]])


def identity(n_features=2):
    """Features that are standard already."""
    scaler = Scaler(np.arange(n_features), np.zeros(n_features), np.ones(n_features))
    return StandardFeatures(scaler, np.zeros(n_features))


def log_scales(scale, x):
    return -np.log(scale.scales(x, x, None))


def softmax(logits):
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


# ---------------------------------------------------------------------------------------------
# Standardised features


def test_standard_features_are_scaled_around_the_middle(rng):
    X = rng.standard_normal((30, 3)) * [1.0, 1e4, 1.0] + [0.0, 1e6, 0.0]
    scaler = Scaler.around(X, np.array([0.5, 2e4, np.inf]))
    middle = np.median(scaler.coordinates(X), axis=0)
    found = StandardFeatures(scaler, middle).coordinates(X)
    expected = (X[:, :2] - np.median(X[:, :2], axis=0)) / [0.5, 2e4]
    assert_allclose(found, expected, atol=1e-9)


def test_functions_of_rows_are_those_of_standard_features(rng):
    X = rng.standard_normal((12, 2)) * [1.0, 1e3] + [5.0, 0.0]
    standard = StandardFeatures(Scaler.around(X, np.array([2.0, 500.0])), np.array([0.3, -0.1]))
    x = (X - standard.scaler.center) / [2.0, 500.0] - [0.3, -0.1]
    gate = rng.standard_normal((2, 3)), rng.standard_normal(3)
    network = rng.standard_normal((2, 4)), rng.standard_normal(4), rng.standard_normal(4)
    expected = LinearGate(identity(), *gate).shares(x)
    assert_allclose(LinearGate(standard, *gate).shares(X), expected, rtol=1e-12)
    expected = NetworkScale(identity(), network).scales(x, x, None)
    assert_allclose(NetworkScale(standard, network).scales(X, x, None), expected, rtol=1e-12)


# ---------------------------------------------------------------------------------------------
# Gates


def test_linear_gates_are_a_softmax_and_sum_to_one(rng):
    x, matrix, offset = rng.standard_normal((20, 2)), rng.standard_normal((2, 3)), np.arange(3.0)
    shares = LinearGate(identity(), matrix, offset).shares(x)
    assert_allclose(shares, softmax(x @ matrix + offset), rtol=1e-14)
    assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-14)
    moved = LinearGate(identity(), matrix, offset + 700.0).shares(
        x
    )  # what all logits share does not count
    assert_allclose(moved, shares, rtol=1e-12)


def test_far_away_one_component_has_all_and_all_is_finite():
    gates = LinearGate(identity(), np.array([[1.0, -1.0], [0.5, 0.2]]), np.zeros(2))
    shares = gates.shares(FAR)
    assert np.isfinite(shares).all()
    assert_allclose(shares.sum(axis=1), 1.0, rtol=1e-14)
    assert_array_equal(shares[:4], [[1.0, 0.0], [0.0, 1.0], [0.0, 1.0], [1.0, 0.0]])
    assert_array_equal(shares[4], [0.5, 0.5])


def test_constant_gates_are_the_same_everywhere():
    shares = ConstantGate(np.array([0.3, 0.7])).shares(FAR)
    assert_array_equal(shares, np.tile([0.3, 0.7], (5, 1)))


# ---------------------------------------------------------------------------------------------
# Scales


def test_scales_of_a_network_are_its_formula_and_bounded_however_far(rng):
    weights, offset, outer = rng.standard_normal((2, 8)), rng.random(8), rng.standard_normal(8)
    network = NetworkScale(identity(), (weights, offset, outer))
    x = rng.standard_normal((10, 2))
    expected = [sum(outer * np.tanh(row @ weights + offset)) for row in x]
    assert_allclose(log_scales(network, x), expected, rtol=1e-12, atol=1e-12)
    far = log_scales(network, FAR)
    assert np.isfinite(far).all()
    assert (np.abs(far) <= np.abs(outer).sum() * (1.0 + 1e-14)).all()
    # and stay where they are, farther out along a ray
    assert_allclose(log_scales(network, 1e3 * FAR[:4]), far[:4], atol=1e-12)
    assert_allclose(far[0], outer @ np.sign(weights[0]), atol=1e-12)


def regions(rng):
    factors = np.array([0.5, -1.0, 0.0, 2.0])
    return MeanScale(identity(), Regions(rng.standard_normal((4, 2)), 0.7), factors)


def test_memberships_are_gaussian_shares_of_the_distances_to_centres(rng):
    scale, x = regions(rng), rng.standard_normal((25, 2))
    squared = ((x[:, None] - scale.regions.centers) ** 2).sum(axis=2)
    weights = np.exp(-0.5 * squared / 0.7**2)
    found = scale.regions.memberships(x)
    assert_allclose(found, weights / weights.sum(axis=1, keepdims=True), rtol=1e-9)
    assert_allclose(found.sum(axis=1), 1.0, rtol=1e-14)
    expected = found @ scale.log_factors
    assert_allclose(log_scales(scale, x), expected, rtol=1e-12)


def test_far_rows_belong_to_the_region_that_is_farthest_along_their_ray(rng):
    scale = regions(rng)
    found = scale.regions.memberships(FAR)
    assert np.isfinite(found).all()
    assert_allclose(found.sum(axis=1), 1.0, rtol=1e-14)
    for row, memberships in zip(FAR[:4], found, strict=False):
        assert_array_equal(memberships, np.arange(4) == np.argmax(scale.regions.centers @ row))
    assert np.isfinite(log_scales(scale, FAR)).all()
    low, high = scale.log_factors.min(), scale.log_factors.max()
    assert ((log_scales(scale, FAR) >= low) & (log_scales(scale, FAR) <= high)).all()


# ---------------------------------------------------------------------------------------------
# Encoders


def encoder(rng, n_features=2, sizes=(6, 5), n_frequencies=3):
    frequencies = 0.3 * rng.standard_normal((n_features, n_frequencies))
    n_inner, layers = n_features * (2 * n_frequencies + 1), []
    for size in sizes:
        layers += [rng.standard_normal((n_inner, size)), 0.3 * rng.standard_normal(size)]
        n_inner = size
    return Network((frequencies, *layers, rng.standard_normal((n_inner, 4))))


def encoded(one, x):
    """Coordinates of one row, by definition."""
    frequencies, *layers, outer = one.parts
    angles = [2.0 * np.pi * f * value for value, fs in zip(x, frequencies, strict=True)
              for f in fs]  # fmt: skip
    hidden = np.array([*np.sin(angles), *np.cos(angles), *x])
    for weights, offset in zip(layers[::2], layers[1::2], strict=True):
        hidden = np.maximum(0.0, weights.T @ hidden + offset)
    return outer.T @ hidden


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


def encoded_of(rng):
    X = rng.standard_normal((30, 3)) * [1.0, 100.0, 1.0] + [0.0, 1e6, 0.0]
    scaler = Scaler.around(X, np.array([0.5, 50.0, np.inf]))
    metric = FeatureMap(scaler, None, rng.standard_normal((2, 2)))
    standard = StandardFeatures(scaler, np.array([0.1, -0.2]))
    return X, EncodedMap(metric, standard, encoder(rng, 2, (5,)))


def test_encodings_stand_beside_the_coordinates_of_the_metric(rng):
    X, encoded = encoded_of(rng)
    found = encoded.coordinates(X)
    assert_array_equal(found[:, :2], encoded.metric.coordinates(X))
    x = encoded.metric.scaler.coordinates(X) - [0.1, -0.2]
    assert_allclose(found[:, 2:], encoded.network.coordinates(x), rtol=1e-12)


def test_gradients_of_encodings_are_derivatives(rng):
    X, encoded = encoded_of(rng)
    rows, slopes = np.vstack([X, X, X]), rng.standard_normal((90, 6, 2))  # more than a block
    features, by_feature = encoded.gradient(slopes, rows)
    assert_array_equal(features, [0, 1])
    for j, step in enumerate(np.diag([1e-7, 1e-5, 0.0])[:2]):
        moved = encoded.coordinates(rows + step) - encoded.coordinates(rows - step)
        expected = np.einsum("qc,qcp->qp", moved / (2.0 * step[j]), slopes)
        assert_allclose(by_feature[:, j], expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
