"""
An attention layer in a network of your own, and PyTorch's beside it
====================================================================

A layer of `skattn.nn` puts kernel regression into a network: a prediction is a weighted mean of
the training targets, in coordinates that the rest of the network learns. With one feature it is
more accurate than ``nn.MultiheadAttention`` in the same place, at 50 rows by far. With five
features it is less accurate: transformers' attention need not average targets. Both are measured
here.
"""

# %%
# The network is an encoder and a `NadarayaWatsonAttention`: keys are the training rows, values
# their targets. In training each row is predicted from the others (``exclude_self``); otherwise it
# would attend to itself and learn nothing.

import time

import matplotlib.pyplot as plt
import numpy as np
import torch
from torch import nn

from skattn import NadarayaWatsonRegressor
from skattn.nn import Mask, NadarayaWatsonAttention


def encoder(n_features):
    return nn.Sequential(nn.Linear(n_features, 32), nn.Tanh(), nn.Linear(32, 16))


class KernelNetwork(nn.Module):
    def __init__(self, n_features):
        super().__init__()
        self.encoder = encoder(n_features)
        self.attention = NadarayaWatsonAttention(bandwidth=1.0)

    def forward(self, queries, keys, values, mask=None):
        return self.attention(self.encoder(queries), self.encoder(keys), values, mask)


# %%
# The same with ``nn.MultiheadAttention``: the same encoder, and what else it needs, an embedding
# of the targets and a map back. In its masks True means "may *not*".


class MultiheadNetwork(nn.Module):
    def __init__(self, n_features):
        super().__init__()
        self.encoder, self.embed = encoder(n_features), nn.Linear(1, 16)
        self.attention = nn.MultiheadAttention(16, num_heads=4, batch_first=True)
        self.head = nn.Linear(16, 1)

    def forward(self, queries, keys, values, mask=None):
        rows = self.encoder(queries), self.encoder(keys), self.embed(values)
        alone = torch.eye(len(queries), dtype=torch.bool) if mask is not None else None
        return self.head(self.attention(*rows, attn_mask=alone, need_weights=False)[0])


def train(network, X, y, steps=200):
    optimizer = torch.optim.Adam(network.parameters())
    plan = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.03, total_steps=steps)
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (network(X, X, y, mask=Mask(exclude_self=True)) - y).square().mean()
        loss.backward()
        optimizer.step()
        plan.step()
    return network


# %%
# Two tasks: a sine of one feature, and of a mixture of two of five features plus a square. 50 or
# 300 rows with noise of 0.2, and 1000 new ones, without noise, to predict. As a reference, the
# estimator, whose bandwidths come from leave-one-out in closed form.

TASKS = {
    1: lambda X: np.sin(6.0 * X[:, 0]),
    5: lambda X: np.sin(3.0 * X[:, 0] + 2.0 * X[:, 1]) + X[:, 2] ** 2,
}
NETWORKS = {"skattn.nn": KernelNetwork, "nn.MultiheadAttention": MultiheadNetwork}


def draw(n, n_features):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1.0, 1.0, (n + 1000, n_features))
    truth = TASKS[n_features](X)
    return X[:n], truth[:n] + 0.2 * rng.standard_normal(n), X[n:], truth[n:]


def tensor(array):
    return torch.tensor(array, dtype=torch.float32)


torch.manual_seed(0)
torch.set_num_threads(1)  # such small products are faster so
errors, trained = {}, {}
print(f"{'':<24}{'features':>8}{'rows':>6}{'parameters':>12}{'error':>8}{'seconds':>9}")
for d in TASKS:
    for n in (50, 300):
        X, y, new, truth = draw(n, d)
        start = time.perf_counter()
        predictions = {"estimator": NadarayaWatsonRegressor().fit(X, y).predict(new)}
        told = {"estimator": (d, time.perf_counter() - start)}
        center, scale = y.mean(), y.std()
        keys, values = tensor(X), tensor((y - center) / scale)[:, None]
        for name, make in NETWORKS.items():
            start = time.perf_counter()
            network = trained[name, d, n] = train(make(d), keys, values)
            count = sum(parameter.numel() for parameter in network.parameters())
            told[name] = count, time.perf_counter() - start
            with torch.no_grad():
                output = network(tensor(new), keys, values)[:, 0].numpy()
            predictions[name] = center + scale * output
        for name, predicted in predictions.items():
            errors[name, d, n] = np.sqrt(np.mean((predicted - truth) ** 2))
            count, seconds = told[name]
            print(f"{name:<24}{d:>8}{n:>6}{count:>12}{errors[name, d, n]:>8.3f}{seconds:>9.1f}")

# %%
# Left, both networks on the 50 rows with one feature: in these 200 steps transformers' attention
# found nothing but the mean. Right, all errors.

figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
X, y, _, _ = draw(50, 1)
grid = np.linspace(-1.0, 1.0, 300)[:, None]
left.plot(grid, TASKS[1](grid), "0.6", lw=4, label="truth")
left.plot(X, y, "k.", label="50 rows")
STYLES = {"skattn.nn": ("tab:blue", "-"), "nn.MultiheadAttention": ("tab:orange", "--")}
for name, (colour, line) in STYLES.items():
    keys, values = tensor(X), tensor((y - y.mean()) / y.std())[:, None]
    with torch.no_grad():
        output = trained[name, 1, 50](tensor(grid), keys, values)[:, 0].numpy()
    left.plot(grid, y.mean() + y.std() * output, line, color=colour, lw=2, label=name)
left.set(xlabel="x", ylabel="y", ylim=(-1.4, 2.6))
left.legend(fontsize="small")

places = np.arange(4)
BARS = {"skattn.nn": ("tab:blue", ""), "nn.MultiheadAttention": ("tab:orange", "//")}
for shift, (name, (colour, hatch)) in enumerate({**BARS, "estimator": ("0.8", "..")}.items()):
    heights = [errors[name, d, n] for d in TASKS for n in (50, 300)]
    at = places + 0.27 * (shift - 1)
    right.bar(at, heights, 0.27, color=colour, hatch=hatch, edgecolor="black", label=name)
labels = [f"{d} feature{'s' * (d > 1)},\n{n} rows" for d in TASKS for n in (50, 300)]
right.set_xticks(places, labels)
right.set(ylabel="root mean squared error at new rows")
right.legend(fontsize="small")

plt.show()

# %%
# Remember: a kernel attention has few parameters, and its prediction is a mean of targets near the
# query: good where neighbours are near. Where a network can learn the
# function itself, with enough rows in many features, transformers' attention goes further. For one
# table and no network around it, the estimator is as accurate in a hundredth of the time.
