"""
Local lines and the edge of the data
====================================

A weighted mean is biased at the edge of the data, where all rows lie on one side of the query. A
local line is not, as long as the target is nearly linear within a bandwidth, and may therefore
smooth more. The price is variance: at an edge with few rows and little slope the mean can be
better. Both are measured here, over 200 draws of the noise.
"""

# %%
# 150 rows, dense on the left and sparse on the right. Each of the 200 columns of targets is the
# same signal with other noise; one bandwidth, chosen by leave-one-out, serves them all.

import matplotlib.pyplot as plt
import numpy as np

from skattn import NadarayaWatsonRegressor


def signal(x):
    return np.sin(3 * x) + 2 * x


rng = np.random.default_rng(0)
x = np.sort(rng.beta(1.0, 1.7, size=150))
targets = signal(x)[:, None] + 0.3 * rng.standard_normal((len(x), 200))
grid = np.linspace(x[0], x[-1], 201)
truth = signal(grid)[:, None]

models, bias, error = {}, {}, {}
for degree in (0, 1):
    model = NadarayaWatsonRegressor(degree=degree).fit(x[:, None], targets)
    difference = model.predict(grid[:, None]) - truth
    models[degree] = model
    bias[degree] = difference.mean(axis=1)
    error[degree] = np.sqrt((difference**2).mean(axis=1))
    print(
        f"degree {degree}: bandwidth {model.bandwidth_[0]:.3f}, "
        f"effective degrees of freedom {model.effective_dof_:.1f}, "
        f"root mean squared error {np.sqrt(np.mean(difference**2)):.3f}"
    )

# %%
# At the left edge, where the signal is steep and rows are many, the line removes nearly all of the
# bias and almost half of the error. At the right edge the signal is flat, so that there is little
# bias to remove, and rows are few: the line is worse. In the middle its wider bandwidth shows as a
# bias from curvature, and still the error is no larger.

places = {"left edge": 0, "middle": 100, "right edge": 200}
print(f"\n{'':<12}{'bias':>8}{'':>8}{'error':>8}")
print(f"{'degree':<12}{0:>8}{1:>8}{0:>8}{1:>8}")
for place, i in places.items():
    print(f"{place:<12}{bias[0][i]:8.3f}{bias[1][i]:8.3f}{error[0][i]:8.3f}{error[1][i]:8.3f}")

# %%
# Why: the weights of the rows in the prediction at the left edge. Those of the mean are positive,
# and so their centre is inside the data. Those of the line are centred at the edge itself, which
# takes negative weights on the far side.

edge = [[x[0]]]
weights = {degree: model.attention_weights(edge)[0] for degree, model in models.items()}
for degree, w in weights.items():
    print(f"degree {degree}: edge at {x[0]:.3f}, centre of the weights at {w @ x:.3f}")

figure, axes = plt.subplots(2, 2, figsize=(10, 7), layout="constrained")
(fits, attention), (biases, errors) = axes
styles = {0: {"color": "black", "ls": "--"}, 1: {"color": "tab:blue", "ls": "-"}}
labels = {0: "mean (degree 0)", 1: "line (degree 1)"}

fits.plot(x, targets[:, 0], ".", color="0.7", label="rows, one draw")
fits.plot(grid, truth, color="0.45", lw=4, alpha=0.5, label="truth")
for degree, model in models.items():
    fit = model.predict(grid[:, None])[:, 0]
    fits.plot(grid, fit, **styles[degree], label=labels[degree])
fits.set(xlabel="x", ylabel="target", title="one draw")

markers = {0: "o", 1: "^"}
for degree, w in weights.items():
    attention.plot(
        x, w, markers[degree], color=styles[degree]["color"], ms=4, mfc="none", label=labels[degree]
    )
attention.set(
    xlabel="x of the row", ylabel="weight", xlim=(-0.01, 0.4), title="weights at the left edge"
)
for degree in models:
    biases.plot(grid, bias[degree], **styles[degree], label=labels[degree])
    errors.plot(grid, error[degree], **styles[degree], label=labels[degree])
biases.set(xlabel="x", ylabel="bias", title="mean error over 200 draws")
errors.set(xlabel="x", ylabel="root mean squared error", title="size of the error", ylim=(0, None))
for ax in (attention, biases):
    ax.axhline(0.0, color="0.7", lw=0.8, zorder=0)
for ax in axes.flat:
    ax.legend()

plt.show()

# %%
# Remember: ``degree=1`` removes the bias at an edge (and wherever rows are denser on one side) and
# allows a wider bandwidth. It does not make an edge with few rows any safer.
