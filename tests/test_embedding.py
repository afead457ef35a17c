"""Encodings beside the coordinates of a learned map."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from skattn._geometry.transforms import FeatureMap, Ranks, Scaler
from skattn.variants._encoder import EncodedMap, Network
from skattn.variants._model import StandardFeatures


def map_of(rng, with_ranks, n_coordinates=2):
    X = rng.standard_normal((30, 3)) * [1.0, 100.0, 1.0] + [0.0, 1e6, 0.0]
    X[:, 2] = 4.0
    scaler = Scaler.around(X, np.array([0.5, 50.0, np.inf]))
    ranks = Ranks.of(scaler.coordinates(X), np.ones(30)) if with_ranks else None
    matrix = rng.standard_normal((4 if with_ranks else 2, n_coordinates))
    return X, FeatureMap(scaler, ranks, matrix)


def encoded_of(rng, with_ranks):
    X, feature_map = map_of(rng, with_ranks)
    layers = ((rng.standard_normal((2 * 7, 5)), 0.2 * rng.standard_normal(5)),)
    network = Network(0.3 * rng.standard_normal((2, 3)), layers, rng.standard_normal((5, 3)))
    return X, EncodedMap(
        feature_map, StandardFeatures(feature_map.scaler, np.array([0.1, -0.2])), network
    )


@pytest.mark.parametrize("with_ranks", [False, True])
def test_encodings_stand_beside_the_coordinates_of_the_metric(with_ranks, rng):
    X, encoded = encoded_of(rng, with_ranks)
    found = encoded.coordinates(X)
    assert_array_equal(found[:, :2], encoded.metric.coordinates(X))
    x = encoded.metric.scaler.coordinates(X) - [0.1, -0.2]
    assert_allclose(found[:, 2:], encoded.network.coordinates(x), rtol=1e-12)


@pytest.mark.parametrize("with_ranks", [False, True])
def test_gradients_of_encodings_are_derivatives(with_ranks, rng):
    X, encoded = encoded_of(rng, with_ranks)
    rows, slopes = X[:7] * (1.0 + 1e-5), rng.standard_normal((7, 5, 2))
    features, by_feature = encoded.gradient(slopes, rows)
    assert_array_equal(features, [0, 1])
    for j, step in enumerate(np.diag([1e-7, 1e-5, 0.0])[:2]):
        moved = encoded.coordinates(rows + step) - encoded.coordinates(rows - step)
        expected = np.einsum("qc,qcp->qp", moved / (2.0 * step[j]), slopes)
        assert_allclose(by_feature[:, j], expected, rtol=1e-5, atol=2e-6 * np.abs(expected).max())
