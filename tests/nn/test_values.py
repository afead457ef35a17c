"""Outputs and weights are those of the formula and of the NumPy engine."""

import numpy as np
import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch")

from skattn import NadarayaWatsonRegressor  # noqa: E402
from skattn.kernels import KERNELS  # noqa: E402
from skattn.nn import (  # noqa: E402
    AdditiveAttention,
    Mask,
    MultiHeadKernelAttention,
    NadarayaWatsonAttention,
    ScaledDotProductAttention,
)

SLOPED = [name for name in KERNELS if KERNELS[name].has_slope]
BANDWIDTH = [0.6, 0.4, 1.5]


def numbers(tensor):
    return tensor.detach().numpy()


@pytest.mark.parametrize("kernel", SLOPED)
def test_the_numpy_engine_agrees(kernel, draw):
    queries, keys, values = draw(20, 3), draw(30, 3), draw(30, 2)
    layer = NadarayaWatsonAttention(BANDWIDTH, kernel=kernel, dtype=torch.float64)
    model = NadarayaWatsonRegressor(BANDWIDTH, kernel=kernel).fit(numbers(keys), numbers(values))
    output, weights = layer(queries, keys, values, need_weights=True)
    assert_allclose(numbers(output), model.predict(numbers(queries)), atol=1e-10)
    assert_allclose(numbers(weights), model.attention_weights(numbers(queries)), atol=1e-10)
    assert_allclose(numbers(layer(queries, keys, values)), numbers(output), atol=1e-12)
    left_out = layer(keys, keys, values, mask=Mask(exclude_self=True))
    assert_allclose(numbers(left_out), model.predict(None), atol=1e-10)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.float64, 1e-12)])
@pytest.mark.parametrize("n_values", [1, 20])
def test_fused_attention_is_the_softmax_of_negative_squared_distances(
    dtype, tolerance, n_values, draw
):
    queries, keys, values = draw(50, 3), draw(60, 3), draw(60, n_values).clamp(-1.0, 1.0)
    distances = torch.cdist(queries, keys).square()
    expected = torch.softmax(-0.5 * distances / 0.8**2, dim=-1) @ values
    layer = NadarayaWatsonAttention(0.8, dtype=torch.float64).to(dtype)
    output = layer(queries.to(dtype), keys.to(dtype), values.to(dtype))
    assert output.dtype == dtype
    assert_allclose(numbers(output), expected, atol=tolerance)


def test_the_books_weights():
    x = torch.tensor([[0.0], [1.0], [2.0]], dtype=torch.float64)
    weights = NadarayaWatsonAttention(dtype=torch.float64)(x[:1], x, need_weights=True)[1]
    expected = [[0.5740969930, 0.3482074279, 0.0776955791]]
    assert_allclose(numbers(weights), expected, atol=1e-10)


@pytest.mark.parametrize("kernel", SLOPED)
def test_data_far_from_the_origin_lose_nothing(kernel, draw):
    # multiples of 1/4 are exact in single precision at 1e6
    queries, keys = ((4 * draw(9, 2)).round() / 4 for _ in range(2))
    values = draw(9, 1, dtype=torch.float32)
    layer = NadarayaWatsonAttention(1.0, kernel=kernel)
    near = layer(queries.float(), keys.float(), values)
    far = layer((queries + 1e6).float(), (keys + 1e6).float(), values)
    assert_allclose(numbers(far), numbers(near), atol=2e-6)


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kernel", ["gaussian", "epanechnikov", "cosine", "triangular"])
def test_far_queries_get_the_nearest_key(kernel, dtype, need_weights):
    keys = torch.tensor([[0.0], [1.0], [2.0]], dtype=dtype)
    values = torch.tensor([[3.0], [5.0], [7.0]], dtype=dtype)
    queries = torch.tensor([[-1e5], [1e5]], dtype=dtype)
    layer = NadarayaWatsonAttention(0.5, kernel=kernel, dtype=dtype)
    output = layer(queries, keys, values, need_weights=need_weights)
    output = output[0] if need_weights else output
    assert output.flatten().tolist() == [3.0, 7.0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_far_queries_get_the_limits_of_heavy_tails(dtype):
    keys = torch.tensor([[0.0], [1.0], [2.0]], dtype=dtype)
    far = torch.tensor([[1e4 if dtype == torch.float32 else 1e7]], dtype=dtype)
    student = NadarayaWatsonAttention(kernel="student", dtype=dtype)
    assert_allclose(numbers(student(far**2, keys)), [[1.0]], atol=1e-6)  # the mean
    laplace = NadarayaWatsonAttention(kernel="laplace", dtype=dtype)
    weights = numbers(laplace(far, keys, need_weights=True)[1])
    edge = np.exp([-2.0, -1.0, 0.0])
    assert_allclose(weights[0], edge / edge.sum(), rtol=2e-3)


@pytest.mark.parametrize("kernel", ["epanechnikov", "triangular"])
def test_outside_the_support_ties_share(kernel):
    keys = torch.tensor([[-3.0], [3.0], [7.0]])
    layer = NadarayaWatsonAttention(kernel=kernel)
    weights = layer(torch.zeros(1, 1), keys, need_weights=True)[1]
    assert weights.tolist() == [[0.5, 0.5, 0.0]]


def test_infinite_bandwidths_leave_a_feature_out(draw):
    queries, keys, values = draw(5, 2), draw(6, 2), draw(6, 1)
    both = NadarayaWatsonAttention([0.5, torch.inf], dtype=torch.float64)
    first = NadarayaWatsonAttention(0.5, dtype=torch.float64)
    expected = first(queries[:, :1], keys[:, :1], values)
    assert_allclose(numbers(both(queries, keys, values)), numbers(expected), atol=1e-14)


def test_dot_products_are_transformers_attention(draw):
    queries, keys, values = draw(2, 5, 3), draw(2, 7, 3), draw(2, 7, 4)
    expected = torch.nn.functional.scaled_dot_product_attention(queries, keys, values)
    output, weights = ScaledDotProductAttention()(queries, keys, values, need_weights=True)
    assert_allclose(output, expected, atol=1e-13)
    assert_allclose(weights.sum(-1), 1.0)
    scaled = ScaledDotProductAttention(scale=-2.0)(queries, keys, need_weights=True)[1]
    assert_allclose(scaled, torch.softmax(-2.0 * queries @ keys.mT, dim=-1), atol=1e-13)


def test_additive_scores_are_those_of_the_formula(draw):
    layer = AdditiveAttention(3, 5, n_key_features=2, dtype=torch.float64)
    queries, keys, values = draw(4, 3), draw(6, 2), draw(6, 1)
    projections = layer.query_projection, layer.key_projection, layer.score
    query, key, score = (projection.weight for projection in projections)
    scores = torch.empty(4, 6, dtype=torch.float64)
    for i in range(4):
        for j in range(6):
            hidden = query @ queries[i] + layer.query_projection.bias + key @ keys[j]
            scores[i, j] = score[0] @ torch.tanh(hidden)
    output, weights = layer(queries, keys, values, need_weights=True)
    assert_allclose(numbers(weights), numbers(torch.softmax(scores, dim=-1)), atol=1e-14)
    assert_allclose(numbers(output), numbers(weights @ values), atol=1e-14)


@pytest.mark.parametrize("gated_by_query", [False, True])
def test_heads_are_a_convex_mixture_of_kernel_attentions(gated_by_query, draw):
    layer = MultiHeadKernelAttention(
        3, 3, n_coordinates=2, gated_by_query=gated_by_query, dtype=torch.float64
    )
    gate = layer.gate.weight if gated_by_query else layer.gate
    gate.data += draw(*gate.shape)
    queries, keys, values = draw(5, 3), draw(6, 3), draw(6, 1)
    expected = 0.0
    for head in range(3):
        projection = layer.projection[head] * 2**0.5 / layer.projection[head].norm()
        single = NadarayaWatsonAttention(layer.bandwidth[head], dtype=torch.float64)
        attended = single(queries @ projection, keys @ projection, values)
        expected = expected + layer.gates(queries)[:, head, None] * attended
    assert_allclose(numbers(layer(queries, keys, values)), numbers(expected), atol=1e-12)
    assert_allclose(numbers(layer.gates(queries).sum(-1)), 1.0)
    layer.projection.data *= 7.0  # the size of a projection is no second bandwidth
    assert_allclose(numbers(layer(queries, keys, values)), numbers(expected), atol=1e-12)


def test_weights_are_shares_and_make_the_output(layer, draw):
    queries, keys, values = draw(4, 3), draw(6, 3), draw(6, 2)
    output, weights = layer(queries, keys, values, need_weights=True)
    assert weights.shape == (4, 6)
    assert (weights >= 0.0).all()
    assert_allclose(numbers(weights.sum(-1)), 1.0, rtol=1e-13)
    assert_allclose(numbers(weights @ values), numbers(output), atol=1e-13)
    assert_allclose(numbers(layer(queries, keys, values)), numbers(output), atol=1e-12)
    # affine in the values, indifferent to the order of keys
    order = torch.tensor([3, 1, 5, 0, 2, 4])
    changed = layer(queries, keys[order], 2.0 * values[order] - 1.0)
    assert_allclose(numbers(changed), numbers(2.0 * output - 1.0), atol=1e-12)


def test_leading_dimensions_broadcast(layer, draw):
    queries, keys, values = draw(4, 1, 5, 3), draw(3, 6, 3), draw(6, 2)
    output, weights = layer(queries, keys, values, need_weights=True)
    fused = layer(queries, keys, values)
    assert output.shape == fused.shape == (4, 3, 5, 2)
    assert weights.shape[:-2] in ((4, 3), (1, 3))
    single = layer(queries[1, 0], keys[2], values)
    assert_allclose(numbers(output[1, 2]), numbers(single), atol=1e-12)
    assert_allclose(numbers(fused[1, 2]), numbers(single), atol=1e-12)
    deep = layer(draw(2, 2, 1, 5, 3), keys, values, mask=Mask(window=1))
    assert deep.shape == (2, 2, 3, 5, 2)


@pytest.mark.parametrize("mask", [None, Mask(window=1)])
def test_no_keys_give_zeros_and_no_queries_nothing(layer, mask, draw):
    nothing = layer(draw(2, 3), draw(0, 3), draw(0, 1), mask=mask)
    assert_allclose(numbers(nothing), np.zeros((2, 1)))
    assert layer(draw(0, 3), draw(2, 3), draw(2, 1), mask=mask).shape == (0, 1)


def test_blocks_of_any_size_give_the_same(layer, draw, monkeypatch):
    from skattn.nn import _blocks

    queries, keys, values = draw(2, 9, 3), draw(2, 9, 3), draw(2, 9, 2)
    mask = Mask(exclude_self=True, lengths=torch.tensor([4, 9]))
    expected = layer(queries, keys, values, mask=mask)
    for entries in (1, 30, 200):
        monkeypatch.setattr(_blocks, "BLOCK_ENTRIES", {"cpu": entries, "cuda": entries})
        output = layer(queries, keys, values, mask=mask)
        assert_allclose(numbers(output), numbers(expected), atol=1e-13)
