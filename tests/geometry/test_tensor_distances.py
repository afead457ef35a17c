"""Squared distances of tensors are those of arrays."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch")

from skattn._geometry.distances import (  # noqa: E402
    squared_distances,
    tensor_differences,
    tensor_expansion,
    tensor_from_nearest,
    tensor_rounding,
)


@pytest.fixture
def queries(rng):
    return rng.standard_normal((2, 5, 3))


@pytest.fixture
def keys(rng):
    return rng.standard_normal((2, 7, 3))


def naive(queries, keys):
    return np.stack([squared_distances(*pair) for pair in zip(queries, keys, strict=True)])


@pytest.mark.parametrize("function", [tensor_differences, tensor_expansion])
def test_distances_are_those_of_arrays(function, queries, keys):
    found = function(torch.tensor(queries), torch.tensor(keys))
    assert_allclose(found, naive(queries, keys), rtol=1e-13)
    single = function(torch.tensor(queries[0]), torch.tensor(keys[0]))
    assert_allclose(single, found[0], rtol=1e-13)


def test_expansions_are_not_negative(keys):
    rows = torch.tensor(keys + 10.0)
    assert (tensor_expansion(rows, rows) >= 0.0).all()


@pytest.mark.parametrize("far", [0.0, 1e6])
def test_errors_are_within_the_bound_and_rounding_of_the_distance(far, queries, keys):
    arguments = torch.tensor(queries + far), torch.tensor(keys)
    seen = torch.ones(2, 5, 7, dtype=torch.bool)
    seen[:, :, 2] = False
    found = tensor_from_nearest(*arguments, seen).numpy()
    assert np.isinf(found[:, :, 2]).all()
    expected = naive(queries + far, keys)
    error = np.abs(found - expected)[:, :, np.arange(7) != 2]
    bound = tensor_rounding(*arguments).numpy()
    assert (error <= bound + 1e-15 * expected.max()).all()


def test_everything_is_seen_without_a_mask(queries, keys):
    found = tensor_from_nearest(torch.tensor(queries), torch.tensor(keys), None)
    assert_allclose(found, naive(queries, keys), rtol=1e-12)
