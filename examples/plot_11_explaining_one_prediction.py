"""
Explaining one prediction, and what weights do not say
======================================================

A prediction of attention can be taken apart exactly: these training rows, with these weights, and
nothing else. But a large weight does not mean a large influence. It says how much a row's target
contributes, not how the prediction would change without it: a heavy row that agrees with the others
changes nothing, a lighter one that stands apart changes a lot. And it says nothing about features.
Each of these three questions has an exact answer of its own.
"""

# %%
# Targets that follow a sine of the first feature, rise with the second, and ignore the third. One
# training row not far from the query is an outlier.

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
from sklearn.inspection import permutation_importance

from skattn import NadarayaWatsonRegressor
from skattn.inspection import AttentionDisplay, AttentionProfileDisplay, leave_row_out_effect

rng = np.random.default_rng(4)
names = ["heat", "wind", "noise"]
X = pd.DataFrame(rng.uniform(size=(600, 3)), columns=names)
truth = np.sin(4.0 * X["heat"]) + X["wind"]
y = truth.to_numpy() + 0.2 * rng.standard_normal(600)
train, new = X[:300], X[300:]
query = pd.DataFrame([[0.4, 0.5, 0.5]], columns=names)
outlier = int(((train[["heat", "wind"]] - [0.47, 0.57]) ** 2).sum(axis=1).argmin())
y[outlier] -= 2.5
model = NadarayaWatsonRegressor().fit(train, y[:300])
print(
    "bandwidths: " + "  ".join(f"{n} {h:.2g}" for n, h in zip(names, model.bandwidth_, strict=True))
)

# %%
# Which training rows determine the prediction: those of largest weight, their targets, and how far
# they are from the query in bandwidths.

explained = model.explain(query, top_k=8)
print(f"\nprediction {explained.predictions[0]:.2f}, from the 8 heaviest rows:")
print(explained.to_frame().drop(columns="query").round(2).to_string(index=False))

# %%
# What each row does: the prediction less the one without it, its bandwidth held. No refit is
# needed. The order differs from that of the weights: the outlier comes first by far.

weights = model.attention_weights(query)[0]
effects = leave_row_out_effect(model, query)[0]
by_effect = np.argsort(-np.abs(effects))[:5]
print(f"\nrows of largest effect (the outlier is row {outlier})")
print(f"{'row':>5}{'weight':>9}{'rank':>6}{'effect':>9}")
ranks = np.argsort(np.argsort(-weights)) + 1
for row in by_effect:
    print(f"{row:>5}{weights[row]:9.3f}{ranks[row]:6d}{effects[row]:9.3f}")
assert by_effect[0] == outlier

# %%
# Which features matter is asked of the whole model, at rows it has not seen: how much worse it
# predicts when a feature is shuffled. No weight of a row answers that.

importance = permutation_importance(model, new, y[300:], n_repeats=10, random_state=0)
print(
    "\npermutation importance (loss of R squared): "
    + "  ".join(
        f"{n} {value:.2f}" for n, value in zip(names, importance.importances_mean, strict=True)
    )
)

# %%
# Left, the prediction over one feature, the others as in the query: rows are drawn larger the more
# they weigh. Middle, the heaviest rows. Right, effects against weights: rows would lie on the grey
# line if effects were proportional to weights.

figure, axes = plt.subplots(1, 3, figsize=(13.5, 4.2), layout="constrained", width_ratios=[5, 4, 5])
profile = AttentionProfileDisplay.from_estimator(model, query, feature="heat", ax=axes[0])
AttentionDisplay.from_estimator(model, query, kind="bars", feature="heat", ax=axes[1])
axes[2].plot(
    weights, np.abs(effects), "o", color="tab:blue", mfc="none", ms=5, label="training rows"
)
axes[2].plot(weights[outlier], abs(effects[outlier]), "s", color="tab:red", label="the outlier")
slope = np.abs(effects).sum() / weights.sum()
axes[2].plot([0.0, weights.max()], [0.0, slope * weights.max()], color="0.7", lw=1, zorder=0)
axes[2].set(xlabel="attention weight", ylabel="size of the effect of leaving the row out")
axes[2].legend()

plt.show()

# %%
# Remember: weights explain *how* a prediction was computed. Ask ``leave_row_out_effect`` which rows
# it depends on, and permutation importance which features the model does.
