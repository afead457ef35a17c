"""
Many rows: time, memory, and what to do about time
==================================================

Predictions look at every training row: their time grows with the rows, their memory does not.
Selecting bandwidths stops growing so fast at ``max_queries`` rows, and threads (``n_jobs``) share
the work without changing a digit. k-nearest neighbours and boosted trees take less time where rows
are many. Whether they are as accurate depends on the target: on a smooth one of five features they
are not, on one with steps boosting is the better by far, and with one feature k-NN comes close.
"""

# %%
# Five features, of which three matter, smoothly: new rows to predict, without noise.

import time
import tracemalloc

import matplotlib.pyplot as plt
import numpy as np
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.model_selection import GridSearchCV
from sklearn.neighbors import KNeighborsRegressor

from skattn import NadarayaWatsonRegressor, ParametricAttentionRegressor

TARGETS = {
    "smooth": lambda X: np.sin(4.0 * X[:, 0]) + X[:, 1] * X[:, 2],
    "steps": lambda X: (X > 0.0) @ np.array([1.0, 0.8, 0.6, 0.4, 0.2]) + (X[:, 0] > 0.5),
    "one feature": lambda X: np.sin(4.0 * X[:, 0]),
}


def draw(n, kind, seed=0):
    X = np.random.default_rng(seed).uniform(-1.0, 1.0, (n, 1 if kind == "one feature" else 5))
    noise = 0.3 * np.random.default_rng(seed + 1).standard_normal(n)
    return X, TARGETS[kind](X) + noise


def clock(function, *arguments):
    start = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - start, result


def measured(model, n, kind="smooth"):
    """Seconds of fit, seconds of 5000 predictions (the best of three), and their error."""
    new = draw(5000, kind, 10)[0]
    fit, _ = clock(model.fit, *draw(n, kind))
    predict = min(clock(model.predict, new)[0] for _ in range(3))
    predicted = model.predict(new)
    return fit, predict, np.sqrt(np.mean((predicted - TARGETS[kind](new)) ** 2))


SIZES = [300, 1000, 3000]
MODELS = {
    "Nadaraya-Watson": NadarayaWatsonRegressor(),
    "learned attention": ParametricAttentionRegressor(),
    "k-NN, k tuned": GridSearchCV(KNeighborsRegressor(), {"n_neighbors": [5, 10, 20, 50, 100]}),
    "boosted trees": HistGradientBoostingRegressor(random_state=0),
}
ParametricAttentionRegressor("scalar").fit(*draw(50, "one feature"))  # loads PyTorch
results = {name: np.array([measured(model, n) for n in SIZES]) for name, model in MODELS.items()}
for column, what in enumerate(("seconds of fit", "seconds of predict", "error")):
    print(f"{what:<20}" + "".join(f"{n:>9}" for n in SIZES) + "   rows")
    for name, numbers in results.items():
        print(f"  {name:<18}" + "".join(f"{value:9.3f}" for value in numbers[:, column]))

# %%
# The criterion is a mean over rows that are left out. Of 5000 rows, some are enough for it, and
# prediction uses all of them in any case. Two threads take blocks of queries in turn.

print("\nmax_queries   seconds of fit    error")
for most in (250, 1000, 4000):
    fit, _, error = measured(NadarayaWatsonRegressor(max_queries=most), 5000)
    print(f"{most:11d}{fit:17.2f}{error:9.3f}")

model = MODELS["Nadaraya-Watson"]
many = draw(20_000, "smooth", 20)[0]
one, predicted = clock(model.predict, many)
two, same = clock(model.set_params(n_jobs=2).predict, many)
assert np.array_equal(predicted, same)
print(f"\n20 000 predictions from 3000 rows: {one:.2f} s with one thread, {two:.2f} s with two")

# %%
# Memory: blocks of weights are computed and forgotten. All weights at once are what does not fit;
# the five largest of each query do.

for label, function in {
    "predictions": lambda: model.predict(many),
    "their five largest weights": lambda: model.attention_weights(many, top_k=5),
}.items():
    tracemalloc.start()
    function()
    print(f"{label:<28}{tracemalloc.get_traced_memory()[1] / 2**20:8.0f} MiB")
    tracemalloc.stop()
print(f"{'all weights would take':<28}{8.0 * len(many) * 3000 / 2**20:8.0f} MiB")

# %%
# Where others win: the same models on other targets.

OTHERS = ("steps", "one feature")
print(f"\n1000 rows: error and seconds{'steps':>12}{'one feature':>22}")
for name, model in MODELS.items():
    cells = []
    for kind in OTHERS:
        fit, predict, error = measured(model, 1000, kind)
        cells.append(f"{error:8.3f}  {fit + predict:6.2f} s")
    print(f"{name:<24}" + "".join(f"{cell:>22}" for cell in cells))

# %%
# Times and errors over the number of rows. The grey line grows as the rows do.

STYLES = {
    "Nadaraya-Watson": ("tab:blue", "o-"),
    "learned attention": ("tab:green", "^-."),
    "k-NN, k tuned": ("tab:orange", "s--"),
    "boosted trees": ("black", "x:"),
}
figure, axes = plt.subplots(1, 3, figsize=(12.5, 4.2), layout="constrained")
for column, (ax, label) in enumerate(
    zip(axes, ("seconds of fit", "seconds of 5000 predictions", "error at new rows"), strict=True)
):
    for name, (colour, style) in STYLES.items():
        ax.plot(SIZES, results[name][:, column], style, color=colour, mfc="none", label=name)
    ax.set(xscale="log", yscale="log" if column < 2 else "linear")
    ax.set(xlabel="training rows", ylabel=label)
    ax.set_xticks(SIZES, [str(n) for n in SIZES])
    ax.minorticks_off()
axes[1].plot([300, 3000], [3e-3, 30e-3], color="0.7", lw=4, zorder=0, label="in proportion")
axes[1].legend(fontsize="small")
axes[2].set_ylim(0.0, None)

plt.show()

# %%
# Remember: ten thousand rows are no problem, and memory is none at any number. Beyond, lower
# ``max_queries``, set ``n_jobs`` where cores are idle, and compare with boosted trees: what they
# lose or gain depends on the target. :doc:`/guide/large_data` goes on.
