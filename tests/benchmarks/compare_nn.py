"""The layers of skattn.nn against PyTorch's own, in one run.

    python tests/benchmarks/compare_nn.py [time | accuracy]

``time``: forward and backward of kernel attention at 4096 queries and keys, against
``scaled_dot_product_attention`` on the same inputs, folded and padded beforehand, and against the
formula as one would type it: medians of alternating repetitions on one thread, and the largest
memory that tensors held at once, as PyTorch's profiler counts it.

``accuracy``: an attention layer over the training rows against ``nn.MultiheadAttention`` in the
same place, trained alike, on 50 to 5000 rows of a task with one feature and one with five.
"""

import argparse
import copy
import platform
import statistics
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from skattn import NadarayaWatsonRegressor
from skattn.nn import (
    AttentionRegressionNetwork,
    Mask,
    MultiHeadKernelAttention,
    NadarayaWatsonAttention,
)

# --- time and memory


def folded(queries, keys, values, size):
    """What the layer computes, before the clock runs."""
    center = keys.mean(dim=1, keepdim=True)
    queries, keys = queries - center, keys - center
    squares = -0.5 * keys.square().sum(dim=-1, keepdim=True)
    parts = (torch.cat([queries, torch.ones_like(squares)], dim=-1), torch.cat([keys, squares], -1))
    padded = [functional.pad(part, (0, size - part.shape[-1])) for part in (*parts, values)]
    return [part[:, None].detach().requires_grad_() for part in padded]


def typed(queries, keys, values):
    return torch.softmax(-0.5 * torch.cdist(queries, keys).square(), dim=-1) @ values


def contenders(rows, dtype):
    generator = torch.Generator().manual_seed(0)
    draws = [torch.randn(1, rows, 8, generator=generator, dtype=dtype) for _ in range(3)]
    inputs = [draw.requires_grad_() for draw in draws]
    size = 16
    own = folded(*(draw.detach() for draw in draws), size)
    layer = NadarayaWatsonAttention(1.0, dtype=dtype)
    student = NadarayaWatsonAttention(1.0, kernel="student", dtype=dtype)
    dense = {"need_weights": True}
    window, alone = Mask(window=64), Mask(exclude_self=True)
    attention = functional.scaled_dot_product_attention
    return {
        "scaled_dot_product_attention": (lambda: attention(*own, scale=1.0), own),
        "gaussian, fused": (lambda: layer(*inputs), inputs),
        "gaussian, exclude_self": (lambda: layer(*inputs, mask=alone), inputs),
        "gaussian, window=64": (lambda: layer(*inputs, mask=window), inputs),
        "student": (lambda: student(*inputs), inputs),
        "gaussian, with weights": (lambda: layer(*inputs, **dense)[0], inputs),
        "as one would type it": (lambda: typed(*inputs), inputs),
    }


def step(function, inputs):
    for tensor in inputs:
        tensor.grad = None  # its memory is the next step's
    function().square().sum().backward()


def peak_bytes(function, inputs):
    """The inputs, and the largest sum of what the profiler saw allocated and not yet freed."""
    step(function, inputs)
    for tensor in inputs:
        tensor.grad = None
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        step(function, inputs)
    held = peak = sum(tensor.nbytes for tensor in inputs)
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    return peak


def compare_time(rows, repetitions):
    torch.set_num_threads(1)
    for dtype in (torch.float32, torch.float64):
        everyone = contenders(rows, dtype)
        seconds = {name: [] for name in everyone}
        for repetition in range(repetitions + 1):
            for name, (function, inputs) in everyone.items():
                start = time.process_time()
                step(function, inputs)
                if repetition:  # the first warms up
                    seconds[name].append(time.process_time() - start)
        peaks = {name: peak_bytes(*each) for name, each in everyone.items()}
        base = next(iter(everyone))
        print(f"\n(1, {rows}, 8) x (1, {rows}, 8), {dtype}, forward and backward")
        for name in everyone:
            ratios = [a / b for a, b in zip(seconds[name], seconds[base], strict=True)]
            print(
                f"  {name:<30} {1e3 * statistics.median(seconds[name]):8.1f} ms "
                f"{statistics.median(ratios):6.2f} x {peaks[name] / 2**20:8.2f} MiB "
                f"{peaks[name] / peaks[base]:6.2f} x"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("time", "accuracy"), default="time")
    parser.add_argument("--rows", type=int, default=4096)
    parser.add_argument("--repetitions", type=int, default=7)
    arguments = parser.parse_args()
    print(f"Python {platform.python_version()}, PyTorch {torch.__version__}")
    compare_time(arguments.rows, arguments.repetitions)


if __name__ == "__main__":
    main()
