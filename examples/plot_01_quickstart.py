"""
Quickstart: kernel regression on real data
==========================================

Nadaraya-Watson regression predicts a patient's disease progression as a weighted mean over all
other patients, with weights that fall off with distance. The bandwidth says how fast: by default,
one for each measurement, chosen by leave-one-out. Or it is tuned like any other hyper-parameter of
scikit-learn, in a pipeline. Learned attention fits a line around each patient and learns how
distances are measured. All are compared with k-nearest neighbours and ridge regression by the error
on patients held out.
"""

# %%
# The data: 442 patients, ten measurements, and how far their diabetes progressed in a year. Every
# model is tuned inside the cross-validation, so that no error below has seen its own patients.
# Learned attention needs PyTorch; without it, the others are compared.

import importlib.util
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score
from sklearn.neighbors import KNeighborsRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from skattn import NadarayaWatsonRegressor, ParametricAttentionRegressor

X, y = load_diabetes(return_X_y=True)
folds = KFold(5, shuffle=True, random_state=0)
scoring = "neg_root_mean_squared_error"

bandwidths = np.geomspace(0.3, 5.0, 15)
nadaraya_watson = GridSearchCV(
    make_pipeline(StandardScaler(), NadarayaWatsonRegressor()),
    {"nadarayawatsonregressor__bandwidth": bandwidths},
    scoring=scoring,
    cv=folds,
)
neighbors = GridSearchCV(
    make_pipeline(StandardScaler(), KNeighborsRegressor()),
    {"kneighborsregressor__n_neighbors": [5, 10, 15, 20, 30, 50]},
    scoring=scoring,
    cv=folds,
)
ridge = make_pipeline(StandardScaler(), RidgeCV(np.geomspace(1e-2, 1e3, 20)))

models = {
    "Nadaraya-Watson, leave-one-out": NadarayaWatsonRegressor(),
    "Nadaraya-Watson, grid search": nadaraya_watson,
    "learned attention": ParametricAttentionRegressor(),
    "k-nearest neighbours, k tuned": neighbors,
    "ridge regression, penalty tuned": ridge,
}
has_torch = importlib.util.find_spec("torch") is not None
if not has_torch:
    del models["learned attention"]
    print("PyTorch is not installed, so learned attention is not shown: pip install torch\n")

outer = KFold(5, shuffle=True, random_state=1)
errors = {
    name: -cross_val_score(model, X, y, scoring=scoring, cv=outer) for name, model in models.items()
}

print(f"{'model':<34} {'RMSE':>6}   std of 5 folds")
for name, error in errors.items():
    print(f"{name:<34} {error.mean():6.2f}   {error.std():.2f}")

# %%
# What the default chooses: a bandwidth for each measurement, in its own units. Infinity smooths a
# measurement out; the others matter the more the smaller theirs is beside their spread.

others = np.arange(len(y)) != 100
patient, X_others, y_others = X[[100]], X[others], y[others]
model = NadarayaWatsonRegressor().fit(X_others, y_others)
measurements = load_diabetes().feature_names
relative = model.bandwidth_ / X_others.std(axis=0)
print("\nbandwidths in standard deviations, chosen by leave-one-out:")
print("  ".join(f"{name} {h:.2g}" for name, h in zip(measurements, relative, strict=True)))

# %%
# What Nadaraya-Watson regression does for one patient it has not seen: the weights of all others
# are its explanation. The prediction *is* their weighted mean.

weights = model.attention_weights(patient)[0]
print(f"\npatient 100: predicted {model.predict(patient)[0]:.1f}, observed {y[100]:.0f}")
print(f"weights @ targets of the others: {weights @ y_others:.1f}")
print(f"effective number of neighbours: {1 / np.sum(weights**2):.0f} of {len(weights)}")

# %%
# Left, the error over one bandwidth for all: too small copies single patients, too large averages
# everyone. These are other folds than the table's: which of ridge and learned attention is ahead
# depends on them. Right, which training patients determine the prediction for patient 100.

nadaraya_watson.fit(X_others, y_others)
figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
scores = nadaraya_watson.cv_results_
mean, std = -scores["mean_test_score"], scores["std_test_score"] / np.sqrt(folds.n_splits)
left.fill_between(bandwidths, mean - std, mean + std, color="tab:blue", alpha=0.2, lw=0)
left.plot(bandwidths, mean, "o-", color="tab:blue", label="Nadaraya-Watson (± standard error)")
left.axhline(
    -neighbors.fit(X_others, y_others).best_score_,
    color="tab:orange",
    ls="--",
    label="k-NN, best k",
)
lines = {"ridge": (ridge, "black", ":")}
if has_torch:
    lines["learned attention"] = (ParametricAttentionRegressor(), "tab:green", "-.")
for name, (line, colour, style) in lines.items():
    error = -cross_val_score(line, X_others, y_others, scoring=scoring, cv=folds).mean()
    left.axhline(error, color=colour, ls=style, label=name)
left.set(xscale="log", xlabel="bandwidth (standard deviations)", ylabel="RMSE, 5-fold")
left.set_xticks([0.3, 0.5, 1, 2, 5], ["0.3", "0.5", "1", "2", "5"])
left.tick_params(axis="x", which="minor", labelbottom=False)
left.legend(loc="upper center", fontsize="small")

# body-mass index, and the logarithm of serum triglycerides
bmi, triglycerides = X_others[:, 2], X_others[:, 8]
size = 8 + 3e3 * weights
points = right.scatter(bmi, triglycerides, s=size, c=y_others, cmap="viridis", alpha=0.8)
right.scatter(*patient[0, [2, 8]], marker="x", s=120, color="red", lw=3, label="patient 100")
right.set(
    xlabel="body-mass index (scaled)",
    ylabel="log triglycerides (scaled)",
    title="size: attention weight",
)
right.legend(loc="lower right")
figure.colorbar(points, ax=right, label="disease progression")

picture = Path("skattn_quickstart.png").resolve()
figure.savefig(picture, dpi=120)
print(f"\npicture saved to {picture}")

# %%
# Remember: the defaults need neither scaling nor tuning, and the weights can be read. Learned
# attention, which fits lines, is more accurate here than weighted means. With ten features of
# mostly linear effect, ridge regression is hard to beat; attention shows *which patients* determine
# a prediction.
