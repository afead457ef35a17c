"""
The bandwidth is how sharp attention is
=======================================

One number decides what attention looks at: w, one over the bandwidth, which multiplies distances
before the softmax. With w near zero every training row weighs the same, and the prediction is their
mean; with w large all attention is on the nearest row, and the prediction repeats its target. Both
limits are exact, and the best w between them need not be trained: leave-one-out errors show it.
"""

# %%
# A sine along a rising power, 60 rows with noise of 0.5. Three bandwidths: far too wide, the one
# that leave-one-out chooses, and far too narrow. Errors to the truth, and of rows left out.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.neighbors import KNeighborsRegressor

from skattn import NadarayaWatsonRegressor
from skattn.datasets import make_power_sine
from skattn.inspection import AttentionDisplay, BandwidthDisplay

X, y, truth = make_power_sine(60, random_state=1, return_truth=True)
chosen = NadarayaWatsonRegressor().fit(X, y)
models = {
    "blunt": NadarayaWatsonRegressor(bandwidth=2.0).fit(X, y),
    "chosen": chosen,
    "sharp": NadarayaWatsonRegressor(bandwidth=0.01).fit(X, y),
}

print(f"{'':<8}{'w':>8}{'bandwidth':>11}{'neighbours':>12}{'dof':>6}{'error':>8}{'left out':>10}")
for name, model in models.items():
    h, near = model.bandwidth_[0], model.effective_neighbors(X).mean()
    error = np.sqrt(np.mean((model.predict(X) - truth) ** 2))
    left_out = np.sqrt(np.mean((model.predict(None) - y) ** 2))
    numbers = f"{near:12.1f}{model.effective_dof_:6.1f}{error:8.3f}{left_out:10.3f}"
    print(f"{name:<8}{1 / h:8.2f}{h:11.3f}{numbers}")

# %%
# The limits, to the last digits. With a bandwidth near zero, attention is the nearest neighbour;
# with an infinite one, the mean. And k nearest neighbours are attention too: a uniform
# kernel whose bandwidth is, at every query, the distance to the k-th row.

queries = np.random.default_rng(0).uniform(0.0, 5.0, (500, 1))
limits = {
    "1 neighbour": (NadarayaWatsonRegressor(1e-9), KNeighborsRegressor(1)),
    "7 neighbours": (
        NadarayaWatsonRegressor(1.0, kernel="uniform", adaptive="query", n_neighbors=7),
        KNeighborsRegressor(7),
    ),
}
print("\nlargest difference to")
for name, (attention, neighbors) in limits.items():
    difference = attention.fit(X, y).predict(queries) - neighbors.fit(X, y).predict(queries)
    print(f"  {name:<14}{np.abs(difference).max():.0e}")
    assert np.abs(difference).max() < 1e-12
difference = NadarayaWatsonRegressor(np.inf).fit(X, y).predict(queries) - y.mean()
print(f"  {'the mean':<14}{np.abs(difference).max():.0e}")
assert np.abs(difference).max() < 1e-12

# %%
# Above, the weights: a line for each query, a column for each training row, both sorted by x and in
# one scale of colours. Below left, what they predict. Below right, the leave-one-out error over all
# bandwidths, and the effective degrees of freedom: the sum of the diagonal of the matrix above, the
# number of parameters that a least-squares fit as flexible would have.

figure, axes = plt.subplot_mosaic(
    [["blunt"] * 2 + ["chosen"] * 2 + ["sharp"] * 2, ["fits"] * 3 + ["criterion"] * 3],
    figsize=(10.5, 7.2),
    layout="constrained",
)
for name, model in models.items():
    last = AttentionDisplay.from_estimator(
        model, X, ax=axes[name], colorbar=False, image_kwargs={"vmax": 0.3}
    )
    axes[name].set_title(f"{name}: w = {1 / model.bandwidth_[0]:.1f}")
shown = [axes[name] for name in models]
figure.colorbar(last.image_, ax=shown, extend="max", label="attention weight")

grid = np.linspace(0.0, 5.0, 400)[:, None]
axes["fits"].plot(X[:, 0], y, ".", color="0.5", label="rows")
axes["fits"].plot(X[:, 0], truth, color="0.75", lw=5, label="truth")
for name, style in {"blunt": ":", "chosen": "-", "sharp": "--"}.items():
    fit = models[name].predict(grid)
    axes["fits"].plot(grid, fit, "k" + style, lw=0.8 if name == "sharp" else 1.8, label=name)
axes["fits"].set(xlabel="x", ylabel="target")
axes["fits"].legend(fontsize="small")
BandwidthDisplay.from_estimator(chosen, X, y, ax=axes["criterion"])

plt.show()

# %%
# Remember: the bandwidth is the temperature of attention. Let leave-one-out choose it, and read off
# ``effective_neighbors`` how many rows a prediction rests on.
