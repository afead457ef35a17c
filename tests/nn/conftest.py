"""Tensors and layers that several tests share."""

import pytest

torch = pytest.importorskip("torch")

from skattn.nn import (  # noqa: E402
    AdditiveAttention,
    MultiHeadKernelAttention,
    NadarayaWatsonAttention,
    ScaledDotProductAttention,
)

DOUBLE = {"dtype": torch.float64}
LAYERS = {
    "gaussian": lambda: NadarayaWatsonAttention(0.7, **DOUBLE),
    "by feature": lambda: NadarayaWatsonAttention([0.5, 1.0, 2.0], dropout=0.0, **DOUBLE),
    "laplace": lambda: NadarayaWatsonAttention(0.7, kernel="laplace", **DOUBLE),
    "student": lambda: NadarayaWatsonAttention(0.7, kernel="student", **DOUBLE),
    "compact": lambda: NadarayaWatsonAttention(1.2, kernel="biweight", **DOUBLE),
    "dot product": lambda: ScaledDotProductAttention(),
    "additive": lambda: AdditiveAttention(3, 4, **DOUBLE),
    "heads": lambda: MultiHeadKernelAttention(3, 2, n_coordinates=2, **DOUBLE),
    "gated heads": lambda: MultiHeadKernelAttention(
        3, 2, kernel="student", gated_by_query=True, **DOUBLE
    ),
}


@pytest.fixture
def draw():
    """Make normal tensors of a shape, the same ones in every run."""
    generator = torch.Generator().manual_seed(0)

    def make(*shape, dtype=torch.float64):
        return torch.randn(*shape, generator=generator, dtype=dtype)

    return make


@pytest.fixture(params=LAYERS)
def layer(request):
    """Each kind of layer with three features, in double precision."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = LAYERS[request.param]()
        for parameter in made.parameters():  # no gate or score at its neutral start
            parameter.data += 0.1 * torch.randn(parameter.shape, dtype=parameter.dtype)
    return made
