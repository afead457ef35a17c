"""Gradients are exact, once and where promised twice."""

import pytest

torch = pytest.importorskip("torch")

from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

from skattn.kernels import KERNELS  # noqa: E402
from skattn.nn import (  # noqa: E402
    Mask,
    MultiHeadKernelAttention,
    NadarayaWatsonAttention,
    ScaledDotProductAttention,
)

SLOPED = [name for name in KERNELS if KERNELS[name].has_slope]
MASKS = {
    "none": None,
    "window": Mask(window=2, causal=True),
    "others": Mask(exclude_self=True, lengths=torch.tensor(4)),
    "keys": Mask(lengths=torch.tensor(3)),
}


def function(layer, mask, need_weights):
    """The layer as a function of its inputs and parameters."""
    names = [name for name, _ in layer.named_parameters()]

    def call(queries, keys, values, *parameters):
        return torch.func.functional_call(
            layer,
            dict(zip(names, parameters, strict=True)),
            (queries, keys, values, mask, need_weights),
        )

    return call


def inputs(layer, draw):
    tensors = [draw(5, 3), draw(6, 3), draw(6, 2), *(p.detach() for p in layer.parameters())]
    return [tensor.clone().requires_grad_() for tensor in tensors]


@pytest.mark.parametrize("need_weights", [False, True])
@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_gradients_are_those_of_differences(layer, mask, need_weights, draw):
    call = function(layer, mask, need_weights)
    assert torch.autograd.gradcheck(call, inputs(layer, draw), fast_mode=True)


@pytest.mark.parametrize("kernel", SLOPED)
def test_gradients_of_every_kernel(kernel, draw):
    layer = NadarayaWatsonAttention([0.9, 1.3, 2.0], kernel=kernel, dtype=torch.float64)
    call = function(layer, Mask(exclude_self=True), False)
    assert torch.autograd.gradcheck(call, inputs(layer, draw))


def test_queries_on_keys_have_gradients(draw):
    for kernel in SLOPED:
        layer = NadarayaWatsonAttention(2.0, kernel=kernel, dtype=torch.float64)
        x = draw(5, 2).requires_grad_()
        layer(x, x, x).sum().backward()
        assert torch.isfinite(x.grad).all(), kernel


@pytest.mark.parametrize("kernel", ["epanechnikov", "triangular"])
def test_gradients_outside_every_support_are_zero(kernel):
    keys = torch.tensor([[0.0], [1.0]], requires_grad=True)
    layer = NadarayaWatsonAttention(0.1, kernel=kernel)
    layer(torch.tensor([[5.0]]), keys, torch.tensor([[1.0], [2.0]])).sum().backward()
    assert keys.grad.tolist() == [[0.0], [0.0]]
    assert layer.log_bandwidth.grad.item() == 0.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: NadarayaWatsonAttention([0.9, 1.3, 2.0], dtype=torch.float64),
        lambda: ScaledDotProductAttention(),
        lambda: MultiHeadKernelAttention(3, 2, n_coordinates=1, dtype=torch.float64),
    ],
)
@pytest.mark.parametrize("mask", [None, MASKS["window"], MASKS["others"]])
@pytest.mark.parametrize("need_weights", [False, True])
def test_second_derivatives_of_softmax(make, mask, need_weights, draw):
    layer = make()
    call = function(layer, mask, need_weights)
    with sdpa_kernel(SDPBackend.MATH):
        assert torch.autograd.gradgradcheck(call, inputs(layer, draw), fast_mode=True)


@pytest.mark.parametrize("need_weights", [False, True])
def test_second_derivatives_of_other_kernels_are_refused(need_weights, draw):
    layer = NadarayaWatsonAttention(kernel="student", dtype=torch.float64)
    x = draw(4, 2).requires_grad_()
    output = layer(x, x, x, need_weights=need_weights)
    output = output[0] if need_weights else output
    with pytest.raises(RuntimeError, match="kernel='student' has no second derivatives"):
        torch.autograd.grad(output.sum(), x, create_graph=True)


def test_inputs_are_left_alone(layer, draw):
    tensors = [draw(5, 3), draw(6, 3), draw(6, 2)]
    before = [tensor.clone() for tensor in tensors]
    for mask in MASKS.values():
        layer(*tensors, mask=mask).sum().backward() if list(layer.parameters()) else layer(*tensors)
    for tensor, copy in zip(tensors, before, strict=True):
        assert torch.equal(tensor, copy)


def test_a_bandwidth_is_learned(draw):
    x = torch.linspace(-3.0, 3.0, 60)[:, None]
    y = torch.sin(3.0 * x)
    layer = NadarayaWatsonAttention(3.0)
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.2)
    losses = []
    for _ in range(40):
        optimizer.zero_grad()
        loss = (layer(x, x, y, mask=Mask(exclude_self=True)) - y).square().mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.01 * losses[0]
    assert 0.0 < layer.bandwidth.item() < 0.2
