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


# --- accuracy

TASKS = {
    1: lambda X: np.sin(6.0 * X[:, 0]),
    5: lambda X: np.sin(3.0 * X[:, 0] + 2.0 * X[:, 1]) + X[:, 2] ** 2,
}


def draw(n, d, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n + 1000, d))
    truth = TASKS[d](X)
    return X[:n], truth[:n] + 0.2 * rng.standard_normal(n), X[n:], truth[n:]


def encoder(d, width):
    return nn.Sequential(nn.Linear(d, 32), nn.Tanh(), nn.Linear(32, width))


class MultiheadRegression(nn.Module):
    """nn.MultiheadAttention in the place of a kernel attention, with what it needs around it."""

    def __init__(self, encode, width):
        super().__init__()
        self.encoder, self.value = encode, nn.Linear(1, width)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.head = nn.Linear(width, 1)

    def forward(self, queries, keys, values, mask=None):
        rows = self.encoder(queries)[None], self.encoder(keys)[None], self.value(values)[None]
        forbidden = None if mask is None else ~mask.allowed
        return self.head(self.attention(*rows, attn_mask=forbidden, need_weights=False)[0])[0]


def networks(d):
    """Each with its own parameters, which the caller's seed decides."""
    kernel = NadarayaWatsonAttention(0.3, n_features=d)
    heads = MultiHeadKernelAttention(d, 4, bandwidth=0.4, gated_by_query=True)
    encoded = NadarayaWatsonAttention(1.0)
    return {
        "bandwidths": AttentionRegressionNetwork(None, kernel),
        "heads": AttentionRegressionNetwork(None, heads),
        "encoder, bandwidth": AttentionRegressionNetwork(encoder(d, 16), encoded),
        "MultiheadAttention, linear": MultiheadRegression(nn.Linear(d, 16), 16),
        "MultiheadAttention, encoder": MultiheadRegression(encoder(d, 16), 16),
    }


def train(network, X, y, steps):
    """Leave-one-out errors of 256 rows a step, all rows in context."""
    generator = torch.Generator().manual_seed(0)
    # logarithms of bandwidths have farther to go than weights of a layer
    scales = [each for name, each in network.named_parameters() if name.endswith("log_bandwidth")]
    rest = [each for name, each in network.named_parameters() if not name.endswith("log_bandwidth")]
    groups = [(group, rate) for group, rate in ((scales, 0.1), (rest, 0.02)) if group]
    optimizer = torch.optim.Adam([{"params": group} for group, _ in groups])
    rates = [rate for _, rate in groups]
    plan = torch.optim.lr_scheduler.OneCycleLR(optimizer, rates, total_steps=steps)
    for _ in range(steps):
        rows = torch.randperm(len(X), generator=generator)[:256]
        others = Mask(allowed=rows[:, None] != torch.arange(len(X)))
        optimizer.zero_grad()
        loss = (network(X[rows], X, y, mask=others) - y[rows]).square().mean()
        loss.backward()
        optimizer.step()
        plan.step()


def compare_accuracy(sizes, steps, seeds):
    torch.set_num_threads(1)
    for d in TASKS:
        for n in sizes:
            results = {}
            for seed in range(seeds):
                X, y, new, truth = draw(n, d, seed)
                center, scale = y.mean(), y.std()
                rows = torch.tensor(X, dtype=torch.float32)
                targets = torch.tensor((y - center) / scale, dtype=torch.float32)[:, None]
                queries = torch.tensor(new, dtype=torch.float32)
                with torch.random.fork_rng(devices=[]):
                    torch.manual_seed(seed)
                    everyone = networks(d)
                for name, network in everyone.items():
                    start = time.process_time()
                    train(network, rows, targets, steps)
                    seconds = time.process_time() - start
                    with torch.no_grad():
                        predicted = center + scale * network(queries, rows, targets)[:, 0].numpy()
                    count = sum(parameter.numel() for parameter in network.parameters())
                    error = np.sqrt(np.mean((predicted - truth) ** 2))
                    results.setdefault((name, count), []).append((error, seconds))
                start = time.process_time()
                predicted = NadarayaWatsonRegressor().fit(X, y).predict(new)
                error = np.sqrt(np.mean((predicted - truth) ** 2))
                name = ("NadarayaWatsonRegressor", d)
                results.setdefault(name, []).append((error, time.process_time() - start))
            print(f"\n{d} features, {n} rows: error at new rows (mean, range of {seeds} draws)")
            for (name, count), pairs in results.items():
                errors, seconds = zip(*pairs, strict=True)
                print(
                    f"  {name:<28} {count:5d} parameters  {np.mean(errors):.3f} "
                    f"({min(errors):.3f}-{max(errors):.3f}) {np.mean(seconds):7.2f} s",
                    flush=True,
                )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", nargs="?", choices=("time", "accuracy"), default="time")
    parser.add_argument("--rows", type=int, nargs="+", help="4096, or 50 500 5000 for accuracy")
    parser.add_argument("--repetitions", type=int, help="7, or 2 draws for accuracy")
    parser.add_argument("--steps", type=int, default=300, help="of training")
    arguments = parser.parse_args()
    print(f"Python {platform.python_version()}, PyTorch {torch.__version__}")
    if arguments.what == "time":
        for rows in arguments.rows or [4096]:
            compare_time(rows, arguments.repetitions or 7)
    else:
        sizes = arguments.rows or [50, 500, 5000]
        compare_accuracy(sizes, arguments.steps, arguments.repetitions or 2)


if __name__ == "__main__":
    main()
