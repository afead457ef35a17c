"""
Overfitting, its cures, and scores that flatter
===============================================

Learned attention overfits like anything that is learned: with 15 features of which two matter, and
60 rows, the leave-one-out error that is trained on falls with every step, while the error at new
rows rises. The penalty (``alpha``) and an average of several members help. Early stopping, with
so few rows to hold out, and dropout, which begins where training without it has ended, hardly do.
``loo_score_`` says nothing of all this: it is the score of what training saw.
"""

# %%
# Targets that depend on two of 15 features, with noise of 0.3, below which no error at new rows can
# be. What is learned is a projection, 225 numbers, for straight lines. ``alpha=1`` is the default.

import warnings

import matplotlib.pyplot as plt
import numpy as np
from sklearn.exceptions import ConvergenceWarning

from skattn import ParametricAttentionRegressor
from skattn.inspection import LossCurveDisplay

warnings.simplefilter("ignore", ConvergenceWarning)  # training is cut short on purpose


def draw(seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1.0, 1.0, (1060, 15))
    y = np.sin(3.0 * X[:, 0]) + X[:, 1] + 0.3 * rng.standard_normal(1060)
    return X[:60], y[:60], X[60:], y[60:]


def learned(**cure):
    common = {"rank_features": False, "curvature": False, "random_state": 0}
    return ParametricAttentionRegressor("projection", **common, **cure)


def errors(model, y, new, targets):
    """Of the training rows left out, and of new rows."""
    pairs = (model.predict(None), y), (model.predict(new), targets)
    return [np.sqrt(np.mean((predicted - target) ** 2)) for predicted, target in pairs]


CURES = {
    "no cure": {"alpha": 0.0},
    "alpha=1": {"alpha": 1.0},
    "alpha=10": {"alpha": 10.0},
    "early stopping": {"alpha": 0.0, "early_stopping": True, "validation_fraction": 0.2},
    "dropout": {"alpha": 0.0, "dropout": 0.5},
    "3 members": {"alpha": 0.0, "n_estimators": 3, "max_iter": 50},
}
models, scores = {}, {}
print(f"{'error, mean of 3 draws':<24}{'left out':>10}{'new rows':>10}{'from - to':>14}")
for name, cure in CURES.items():
    told, scores[name] = [], []
    for seed in range(3):
        X, y, new, targets = draw(seed)
        model = models[name] = learned(**cure).fit(X, y)
        told.append(errors(model, y, new, targets))
        scores[name].append((model.score(new, targets), model.loo_score_, model.honest_loo_score_))
    (left_out, at_new), each = np.mean(told, axis=0), np.array(told)[:, 1]
    span = f"{each.min():.2f} - {each.max():.2f}"
    print(f"{name:<24}{left_out:10.3f}{at_new:10.3f}{span:>14}")

# %%
# Along the steps of the last draw: the same fits, ended by ``max_iter`` (twice as many steps for a
# projection).

STEPS = [1, 2, 5, 12, 30]
PATHS = {"no cure": ("black", "o"), "early stopping": ("tab:orange", "s"), "alpha=1": ("C0", "^")}
paths = {}
print(f"\n{'new rows, max_iter':<24}" + "".join(f"{step:7d}" for step in STEPS))
for name in PATHS:
    fits = (learned(**CURES[name], max_iter=step).fit(X, y) for step in STEPS)
    paths[name] = np.array([errors(model, y, new, targets) for model in fits])
    print(f"{name:<24}" + "".join(f"{error:7.2f}" for error in paths[name][:, 1]))

# %%
# R squared as the models tell it, and at new rows. Members are learned from 60 % of the rows each,
# so that every row can be predicted by those that did not learn from it: ``honest_loo_score_``. A
# single model has it where more than 1000 rows leave some over.

print(f"\n{'R squared, 3 draws':<24}{'loo_score_':>12}{'honest':>10}{'new rows':>10}")
for name, each in scores.items():
    score, loo, _ = np.mean(np.array(each, dtype=float), axis=0)
    honest = "--" if each[0][2] is None else f"{np.mean([told[2] for told in each]):.2f}"
    print(f"{name:<24}{loo:12.2f}{honest:>10}{score:10.2f}")

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

markers = dict(zip(CURES, "osD^xP", strict=True))
for name, each in scores.items():
    at_new, loo, honest = zip(*each, strict=True)
    right.plot(at_new, loo, markers[name], ms=8, mfc="none", mew=1.5, label=name)
right.plot(at_new, honest, "P", color="black", ms=8, label="3 members, honest")
right.plot([0, 1], [0, 1], color="0.7", lw=1, zorder=0)
right.set(xlabel="R squared at new rows", ylabel="loo_score_ (filled: honest)", xlim=(0, 1))
right.set(ylim=(0, 1.03), title="on the grey line, a score is honest")
right.legend(fontsize="small", loc="lower left")

plt.show()

# %%
# Remember: with few rows and many features, leave ``alpha`` at its default or raise it, or average
# members. Choose between models by cross-validation or ``honest_loo_score_``, never by
# ``loo_score_``.
