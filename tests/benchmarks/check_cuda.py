"""Do CUDA and the CPU agree? Run where there is a CUDA device.

    python tests/benchmarks/check_cuda.py

Checks the layers of skattn.nn (fused, in blocks and with weights, forward and backward, in float64,
float32 and bfloat16) and ParametricAttentionRegressor(device="cuda") against the CPU in double
precision. Prints the largest difference of each and its bound, and leaves with 1 if one is beyond.
"""

import argparse
import copy
import sys

import numpy as np
import torch

from skattn import ParametricAttentionRegressor
from skattn.nn import (
    AdditiveAttention,
    Mask,
    MultiHeadKernelAttention,
    NadarayaWatsonAttention,
    ScaledDotProductAttention,
)

LAYERS = {
    "gaussian": lambda: NadarayaWatsonAttention([0.8] * 5, dtype=torch.float64),
    "laplace": lambda: NadarayaWatsonAttention(0.8, kernel="laplace", dtype=torch.float64),
    "student": lambda: NadarayaWatsonAttention(0.8, kernel="student", dtype=torch.float64),
    "tricube": lambda: NadarayaWatsonAttention(2.5, kernel="tricube", dtype=torch.float64),
    "dot product": lambda: ScaledDotProductAttention(),
    "additive": lambda: AdditiveAttention(5, dtype=torch.float64),
    "heads": lambda: MultiHeadKernelAttention(5, 3, n_coordinates=2, dtype=torch.float64),
}
MASKS = {
    "no mask": lambda device: None,
    "padding": lambda device: Mask(lengths=torch.tensor([0, 900], device=device)),
    "causal": lambda device: Mask(causal=True),
    "itself": lambda device: Mask(exclude_self=True),
    "window": lambda device: Mask(window=50, exclude_self=True),
}
# of the output and of gradients, relative to the largest
BOUNDS = {torch.float64: (1e-11, 1e-9), torch.float32: (2e-5, 2e-3), torch.bfloat16: (2e-2, 0.2)}


def outcome(layer, inputs, mask, need_weights):
    """The output and all gradients."""
    leaves = [tensor.detach().requires_grad_() for tensor in inputs]
    output = layer(*leaves, mask=mask, need_weights=need_weights)
    output = output[0] if need_weights else output
    wanted = [*leaves, *layer.parameters()]
    gradients = torch.autograd.grad(output.float().square().sum(), wanted)
    return [tensor.detach().double().cpu() for tensor in (output, *gradients)]


def difference(found, expected):
    return max(
        float((one - other).abs().max() / other.abs().max().clamp(min=1e-3))
        for one, other in zip(found, expected, strict=True)
    )


def check_layers(device):
    generator = torch.Generator().manual_seed(0)
    draws = [torch.randn(2, 1000, size, generator=generator) for size in (5, 5, 3)]
    worst = []
    for name, make in LAYERS.items():
        torch.manual_seed(0)
        layer = make()
        for dtype, bounds in BOUNDS.items():
            # the CPU is given the same rounded numbers
            rounded = [draw.to(dtype) for draw in draws]
            there = copy.deepcopy(layer).to(device)
            if dtype != torch.float64:
                there = there.float()
            for kind, mask in MASKS.items():
                expected = outcome(layer, [r.double() for r in rounded], mask("cpu"), True)
                for need_weights in (False, True):
                    inputs = [each.to(device) for each in rounded]
                    found = outcome(there, inputs, mask(device), need_weights)
                    errors = (
                        difference(found[:1], expected[:1]),
                        difference(found[1:], expected[1:]),
                    )
                    label = f"{name}, {kind}, {dtype}, {'weights' if need_weights else 'fast'}"
                    worst.append((label, errors, bounds))
    return worst


def check_memory(device):
    """Forward and backward at 30 000 rows, whose weights would take 3.6 GB."""
    x = torch.randn(1, 30_000, 5, device=device, requires_grad=True)
    for name, layer, mask in (
        ("fused", NadarayaWatsonAttention(), None),
        ("blocks", NadarayaWatsonAttention(kernel="student"), Mask(exclude_self=True)),
    ):
        torch.cuda.reset_peak_memory_stats()
        layer.to(device)(x, x, x, mask=mask).sum().backward()
        yield name, torch.cuda.max_memory_allocated() / 2**30


def check_estimator():
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (800, 4))
    y = np.sin(4.0 * X[:, 0]) + X[:, 1] + 0.1 * rng.standard_normal(800)
    fits = [ParametricAttentionRegressor(device=device).fit(X, y) for device in ("cpu", "cuda")]
    predictions = [fit.predict(X) for fit in fits]
    return float(np.abs(predictions[0] - predictions[1]).max() / y.std())


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", help="'cpu' tries the script itself")
    device = parser.parse_args().device
    if device == "cuda" and not torch.cuda.is_available():
        print(f"PyTorch {torch.__version__} sees no CUDA device: nothing was checked.")
        return 0
    failed = 0
    for label, errors, bounds in check_layers(device):
        beyond = any(not error <= bound for error, bound in zip(errors, bounds, strict=True))
        failed += beyond
        print(
            f"{'BEYOND' if beyond else 'ok':<7}{label:<55} output {errors[0]:.1e} "
            f"({bounds[0]:.0e}), gradients {errors[1]:.1e} ({bounds[1]:.0e})"
        )
    if device == "cuda":
        for name, gibibytes in check_memory(device):
            failed += gibibytes > 2.0
            print(f"{name}, 30 000 x 30 000: {gibibytes:.2f} GiB (2)")
        error = check_estimator()
        failed += error > 1e-2
        print(f"ParametricAttentionRegressor, cuda and cpu: {error:.1e} (1e-2)")
    print(f"{torch.cuda.get_device_name() if device == 'cuda' else device}: {failed} beyond")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
