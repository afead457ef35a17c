"""A new kernel is one class with two functions; everything else works at once."""

import math

import numpy as np
import pytest
from numpy.testing import assert_allclose

from skattn import NadarayaWatsonRegressor
from skattn.kernels import KERNELS, CompactKernel, Kernel, get_kernel, namespace


class Matern(Kernel):
    """(1 + v) exp(-v) with v = sqrt(3) u."""

    name = "matern"

    def log_profile(self, squared):
        xp = namespace(squared)
        v = xp.sqrt(3.0 * squared)
        return xp.log1p(v) - v

    def log_slope(self, squared):
        return -1.5 / (1.0 + namespace(squared).sqrt(3.0 * squared))


class Quartic(CompactKernel):
    """1 - u**4 inside the unit ball."""

    name = "quartic"

    def inside(self, squared):
        return 1.0 - squared**2

    def slope_inside(self, squared):
        return -2.0 * squared


FORMULAS = {
    "matern": lambda u: (1.0 + math.sqrt(3.0) * u) * np.exp(-math.sqrt(3.0) * u),
    "quartic": lambda u: np.maximum(1.0 - u**4, 0.0),
}


@pytest.fixture(params=[Matern, Quartic])
def kernel(request, monkeypatch):
    """A kernel of a class, known by its name."""
    made = request.param()
    monkeypatch.setitem(KERNELS, made.name, made)
    return made


def naive_weights(kernel, queries, keys, bandwidth):
    distances = np.sqrt((((queries[:, None] - keys) / bandwidth) ** 2).sum(axis=2))
    weights = FORMULAS[kernel.name](distances)
    return weights / weights.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_all_members_follow_from_two_functions(kernel, dtype):
    squared = np.array([0.0, 0.3, 0.7, 1.3], dtype=dtype)
    expected = FORMULAS[kernel.name](np.sqrt(squared.astype(float)))
    tolerance = 20 * np.finfo(dtype).eps
    profile = kernel.profile(kernel.rate * squared)
    assert profile.dtype == dtype
    assert_allclose(profile, expected, rtol=tolerance)
    with np.errstate(divide="ignore"):
        assert_allclose(kernel.log_profile(squared), np.log(expected), rtol=20 * tolerance)
    step = 1e-6
    above, below = (FORMULAS[kernel.name](np.sqrt(0.3 + sign * step)) for sign in (1.0, -1.0))
    slope = kernel.slope(kernel.rate * squared)
    assert slope.dtype == dtype
    assert_allclose(slope[1], (above - below) / (2 * step), rtol=1e-6)
    assert_allclose(kernel.log_slope(squared[:3]), slope[:3] / profile[:3], rtol=tolerance)
    assert kernel.smooth_at_zero
    assert get_kernel(kernel.name) is kernel
    assert np.isfinite(kernel.profile(np.array([-1e-12, 1e30], dtype=dtype))).all()


def test_a_kink_at_zero_is_noticed():
    class Cusp(Kernel):
        name = "cusp"

        def log_profile(self, squared):
            return -namespace(squared).sqrt(squared)

    assert not Cusp().smooth_at_zero
    assert_allclose(Cusp().canonical_bandwidth, KERNELS["laplace"].canonical_bandwidth, rtol=1e-6)


@pytest.mark.parametrize("name", KERNELS)
def test_the_canonical_bandwidth_is_derived(name):
    derived = Kernel.__dict__["canonical_bandwidth"].fget(KERNELS[name])
    assert_allclose(derived, KERNELS[name].canonical_bandwidth, rtol=1e-6)


@pytest.mark.parametrize("nearest", [0.0, 1.0, 1e6, 1e40])
def test_decay_is_exact_however_far(nearest):
    # log K(u) is near log(1 + v) - v, whose difference is known without cancellation
    excess = np.array([1e-3, 0.5, 3.0, 2.0 * math.sqrt(nearest)])
    v, more = (np.sqrt(3.0 * part) for part in (nearest, nearest + excess))
    farther = 3.0 * excess / np.where(more + v > 0.0, more + v, 1.0)
    expected = np.log1p(farther / (1.0 + v)) - farther
    assert_allclose(Matern().log_decay(np.full(4, nearest), excess), expected, rtol=1e-9)


@pytest.mark.parametrize("nearest", [0.0, 1.0, 1e6, 1e40])
def test_reach_covers_the_margin(nearest):
    nearest = np.array([nearest])
    reach = Matern().reach(nearest, 30.0)
    assert Matern().log_decay(nearest, reach) <= -30.0
    assert reach <= 1.0 or Matern().log_decay(nearest, 0.49 * reach) > -30.0


def test_predictions_are_those_of_the_formula(kernel, rng):
    X, y = rng.standard_normal((60, 2)), rng.standard_normal(60)
    queries = 0.5 * rng.standard_normal((40, 2))
    model = NadarayaWatsonRegressor([1.5, 1.2], kernel=kernel.name).fit(X, y)
    weights = naive_weights(kernel, queries, X, model.bandwidth_)
    assert_allclose(model.attention_weights(queries), weights, atol=1e-12)
    assert_allclose(model.predict(queries), weights @ y, atol=1e-12)


def test_bandwidths_are_selected(kernel, wave):
    model = NadarayaWatsonRegressor(kernel=kernel.name).fit(*wave)
    assert model.score(*wave) > 0.5


@pytest.mark.parametrize("nearest", [1e4, 1e10])
def test_far_queries_get_the_nearest_key(kernel, nearest):
    model = NadarayaWatsonRegressor(1e-3, kernel=kernel.name).fit([[0.0], [1.0]], [3.0, 5.0])
    assert_allclose(model.predict([[-nearest], [nearest]]), [3.0, 5.0])


def test_tensor_weights_are_those_of_arrays(kernel, rng):
    torch = pytest.importorskip("torch")
    squared = rng.uniform(0.0, 1.5, (5, 20))
    squared[:, 0] = np.inf
    squared[0] = np.inf
    squared[1, 1:] = 1.0  # no weight for a compact kernel
    weights, slopes = (part.numpy() for part in kernel.tensor_weights(torch.tensor(squared)))
    assert_allclose(weights[0], 0.0)
    assert_allclose(slopes[:, 0], 0.0)
    expected = [getattr(kernel, name)(squared[2:, 1:].copy()) for name in ("profile", "slope")]
    factor = (weights[2:, 1:].sum(axis=1) / expected[0].sum(axis=1))[:, None]
    assert_allclose(weights[2:, 1:], factor * expected[0], rtol=1e-12)
    assert_allclose(slopes[2:, 1:], factor * expected[1], rtol=1e-12)
    single = kernel.tensor_weights(torch.tensor(squared, dtype=torch.float32))
    assert all(part.dtype == torch.float32 for part in single)


def test_layers_know_it(kernel, rng):
    torch = pytest.importorskip("torch")
    from skattn.nn import Mask, NadarayaWatsonAttention

    queries, keys, values = (torch.tensor(rng.standard_normal((n, 2))) for n in (7, 9, 9))
    layer = NadarayaWatsonAttention([2.5, 2.0], kernel=kernel.name, dtype=torch.float64)
    output, weights = layer(queries, keys, values, need_weights=True)
    expected = naive_weights(kernel, queries.numpy(), keys.numpy(), np.array([2.5, 2.0]))
    assert_allclose(weights.detach(), expected, atol=1e-12)
    assert_allclose(layer(queries, keys, values).detach(), output.detach(), atol=1e-12)
    inputs = [part.requires_grad_() for part in (queries, keys, values)]
    assert torch.autograd.gradcheck(lambda *parts: layer(*parts, need_weights=True), inputs)
    mask = Mask(exclude_self=True)
    assert torch.autograd.gradcheck(lambda *parts: layer(*parts, mask=mask), inputs)


@pytest.mark.parametrize("degree", [0, 1])
def test_attention_is_learned(kernel, wave, degree):
    pytest.importorskip("torch")
    from skattn import ParametricAttentionRegressor

    model = ParametricAttentionRegressor("scalar", kernel=kernel.name, degree=degree).fit(*wave)
    assert model.score(*wave) > 0.5
