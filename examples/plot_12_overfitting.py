"""
Overfitting: remedies, and scores that are too good to be true
==============================================================

Learned attention overfits like anything that is learned: with 15 features of which two matter, and
60 rows, the leave-one-out error that is trained on falls with every step, while the error at new
rows rises. The penalty (``alpha``), a metric with fewer parameters and an average of several models
help. Early stopping, with so few rows to hold out, helps less. ``loo_score_`` shows none of this:
it is the score that training maximised.
"""

# %%
# Targets that depend on two of 15 features, with noise of 0.3, below which no error at new rows can
# be. What is learned is a linear metric, 225 numbers; a diagonal one has 15. ``alpha=1`` is the
# default.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skattn import ParametricAttentionRegressor
from skattn.inspection import LossCurveDisplay
from skattn.solvers import GaussNewton

warnings.simplefilter("ignore", ConvergenceWarning)  # training is cut short on purpose


def draw(seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (1060, 15))
    y = np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(1060)
    return X[:60], y[:60], X[60:], y[60:]


def learned(metric="linear", max_iter=100, **remedy):
    solver = GaussNewton(max_iter=max_iter)
    return ParametricAttentionRegressor(metric, solver=solver, random_state=0, **remedy)


def errors(model, y, new, targets):
    """Errors at the training rows, each left out, and at new rows."""
    pairs = (model.predict(None), y), (model.predict(new), targets)
    return [np.sqrt(np.mean((predicted - target) ** 2)) for predicted, target in pairs]


REMEDIES = {
    "no penalty": {"alpha": 0.0},
    "alpha=1": {"alpha": 1.0},
    "alpha=10": {"alpha": 10.0},
    "diagonal": {"metric": "diagonal", "alpha": 0.0},
    "early stopping": {"alpha": 0.0, "validation_fraction": 0.2},
    "3 models": {"alpha": 0.0, "n_estimators": 3, "max_iter": 50},
}
models, scores = {}, {}
print(f"{'error, mean of 3 draws':<24}{'left out':>10}{'new rows':>10}{'from - to':>14}")
for name, remedy in REMEDIES.items():
    found, scores[name] = [], []
    for seed in range(3):
        X, y, new, targets = draw(seed)
        model = models[name] = learned(**remedy).fit(X, y)
        found.append(errors(model, y, new, targets))
        scores[name].append((model.score(new, targets), model.loo_score_, model.holdout_score_))
    (left_out, at_new), each = np.mean(found, axis=0), np.array(found)[:, 1]
    span = f"{each.min():.2f} - {each.max():.2f}"
    print(f"{name:<24}{left_out:10.3f}{at_new:10.3f}{span:>14}")

# %%
# Along the steps of the last draw: the same fits, ended by ``max_iter`` (which a linear metric has
# twice: for the diagonal one it starts from, and for its entries).

STEPS = [1, 2, 5, 12, 30]
PATHS = {"no penalty": ("C0", "o"), "early stopping": ("C1", "s"), "alpha=1": ("C2", "^")}
paths = {}
print(f"\n{'new rows, max_iter':<24}" + "".join(f"{step:7d}" for step in STEPS))
for name in PATHS:
    fits = (learned(**REMEDIES[name], max_iter=step).fit(X, y) for step in STEPS)
    paths[name] = np.array([errors(model, y, new, targets) for model in fits])
    print(f"{name:<24}" + "".join(f"{error:7.2f}" for error in paths[name][:, 1]))

# %%
# R squared as the models report it, and at new rows. Each of several models is learned from 60 % of
# the rows, so that every row can be predicted by those that did not learn from it:
# ``holdout_score_``. A single model has it where there are more than 1000 rows.

print(f"\n{'R squared, 3 draws':<24}{'loo_score_':>12}{'holdout_score_':>16}{'new rows':>10}")
for name, each in scores.items():
    score, loo, holdout = np.mean(each, axis=0)
    print(f"{name:<24}{loo:12.2f}{holdout:16.2f}{score:10.2f}")

figure, (left, middle, right) = plt.subplots(1, 3, figsize=(13.5, 4.4), layout="constrained")
for name, (colour, marker) in PATHS.items():
    look = {"color": colour, "marker": marker}
    left.plot(STEPS, paths[name][:, 1], "-", **look, label=name)
    left.plot(STEPS, paths[name][:, 0], ":", **look, mfc="none")
left.set(xscale="log", xlabel="max_iter", ylabel="root mean squared error", ylim=(0.0, 1.25))
left.set_xticks(STEPS, STEPS)
left.minorticks_off()
left.set_title("lines: new rows, dotted: rows left out")
left.legend(fontsize="small", ncols=3, loc="upper center")

display = LossCurveDisplay.from_estimators({name: models[name] for name in PATHS}, ax=middle)
display.ax_.get_legend().set_loc("center right")
middle.set_title("what training sees")

looks = dict(zip(REMEDIES, ["C0o", "C2^", "C4D", "C5v", "C1s", "k*"], strict=True))
for name, each in scores.items():
    at_new, loo, holdout = zip(*each, strict=True)
    right.plot(at_new, loo, looks[name], ms=8, mfc="none", mew=1.5, label=name)
right.plot(at_new, holdout, "k*", ms=10, label="3 models, holdout_score_")
right.plot([0, 1], [0, 1], color="0.7", lw=1, zorder=0)
right.set(xlabel="R squared at new rows", ylabel="loo_score_ (filled: holdout_score_)", xlim=(0, 1))
right.set(ylim=(0, 1.03), title="on the grey line, a score is right")
right.legend(fontsize="small", loc="lower left")

plt.show()

# %%
# Remember: with few rows and many features, leave ``alpha`` at its default or raise it, learn a
# diagonal metric, or average several models. Choose between models by cross-validation or
# ``holdout_score_``, never by ``loo_score_``.
