"""Layers are modules: saved, copied, moved, compiled, composed, and clear about mistakes."""

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
from numpy.testing import assert_allclose

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

from skattn.nn import (  # noqa: E402
    AdditiveAttention,
    AttentionRegressionNetwork,
    Mask,
    MultiHeadKernelAttention,
    NadarayaWatsonAttention,
    ScaledDotProductAttention,
)


def test_state_goes_round(layer, draw):
    other = copy.deepcopy(layer)
    for tensor in other.state_dict().values():
        tensor.add_(0.5)
    other.load_state_dict(layer.state_dict())
    x = draw(5, 3)
    assert torch.equal(other(x), layer(x))


@pytest.mark.parametrize("clone", [copy.deepcopy, lambda it: pickle.loads(pickle.dumps(it))])
def test_copies_are_the_same(layer, clone, draw):
    x = draw(5, 3)
    assert torch.equal(clone(layer)(x), layer(x))


def test_bandwidths_are_parameters_or_buffers():
    assert list(NadarayaWatsonAttention().state_dict()) == ["log_bandwidth"]
    assert len(list(NadarayaWatsonAttention().parameters())) == 1
    fixed = NadarayaWatsonAttention(0.3, learnable=False)
    assert list(fixed.parameters()) == []
    assert list(fixed.state_dict()) == ["log_bandwidth"]
    assert_allclose(fixed.bandwidth, 0.3)
    assert NadarayaWatsonAttention(0.3, n_features=4).log_bandwidth.shape == (4,)
    assert NadarayaWatsonAttention(dtype=torch.float64).log_bandwidth.dtype == torch.float64


def test_in_a_sequence_rows_attend_to_each_other(layer, draw):
    network = nn.Sequential(nn.Linear(2, 3, dtype=torch.float64), layer, nn.ReLU())
    x = draw(4, 5, 2)
    encoded = network[0](x)
    assert torch.equal(network(x), torch.relu(layer(encoded, encoded, encoded)))


# PyTorch's own compiler instantiates autograd functions and looks at gradients, and warns of both.
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor:UserWarning")
@pytest.mark.filterwarnings("ignore:.*should not be instantiated:DeprecationWarning")
@pytest.mark.parametrize("mask", [None, Mask(exclude_self=True, window=3)])
def test_compiled_layers_give_the_same(layer, mask, draw):
    x = draw(5, 3).requires_grad_()
    compiled = torch.compile(layer, backend="aot_eager")
    outputs = [each(x, x, x, mask=mask) for each in (layer, compiled)]
    gradients = [torch.autograd.grad(output.square().sum(), x)[0] for output in outputs]
    assert_allclose(outputs[1].detach(), outputs[0].detach(), atol=1e-13)
    assert_allclose(gradients[1], gradients[0], atol=1e-12)
    torch.compiler.reset()


@pytest.mark.parametrize("mask", [None, Mask(exclude_self=True)])
@pytest.mark.parametrize("need_weights", [False, True])
def test_half_precision_is_summed_in_single(layer, mask, need_weights, draw):
    low = [tensor.bfloat16() for tensor in (draw(40, 3), draw(50, 3), draw(50, 2))]
    expected = layer(*(tensor.double() for tensor in low), mask=mask)
    single = copy.deepcopy(layer).float()
    output = single(*low, mask=mask, need_weights=need_weights)
    output = output[0] if need_weights else output
    assert output.dtype == torch.bfloat16
    # one rounding of the output; dot products leave more to PyTorch
    tolerance = 1e-2 if isinstance(layer, ScaledDotProductAttention) else 4e-3
    assert_allclose(output.detach().double(), expected.detach(), rtol=tolerance, atol=tolerance)


def test_half_precision_far_from_the_origin_is_kept(draw):
    # differences of 1/2 at 100 are exact in bfloat16, their squares would not be
    low = (2 * draw(20, 1)).round() / 2
    values = draw(20, 1)
    layer = NadarayaWatsonAttention(0.5)
    far, near = (
        layer((low + at).bfloat16(), (low + at).bfloat16(), values.float()) for at in (64, 0)
    )
    assert_allclose(far.detach(), near.detach(), atol=1e-5)


def test_autocast_leaves_distances_alone(layer, draw):
    layer = layer.float()
    inputs = [tensor.float() for tensor in (draw(9, 3), draw(9, 3), draw(9, 2))]
    expected = layer(*inputs, mask=Mask(exclude_self=True))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        output = layer(*inputs, mask=Mask(exclude_self=True))
        mixed = layer(inputs[0].bfloat16(), *inputs[1:])
    assert torch.equal(output, expected)
    assert mixed.dtype == torch.float32


def test_dropout_is_for_training_only(draw):
    x, ones = draw(200, 3), torch.ones(200, 1, dtype=torch.float64)
    for layer in (
        NadarayaWatsonAttention(2.0, dropout=0.5, dtype=torch.float64),
        NadarayaWatsonAttention(2.0, kernel="student", dropout=0.5, dtype=torch.float64),
        ScaledDotProductAttention(dropout=0.5),
        AdditiveAttention(3, dropout=0.5, dtype=torch.float64),
        MultiHeadKernelAttention(3, 2, dropout=0.5, dtype=torch.float64),
    ):
        for mask in (None, Mask(exclude_self=True)):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)
                dropped = layer.train()(x, x, ones, mask=mask)
                weights = layer(x, x, ones, mask=mask, need_weights=True)[1]
            assert dropped.std() > 1e-3
            assert abs(dropped.mean().item() - 1.0) < 0.1
            assert_allclose(weights.detach().sum(-1), 1.0)
            assert_allclose(layer.eval()(x, x, ones, mask=mask).detach(), 1.0)


def test_layers_tell_what_they_are():
    assert repr(NadarayaWatsonAttention(0.5)) == (
        "NadarayaWatsonAttention(bandwidth=0.5, kernel='gaussian', learnable=True)"
    )
    many = NadarayaWatsonAttention(2.0, n_features=9, learnable=False, dropout=0.1)
    assert "bandwidth=[2, 2, 2, 2, ...]" in repr(many)
    assert "learnable=False, dropout=0.1" in repr(many)
    assert repr(ScaledDotProductAttention()) == (
        "ScaledDotProductAttention(scale=1/sqrt(n_features))"
    )
    assert "n_heads=3" in repr(MultiHeadKernelAttention(2, 3))
    assert "out_features=16" in repr(AdditiveAttention(2))


def test_weights_are_drawn_after_the_usual_detach(layer, draw):
    plt = pytest.importorskip("matplotlib.figure")
    weights = layer(draw(4, 3), draw(5, 3), need_weights=True)[1].detach().numpy()
    image = plt.Figure().subplots().imshow(weights)
    assert np.allclose(image.get_array(), weights)


def test_the_network_is_its_parts(draw):
    encoder, head = nn.Linear(2, 3, dtype=torch.float64), nn.Linear(1, 4, dtype=torch.float64)
    attention = NadarayaWatsonAttention(0.5, dtype=torch.float64)
    network = AttentionRegressionNetwork(encoder, attention, head)
    queries, keys, values = draw(5, 2), draw(6, 2), draw(6, 1)
    output, weights = network(queries, keys, values, need_weights=True)
    attended, expected = attention(encoder(queries), encoder(keys), values, need_weights=True)
    assert torch.equal(output, head(attended))
    assert torch.equal(weights, expected)
    assert_allclose(network(queries, keys, values).detach(), output.detach(), atol=1e-12)
    plain = AttentionRegressionNetwork()
    assert_allclose(
        plain(queries, keys, values).detach(),
        NadarayaWatsonAttention()(queries, keys, values).detach(),
    )


ERRORS = [
    (lambda: NadarayaWatsonAttention(0.0), "bandwidth must be a positive number"),
    (lambda: NadarayaWatsonAttention(-1.0), "got -1.0"),
    (lambda: NadarayaWatsonAttention(float("nan")), "bandwidth must be a positive number"),
    (lambda: NadarayaWatsonAttention(True), "bandwidth must be a positive number"),
    (lambda: NadarayaWatsonAttention([[1.0]]), "bandwidth must be a positive number"),
    (lambda: NadarayaWatsonAttention([]), "bandwidth must be a positive number"),
    (lambda: NadarayaWatsonAttention("loo"), "got 'loo'.*hand over its bandwidth_"),
    (lambda: NadarayaWatsonAttention([1.0, 0.0]), r"got \[1.0, 0.0\]"),
    (lambda: NadarayaWatsonAttention([1.0, 2.0], n_features=3), "n_features=3"),
    (lambda: NadarayaWatsonAttention(n_features=0), "n_features must be a positive integer"),
    (lambda: NadarayaWatsonAttention(kernel="uniform"), "kernel must be one of .*'uniform'"),
    (lambda: NadarayaWatsonAttention(dropout=1.0), "dropout must be a probability"),
    (lambda: NadarayaWatsonAttention(dropout="a"), "dropout must be a probability.*got 'a'"),
    (lambda: NadarayaWatsonAttention(dropout=None), "dropout must be a probability.*got None"),
    (lambda: ScaledDotProductAttention("a"), "scale must be None or a finite number.*got 'a'"),
    (lambda: ScaledDotProductAttention(0.0), "scale must be None or a finite number"),
    (lambda: AdditiveAttention(0), "n_features must be a positive integer; got 0"),
    (lambda: MultiHeadKernelAttention(2, 1.5), "n_heads must be a positive integer; got 1.5"),
    (lambda: MultiHeadKernelAttention(2, True), "n_heads must be a positive integer; got True"),
    (
        lambda: MultiHeadKernelAttention(2, 2, bandwidth=[1.0, 2.0]),
        r"bandwidth must be one positive number.* got \[1.0, 2.0\]\..*log_bandwidth",
    ),
    (lambda: MultiHeadKernelAttention(2, bandwidth=-1.0), "bandwidth must be one .* got -1.0"),
    (lambda: MultiHeadKernelAttention(2, bandwidth="loo"), "bandwidth must be one .* got 'loo'"),
]


@pytest.mark.parametrize(("make", "words"), ERRORS)
def test_parameters_that_make_no_sense_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


CALLS = [
    ((torch.zeros(3),), "queries must be a floating-point tensor of shape"),
    ((torch.zeros(3, 2, dtype=torch.int64),), r"integers become numbers by \.float"),
    ((torch.zeros(3, 2), torch.zeros(3, 4)), "as many features; got 2 .* and 4"),
    ((torch.zeros(3, 2), torch.zeros(4, 2), torch.zeros(3, 1)), "one row for each of the 4 keys"),
    ((torch.zeros(3, 2), torch.zeros(4, 2), torch.zeros(4)), "values must be a floating"),
    ((torch.zeros(2, 3, 2), torch.zeros(5, 4, 2)), "leading dimensions .* must broadcast"),
]


@pytest.mark.parametrize(("arguments", "words"), CALLS)
def test_shapes_that_do_not_fit_are_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        NadarayaWatsonAttention()(*arguments)


def test_features_that_a_layer_was_not_made_for_are_refused():
    x = torch.zeros(3, 2)
    with pytest.raises(ValueError, match="must have the 3 features that bandwidth"):
        NadarayaWatsonAttention([1.0, 1.0, 1.0])(x)
    with pytest.raises(ValueError, match="must have n_features=3 features; got 2"):
        MultiHeadKernelAttention(3)(x)
    with pytest.raises(ValueError, match="queries must have 3 features; got 2"):
        AdditiveAttention(3)(x)


def test_without_torch_the_module_says_how_to_get_it():
    code = (
        "import sys\n"
        "class Missing:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'torch': raise ModuleNotFoundError(name)\n"
        "sys.meta_path.insert(0, Missing())\n"
        "import skattn, skattn.nn"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 1
    assert 'skattn.nn needs PyTorch, which is not installed: pip install "skattn[torch]"' in (
        result.stderr
    )
