"""Memory does not grow with queries times keys: the largest tensor anyone makes."""

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from torch.utils._pytree import tree_leaves  # noqa: E402

from skattn.nn import (  # noqa: E402
    AdditiveAttention,
    Mask,
    MultiHeadKernelAttention,
    NadarayaWatsonAttention,
    ScaledDotProductAttention,
    _blocks,
)

N = 2000
BLOCK = 1 << 13  # N * N is 500 times as much


class Largest(TorchDispatchMode):
    """Watches the number of elements of every storage that an operation returns."""

    elements = 0

    def __torch_dispatch__(self, operation, types, arguments=(), keywords=None):
        returned = operation(*arguments, **(keywords or {}))
        for tensor in tree_leaves(returned):
            if isinstance(tensor, torch.Tensor):
                size = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.elements = max(self.elements, size)
        return returned


def largest(layer, mask=None, n_values=1, n=N):
    x = torch.linspace(-1.0, 1.0, n).repeat_interleave(3).reshape(n, 3).requires_grad_()
    values = torch.ones(n, n_values)
    with Largest() as watched:
        layer(x, x, values, mask=mask).sum().backward()
    return watched.elements


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(_blocks, "BLOCK_ENTRIES", {"cpu": BLOCK, "cuda": BLOCK})


CASES = {
    "fused": (lambda: NadarayaWatsonAttention(), None),
    "fused, padding": (lambda: NadarayaWatsonAttention(), Mask(lengths=torch.tensor(N // 2))),
    "fused, causal": (lambda: NadarayaWatsonAttention(), Mask(causal=True)),
    "itself excluded": (lambda: NadarayaWatsonAttention(), Mask(exclude_self=True)),
    "window": (lambda: NadarayaWatsonAttention(), Mask(window=50)),
    "student": (lambda: NadarayaWatsonAttention(kernel="student"), None),
    "laplace": (lambda: NadarayaWatsonAttention(kernel="laplace"), Mask(causal=True)),
    "compact": (lambda: NadarayaWatsonAttention(kernel="tricube"), Mask(exclude_self=True)),
    "dot product": (lambda: ScaledDotProductAttention(), Mask(exclude_self=True)),
    "additive": (lambda: AdditiveAttention(3, 2), None),
    "heads": (lambda: MultiHeadKernelAttention(3, 2), Mask(window=9)),
}


@pytest.mark.parametrize("name", CASES)
def test_no_tensor_is_as_large_as_the_weights(name):
    make, mask = CASES[name]
    # folded inputs have 16 columns, and the fused kernel works in blocks of its own
    assert largest(make(), mask) <= max(2 * BLOCK, 2 * 16 * N * 2)


def test_asking_for_weights_costs_them():
    class Weighted(torch.nn.Module):
        def forward(self, queries, keys, values, mask):
            return NadarayaWatsonAttention()(queries, keys, values, mask, need_weights=True)[0]

    assert largest(Weighted()) == N * N


def test_nothing_large_is_kept_for_the_backward_pass():
    kept = []
    x = torch.linspace(-1.0, 1.0, N)[:, None].requires_grad_()

    def pack(tensor):
        kept.append(tensor.numel())
        return tensor

    for kernel in ("gaussian", "student"):
        layer = NadarayaWatsonAttention(kernel=kernel)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            layer(x, x, x, mask=Mask(exclude_self=True))
    assert max(kept) <= 16 * N


def test_windows_cost_in_proportion_to_the_window():
    class Counted(TorchDispatchMode):
        elements = 0

        def __torch_dispatch__(self, operation, types, arguments=(), keywords=None):
            returned = operation(*arguments, **(keywords or {}))
            if isinstance(returned, torch.Tensor):
                self.elements += returned.numel()
            return returned

    work = []
    for window in (10, None):
        x = torch.linspace(-1.0, 1.0, N)[:, None]
        with Counted() as counted, torch.no_grad():
            NadarayaWatsonAttention()(x, x, x, mask=Mask(window=window, exclude_self=True))
        work.append(counted.elements)
    assert work[0] < 0.1 * work[1]
