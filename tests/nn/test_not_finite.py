"""NaN and infinity spoil what sees them, and nothing else; hidden keys have no influence."""

import math

import pytest

torch = pytest.importorskip("torch")

from skattn.nn import (  # noqa: E402
    AdditiveAttention,
    Mask,
    NadarayaWatsonAttention,
    ScaledDotProductAttention,
)

LAYERS = {
    **{
        name: lambda name=name: NadarayaWatsonAttention(1.0, kernel=name)
        for name in ("gaussian", "laplace", "student", "epanechnikov")
    },
    "dot product": ScaledDotProductAttention,
    "additive": lambda: AdditiveAttention(3),
}
CAUSAL = Mask(causal=True)


@pytest.fixture(params=LAYERS)
def layer(request):
    torch.manual_seed(0)
    return LAYERS[request.param]()


@pytest.fixture
def tensors():
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 6, 3, generator=generator), torch.randn(2, 6, 2, generator=generator)


def output(layer, *args, need_weights, **options):
    found = layer(*args, need_weights=need_weights, **options)
    return found[0] if need_weights else found


@pytest.fixture(params=[False, True], ids=["fused", "weights"])
def need_weights(request):
    return request.param


def test_a_key_that_is_nan_spoils_the_queries_that_see_it(layer, tensors, need_weights):
    x, y = tensors
    keys = x.clone()
    keys[0, 3] = math.nan
    expected = output(layer, x, x, y, mask=CAUSAL, need_weights=need_weights)
    found = output(layer, x, keys, y, mask=CAUSAL, need_weights=need_weights)
    spoilt = found.isnan().any(dim=-1)
    assert spoilt.tolist() == [[False] * 3 + [True] * 3, [False] * 6]
    torch.testing.assert_close(found[~spoilt], expected[~spoilt], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_query_that_is_not_finite_spoils_its_own_output(layer, tensors, need_weights, number):
    x, y = tensors
    queries = x.clone()
    queries[1, 2, 0] = number
    found = output(layer, queries, x, y, need_weights=need_weights)
    assert found.isnan().all(dim=-1).nonzero().tolist() == [[1, 2]]


def test_a_value_that_is_nan_spoils_the_queries_that_see_it(layer, tensors, need_weights):
    x, y = tensors
    values, allowed = y.clone(), torch.ones(6, 6, dtype=torch.bool)
    values[0, 0], allowed[2:, 0] = math.nan, False
    found = output(layer, x, x, values, mask=allowed, need_weights=need_weights)
    assert found.isnan().any(dim=-1).tolist() == [[True] * 2 + [False] * 4, [False] * 6]


def test_weights_of_spoilt_queries_are_nan(layer, tensors):
    x, y = tensors
    keys = x.clone()
    keys[0, 3] = math.nan
    weights = layer(x, keys, y, mask=CAUSAL, need_weights=True)[1]
    assert weights[0, 3:].isnan().all()
    assert not weights[0, :3].isnan().any()


@pytest.mark.parametrize("content", [1e4, math.nan, math.inf])
@pytest.mark.parametrize("as_mask", [False, True])
def test_contents_of_keys_that_no_query_may_see_do_not_matter(
    layer, tensors, need_weights, content, as_mask
):
    x, y = tensors
    allowed = torch.ones(6, 6, dtype=torch.bool)
    allowed[:, -1] = False
    mask = Mask(allowed=allowed) if as_mask else allowed
    keys, values = x.clone(), y.clone()
    keys[:, -1], values[:, -1] = content, content
    expected = output(layer, x, x, y, mask=mask, need_weights=need_weights)
    found = output(layer, x, keys, values, mask=mask, need_weights=need_weights)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("content", [1e4, math.nan])
def test_gradients_do_not_see_hidden_keys_either(layer, tensors, need_weights, content):
    x, y = tensors
    keys = x.clone()
    keys[:, -1] = content
    gradients = []
    for hidden in (keys, x):
        queries, seen = x.clone().requires_grad_(), hidden.clone().requires_grad_()
        mask = Mask(keys=torch.tensor([True] * 5 + [False]))
        output(layer, queries, seen, y, mask=mask, need_weights=need_weights).sum().backward()
        gradients.append((queries.grad, seen.grad))
    for found, expected in zip(*gradients, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "student", "epanechnikov"])
def test_a_bandwidth_that_is_nan_spoils_all(kernel, tensors, need_weights):
    x, y = tensors
    layer = NadarayaWatsonAttention(1.0, kernel=kernel)
    layer.log_bandwidth.data.fill_(math.nan)
    assert output(layer, x, x, y, need_weights=need_weights).isnan().all()


@pytest.mark.parametrize("kernel", ["gaussian", "laplace", "student", "epanechnikov"])
@pytest.mark.parametrize("log_bandwidth", [-30.0, -50.0, -85.0, -200.0])
def test_very_narrow_bandwidths_give_the_nearest_key(kernel, log_bandwidth, tensors, need_weights):
    x, y = tensors
    layer = NadarayaWatsonAttention(1.0, kernel=kernel)
    layer.log_bandwidth.data.fill_(log_bandwidth)
    found = output(layer, x + 0.01, x, y, need_weights=need_weights)
    torch.testing.assert_close(found, y)
    found.sum().backward()
    assert layer.log_bandwidth.grad.isfinite()
