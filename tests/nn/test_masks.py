"""Masks: what may be attended to, and what happens where nothing may be."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

torch = pytest.importorskip("torch")

from skattn.nn import Mask, NadarayaWatsonAttention  # noqa: E402

KEYS = torch.tensor([True, False, True, True, False, True])
ALLOWED = torch.tensor(np.random.default_rng(0).random((5, 6)) < 0.6)
ALLOWED[2] = False


def pairs(n_queries, n_keys):
    return np.arange(n_keys) - np.arange(n_queries)[:, None]


CASES = {
    "allowed": (Mask(allowed=ALLOWED), lambda: ALLOWED.numpy()),
    "keys": (Mask(keys=KEYS), lambda: np.tile(KEYS, (5, 1))),
    "lengths": (Mask(lengths=torch.tensor(2)), lambda: np.tile(np.arange(6) < 2, (5, 1))),
    "no keys": (Mask(lengths=torch.tensor(0)), lambda: np.zeros((5, 6), bool)),
    "causal": (Mask(causal=True), lambda: pairs(5, 6) <= 0),
    "window": (Mask(window=1), lambda: abs(pairs(5, 6)) <= 1),
    "itself": (Mask(window=0), lambda: pairs(5, 6) == 0),
    "others": (Mask(exclude_self=True), lambda: pairs(5, 6) != 0),
    "nothing": (Mask(window=0, exclude_self=True), lambda: np.zeros((5, 6), bool)),
    "causal window": (
        Mask(causal=True, window=2),
        lambda: (pairs(5, 6) <= 0) & (pairs(5, 6) >= -2),
    ),
    "all": (
        Mask(ALLOWED, KEYS, torch.tensor(5), causal=True, window=3, exclude_self=True),
        lambda: (
            ALLOWED.numpy()
            & KEYS.numpy()
            & (np.arange(6) < 5)
            & (pairs(5, 6) < 0)
            & (pairs(5, 6) >= -3)
        ),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_masked_weights_are_the_others_renormalised(name, layer, draw):
    mask, expected = CASES[name]
    allowed = torch.tensor(expected())
    queries, keys, values = (t.requires_grad_() for t in (draw(5, 3), draw(6, 3), draw(6, 2)))
    if allowed.all(dim=1).any() or "compact" not in str(layer):
        weights = layer(queries, keys, values, need_weights=True)[1]
    output, masked = layer(queries, keys, values, mask=mask, need_weights=True)
    assert_array_equal(masked.detach()[~allowed], 0.0)
    blind = ~allowed.any(dim=1)
    assert_array_equal(output.detach()[blind], 0.0)
    assert_allclose(masked.detach().sum(-1)[~blind], 1.0)
    blocked = layer(queries, keys, values, mask=mask)
    assert_allclose(blocked.detach(), output.detach(), atol=1e-12)
    if not hasattr(layer, "gate") and "biweight" not in str(layer):
        rest = (weights * allowed).detach()
        rest = torch.where(blind[:, None], 0.0, rest / rest.sum(-1, keepdim=True))
        assert_allclose(masked.detach(), rest, atol=1e-12)
    inputs = (queries, keys, values, *layer.parameters())
    found = [torch.autograd.grad(o.square().sum(), inputs) for o in (output, blocked)]
    for one, two in zip(*found, strict=True):
        assert torch.isfinite(one).all()
        assert_allclose(one, two, atol=1e-11)
    assert_array_equal(found[0][0][blind], 0.0)


def test_a_mask_of_each_batch(layer, draw):
    queries, keys, values = draw(2, 5, 3), draw(2, 6, 3), draw(2, 6, 2)
    for mask in (
        Mask(lengths=torch.tensor([2, 6])),
        Mask(keys=torch.arange(6) < torch.tensor([[2], [6]]), window=9),
    ):
        output = layer(queries, keys, values, mask=mask)
        first = layer(queries[0], keys[0, :2], values[0, :2])
        assert_allclose(output[0].detach(), first.detach(), atol=1e-12)
        last = layer(queries[1], keys[1], values[1])
        assert_allclose(output[1].detach(), last.detach(), atol=1e-12)


def test_a_tensor_is_a_mask_of_pairs(layer, draw):
    queries, keys, values = draw(5, 3), draw(6, 3), draw(6, 2)
    expected = layer(queries, keys, values, mask=Mask(allowed=ALLOWED))
    assert torch.equal(layer(queries, keys, values, mask=ALLOWED), expected)


@pytest.mark.parametrize("window", [None, 9])
def test_padding_may_hold_anything(layer, window, draw):
    queries, keys, values = draw(5, 3), draw(6, 3), draw(6, 2)
    mask = Mask(keys=KEYS, window=window)
    # PyTorch multiplies keys that require a gradient in another order
    expected = layer(queries, keys.clone().requires_grad_(), values, mask=mask)
    spoiled, worthless = keys.clone(), values.clone()
    spoiled[~KEYS], worthless[~KEYS] = torch.nan, torch.inf
    spoiled.requires_grad_()
    output = layer(queries, spoiled, worthless, mask=mask)
    assert torch.equal(output, expected)
    (gradient,) = torch.autograd.grad(output.sum(), spoiled)
    assert torch.isfinite(gradient).all()
    assert_array_equal(gradient[~KEYS], 0.0)


def test_padding_does_not_move_the_centre(draw):
    keys = (1e6 + (4 * draw(6, 1)).round() / 4).float()
    values = draw(6, 1, dtype=torch.float32)
    padded = torch.cat([keys, torch.zeros(100, 1)])
    layer = NadarayaWatsonAttention()
    output = layer(
        keys, padded, torch.cat([values, torch.zeros(100, 1)]), Mask(lengths=torch.tensor(6))
    )
    assert_allclose(output.detach(), layer(keys, keys, values).detach(), atol=2e-6)


def test_leaving_each_row_out_is_predicting_it_from_the_others(layer, draw):
    keys, values = draw(6, 3), draw(6, 1)
    output = layer(keys, keys, values, mask=Mask(exclude_self=True))
    for i in range(6):
        others = torch.arange(6) != i
        expected = layer(keys[i : i + 1], keys[others], values[others])
        assert_allclose(output[i : i + 1].detach(), expected.detach(), atol=1e-12)


def test_a_row_alone_in_its_group_is_zero_with_a_finite_gradient():
    # leave-group-out with a group of one, as case 70 of the collection asks
    groups = torch.tensor([0, 1, 1])
    x = torch.tensor([[0.0], [1.0], [2.0]], requires_grad=True)
    same = (groups[:, None] == groups) & ~torch.eye(3, dtype=torch.bool)
    layer = NadarayaWatsonAttention()
    output = layer(x, x, x, mask=same)
    output.sum().backward()
    assert output[0].item() == 0.0
    assert torch.isfinite(x.grad).all()
    assert torch.isfinite(layer.log_bandwidth.grad).all()


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (lambda: Mask(allowed=torch.ones(2, 2)), "allowed must be a tensor of bool"),
        (lambda: Mask(keys=torch.ones(2)), "keys must be a tensor of bool"),
        (lambda: Mask(lengths=torch.tensor(1.0)), "lengths must be a tensor of integers"),
        (lambda: Mask(window=-1), "window must be None or a number of positions"),
        (lambda: Mask(window=1.5), "at least 0; got 1.5"),
        (lambda: Mask(keys=torch.ones(3, dtype=torch.bool)), "one entry for each of the 2 keys"),
        (lambda: torch.ones(3, 2, dtype=torch.bool), "does not fit weights of shape"),
        (lambda: torch.ones(2, dtype=torch.bool), "does not fit weights of shape"),
        (lambda: Mask(lengths=torch.tensor([1, 2])), "does not fit weights of shape"),
    ],
)
def test_masks_that_do_not_fit_are_refused(made, words):
    with pytest.raises(ValueError, match=words):
        NadarayaWatsonAttention()(torch.zeros(2, 1), mask=made())
