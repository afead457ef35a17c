"""
An attention layer in a network of your own, and PyTorch's beside it
====================================================================

A layer of `skattn.nn` puts kernel regression into a network: a prediction is a weighted mean of
the training targets, in coordinates that the rest of the network learns. With one feature it is
more accurate than ``nn.MultiheadAttention`` in the same place, by a factor of two and more. With
five features neither wins on every draw, and transformers' attention has the best one and the worst
one. Both are measured here.
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
        self.output = nn.Linear(16, 1)

    def forward(self, queries, keys, values, mask=None):
        rows = self.encoder(queries), self.encoder(keys), self.embed(values)
        alone = torch.eye(len(queries), dtype=torch.bool) if mask is not None else None
        return self.output(self.attention(*rows, attn_mask=alone, need_weights=False)[0])


def train(network, X, y, steps=150):
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
# Two tasks: a sine of one feature, and a sine of two of five features plus a square. 50 or 200 rows
# with noise of 0.2, and 1000 new ones, without noise, to predict; each drawn twice. As a reference,
# the estimator, whose bandwidths come from leave-one-out in closed form.

TASKS = {
    1: lambda X: np.sin(6.0 * X[:, 0]),
    5: lambda X: np.sin(3.0 * X[:, 0] + 2.0 * X[:, 1]) + X[:, 2] ** 2,
}
NETWORKS = {"skattn.nn": KernelNetwork, "nn.MultiheadAttention": MultiheadNetwork}


def draw(n, n_features, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (n + 1000, n_features))
    truth = TASKS[n_features](X)
    return X[:n], truth[:n] + 0.2 * rng.standard_normal(n), X[n:], truth[n:]


class Trained:
    """A network with its context, in units of the data."""

    def __init__(self, network, X, y):
        self.center, self.scale = y.mean(), y.std()
        self.keys = torch.tensor(X, dtype=torch.float32)
        values = (y - self.center) / self.scale
        self.values = torch.tensor(values, dtype=torch.float32)[:, None]
        self.network = train(network, self.keys, self.values)

    def predict(self, X):
        queries = torch.tensor(X, dtype=torch.float32)
        with torch.no_grad():
            output = self.network(queries, self.keys, self.values)[:, 0]
        return self.center + self.scale * output.numpy()


torch.manual_seed(0)
torch.set_num_threads(1)  # such small products are faster so
SETTINGS = [(d, n) for d in TASKS for n in (50, 200)]
models, errors = {}, {}
print(f"{'error at new rows':<24}{'features':>8}{'rows':>6}{'two draws':>18}{'seconds':>9}")
for d, n in SETTINGS:
    for name in ("estimator", *NETWORKS):
        start = time.perf_counter()
        drawn = errors[name, d, n] = []
        for seed in range(2):
            X, y, new, truth = draw(n, d, seed)
            if name == "estimator":
                model = NadarayaWatsonRegressor().fit(X, y)
            else:
                model = Trained(NETWORKS[name](d), X, y)
            drawn.append(np.sqrt(np.mean((model.predict(new) - truth) ** 2)))
            models[name, d, n, seed] = model
        both = "   ".join(f"{error:.3f}" for error in drawn)
        print(f"{name:<24}{d:>8}{n:>6}{both:>18}{time.perf_counter() - start:>9.1f}")
for name in NETWORKS:
    parameters = models[name, 1, 50, 0].network.parameters()
    print(f"parameters of {name}: {sum(each.numel() for each in parameters)}")

# %%
# Left, both networks on the first 50 rows with one feature. Right, the errors: means of two draws,
# and each of them.

figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
X, y, _, _ = draw(50, 1, 0)
grid = np.linspace(-1.0, 1.0, 300)[:, None]
left.plot(grid, TASKS[1](grid), "0.6", lw=4, label="truth")
left.plot(X, y, "k.", label="50 rows")
for name, style in (("skattn.nn", "tab:blue"), ("nn.MultiheadAttention", "tab:orange")):
    line = "-" if name == "skattn.nn" else "--"
    left.plot(grid, models[name, 1, 50, 0].predict(grid), line, color=style, lw=2, label=name)
left.set(xlabel="x", ylabel="y", ylim=(-1.4, 2.6))
left.legend(fontsize="small")

places = np.arange(4)
BARS = {"skattn.nn": ("tab:blue", ""), "nn.MultiheadAttention": ("tab:orange", "//")}
for shift, (name, (colour, hatch)) in enumerate({**BARS, "estimator": ("0.8", "..")}.items()):
    drawn = np.array([errors[name, d, n] for d, n in SETTINGS])
    at = places + 0.27 * (shift - 1)
    right.plot(np.column_stack([at, at]), drawn, "k_", ms=9, mew=2)
    right.bar(
        at, drawn.mean(axis=1), 0.27, color=colour, hatch=hatch, edgecolor="black", label=name
    )
labels = [f"{d} feature{'s' * (d > 1)},\n{n} rows" for d, n in SETTINGS]
right.set_xticks(places, labels)
right.set(ylabel="root mean squared error at new rows")
right.legend(fontsize="small")

plt.show()

# %%
# Remember: a kernel attention has few parameters, and its prediction is a mean of targets near the
# query, so it needs few rows and few steps. Transformers' attention need not average targets; with
# several features and ten times the steps it is more accurate (:doc:`/guide/layers` has the
# numbers); with few steps it may find nothing. For one table and no network around it, the
# estimator is about as accurate in a fraction of the time.
