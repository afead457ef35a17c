"""
Variants: where one metric is not enough
========================================

One metric holds everywhere and trusts every row. Where different features matter in the two halves
of the data, the two components of a ``Mixture`` learn a metric each, and gates say which of them
predicts where: errors fall by two fifths. Where the scale of the target changes, ``QueryScale``
finds it, and where targets are corrupted, ``SampleReweighting`` marks rows. These two gain less, up
to 29 % on a single draw. On data with nothing of that kind nothing is gained, and the wrong variant
costs accuracy.
"""

# %%
# Four tasks. In *regimes* the second feature matters on the left of the first one, and the third on
# the right. In *scales* a sine becomes eight times as fast. In *corrupted*, one target in ten has
# twenty times the noise of the others. *Plain* has none of this.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skattn import ParametricAttentionRegressor
from skattn.datasets import make_regime_change
from skattn.variants import FixedShare, Mixture, QueryScale, SampleReweighting

warnings.simplefilter("ignore", ConvergenceWarning)  # of QueryScale where it has nothing to find


def draw(task, seed):
    """Training rows and targets, and 1000 new rows with targets without noise."""
    if task == "scales":
        new, _, truth = make_regime_change(1000, random_state=100 + seed, return_truth=True)
        return *make_regime_change(200, noise=0.3, random_state=seed), new, truth
    rng = np.random.default_rng(seed)
    n, d = {"regimes": (300, 3), "corrupted": (200, 1), "plain": (200, 2)}[task]
    X = rng.uniform(-1.0, 1.0, (n + 1000, d))
    noise = np.full(n, 0.1 if task == "corrupted" else 0.2)
    if task == "regimes":
        truth = np.sin(5.0 * np.where(X[:, 0] < 0.0, X[:, 1], X[:, 2]))
    else:
        truth = np.sin(4.0 * X[:, 0]) + (X[:, 1] if task == "plain" else 0.0)
    if task == "corrupted":
        noise[: n // 10] = 2.0
    return X[:n], truth[:n] + noise * rng.standard_normal(n), X[n:], truth[n:]


VARIANTS = {
    "one metric": None,
    "fixed share": FixedShare(),
    "mixture of two": Mixture(2),
    "row factors": SampleReweighting(),
    "query scale": QueryScale(),
}


def learned(variant=None):
    """Weighted means, whose metric has a factor for each feature."""
    return ParametricAttentionRegressor(
        "diagonal", degree=0, kernel="gaussian", variant=variant, random_state=0
    )


errors, models = {}, {}
print(f"{'root mean squared error':<24}" + "".join(f"{name:>16}" for name in VARIANTS))
for task in ("regimes", "scales", "corrupted", "plain"):
    for seed in range(2):
        X, y, new, truth = draw(task, seed)
        for name, variant in VARIANTS.items():
            model = learned(variant).fit(X, y)
            models[task, name, seed] = model
            error = np.sqrt(np.mean((model.predict(new) - truth) ** 2))
            errors.setdefault((task, name), []).append(error)
    means = [np.mean(errors[task, name]) for name in VARIANTS]
    print(f"{task + ', 2 draws':<24}" + "".join(f"{mean:16.3f}" for mean in means))
    ratios = [np.divide(errors[task, name], errors[task, "one metric"]) for name in VARIANTS]
    ranges = "".join(f"{f'{min(each):.2f}-{max(each):.2f}':>16}" for each in ratios)
    print(f"{'  over one metric':<24}{ranges}")

# %%
# The components of the mixture can be read: one has its large factor at the second feature and
# predicts on the left, the other at the third, on the right. Mixed by the gates, their weights are
# the attention weights.

places = draw("regimes", 0)[2][:300]
two = models["regimes", "mixture of two", 0]
components = two.attention_by_component(places)
mixed = np.einsum("qh,hqk->qk", components.gates, components.weights)
assert np.abs(mixed - two.attention_weights(places)).max() < 1e-12
factors = [np.linalg.norm(projection, axis=1) for projection in two.members_[0].projections]
is_left = places[:, 0] < 0.0
print("\nfactors of the three features on regimes, and mean shares")
for h, (w, gate) in enumerate(zip(factors, components.gates.T, strict=True)):
    means = f"   left {gate[is_left].mean():.2f}, right {gate[~is_left].mean():.2f}"
    print(f"component {h}" + "".join(f"{value:6.1f}" for value in w) + means)

# %%
# On *corrupted*, rows that the others contradict get a smaller factor. It is no clean cut, and no
# cure: a model that never saw the corrupted rows is far better.

X, y, new, truth = draw("corrupted", 0)
row_factors = models["corrupted", "row factors", 0].members_[0].sample_factors
is_bad = np.arange(len(y)) < len(y) // 10
lowest = np.argsort(row_factors)[: is_bad.sum()]
print(f"\nof the {is_bad.sum()} rows of lowest factor, {is_bad[lowest].sum()} are corrupted")
without = learned().fit(X[~is_bad], y[~is_bad])
cleaned = np.sqrt(np.mean((without.predict(new) - truth) ** 2))
first, marked = (errors["corrupted", name][0] for name in ("one metric", "row factors"))
print(f"error: one metric {first:.3f}, row factors {marked:.3f}, without those rows {cleaned:.3f}")

# %%
# Above, the mixture: the factors of its components, and which of them predicts where. Below, the
# factors of training rows against how far off their targets are, and what the metric is multiplied
# with over the two scales.

figure, axes = plt.subplots(2, 2, figsize=(10.5, 7.4), layout="constrained")
(bars, gates), (marks, scales) = axes
looks = {0: ("black", "0.6", "", "o"), 1: ("tab:blue", "white", "//", "x")}
for h, (colour, face, hatch, marker) in looks.items():
    at = np.arange(3) + 0.38 * h - 0.19
    look = {"color": face, "edgecolor": colour, "hatch": hatch}
    bars.bar(at, factors[h], 0.38, **look, label=f"component {h}")
    line = {"color": colour, "mfc": "none", "ms": 4, "label": f"component {h}"}
    gates.plot(places[:, 0], components.gates[:, h], marker, **line)
labels = ["first\n(the place)", "second\n(matters left)", "third\n(matters right)"]
bars.set_xticks(range(3), labels)
bars.set(ylabel="factor w", title="regimes: a metric for each component")
gates.set(xlabel="first feature", ylabel="share of the prediction", title="regimes: the gates")

off = np.abs(y - np.sin(4.0 * X[:, 0]))
marks.plot(
    off[~is_bad], row_factors[~is_bad], "o", color="0.5", ms=4, mfc="none", label="good rows"
)
marks.plot(off[is_bad], row_factors[is_bad], "s", color="tab:red", ms=5, label="corrupted rows")
marks.set(xlabel="target's distance to the truth", ylabel="factor of the row")
marks.set(title="corrupted: SampleReweighting")

grid = np.linspace(0.0, 1.0, 300)[:, None]
for seed, style in enumerate(("-", "--")):
    found = models["scales", "query scale", seed].query_factors(grid)
    scales.plot(grid, found, style, color="black", lw=2, label=f"factor, draw {seed}")
scales.plot(grid, 1.0 + 0.4 * np.sin(np.where(grid < 0.5, 2, 16) * np.pi * grid), "0.7", zorder=0)
scales.plot([], [], "0.7", label="the truth, not to scale")
scales.set(xlabel="x", ylabel="factor of the metric", title="scales: QueryScale")
for ax in (bars, gates, marks, scales):
    ax.legend(fontsize="small")

plt.show()

# %%
# Remember: mixtures are for features that matter in some places only. Learn one metric first, add
# a variant for a reason, and keep it if cross-validation says so: each of them was worse than one
# metric on some task here.
