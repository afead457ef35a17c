"""
Pipelines, searches and cross-validation
========================================

The estimators are scikit-learn estimators: categories are encoded in a ``ColumnTransformer``, the
bandwidth is searched by ``GridSearchCV``, weights and groups reach ``fit`` through the pipeline. A
search of one bandwidth finds about what leave-one-out finds in a fraction of the time. A bandwidth
for each column, which no grid could search, is better. Where rows come in groups, scores that leave
out single rows are too good, and ``fit`` mostly chooses better when it knows the groups.
"""

# %%
# Rents of 300 flats in 120 buildings, made up: they rise with the square root of the floor space,
# differ by district, and each building shifts the rents of all its flats by about 60.

import importlib.util
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import sklearn
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.model_selection import GridSearchCV, GroupKFold, KFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from skattn import NadarayaWatsonRegressor, ParametricAttentionRegressor

rng = np.random.default_rng(0)
building = np.sort(rng.integers(120, size=300))
X = pd.DataFrame(
    {
        "space": rng.uniform(25.0, 120.0, 120)[building] + rng.normal(0.0, 2.0, 300),
        "distance": rng.gamma(2.0, 2.0, 120)[building],
        "district": rng.choice(["harbour", "hill", "old town"], 120)[building],
        "letter": rng.choice(list("ABCD"), 300),  # of the flat's door: does not matter
    }
)
level = X["district"].map({"harbour": 0.0, "hill": 150.0, "old town": 300.0})
y = 300.0 + 90.0 * np.sqrt(X["space"]) + level - 25.0 * X["distance"]
y += rng.normal(0.0, 60.0, 120)[building] + rng.normal(0.0, 40.0, 300)


def pipeline(model):
    """The model after one column for each category, all standardised."""
    encoder = OneHotEncoder(sparse_output=False)
    columns = make_column_transformer((encoder, ["district", "letter"]), remainder="passthrough")
    return make_pipeline(columns, StandardScaler(), model)


# %%
# One bandwidth for all columns: the error of four folds over a grid, whole buildings left out
# together, and the leave-one-out error, which ``criterion_curve`` gives without any fit.

scoring, folds = "neg_root_mean_squared_error", GroupKFold(4)
bandwidths = np.geomspace(0.1, 3.0, 13)
grid = {"nadarayawatsonregressor__bandwidth": bandwidths}
start = time.perf_counter()
search = GridSearchCV(pipeline(NadarayaWatsonRegressor()), grid, scoring=scoring, cv=folds)
search.fit(X, y, groups=building)
print(f"grid search: bandwidth {search.best_params_[next(iter(grid))]:.2f}, ", end="")
print(f"error {-search.best_score_:.1f}, {time.perf_counter() - start:.2f} s")

columns = pipeline(NadarayaWatsonRegressor())[:-1].fit_transform(X)
each = np.repeat(bandwidths[:, None], columns.shape[1], axis=1)
start = time.perf_counter()
curves = {}
for name, groups in {"rows": None, "buildings": building}.items():
    model = NadarayaWatsonRegressor(1.0).fit(columns, y, groups=groups)
    curves[name] = np.sqrt(model.criterion_curve(each))
    print(f"leaving {name} out: bandwidth {bandwidths[curves[name].argmin()]:.2f}")
print(f"both curves: {time.perf_counter() - start:.2f} s")

# %%
# The models in folds of rows, whose scores are too good, and in folds of buildings. With metadata
# routing, ``cross_val_score`` hands the groups on to ``fit`` too, where leave-one-out then leaves out
# whole buildings.

MODELS = {
    "one bandwidth": NadarayaWatsonRegressor(anisotropic=False),
    "one for each column": NadarayaWatsonRegressor(),
    "learned attention": ParametricAttentionRegressor("diagonal"),
}
errors = {}
print(f"\n{'error':<22}{'folds of rows':>14}{'of buildings':>14}{'groups in fit':>15}")
for name, model in MODELS.items():
    plain = pipeline(model)
    folds_of_rows = KFold(4, shuffle=True, random_state=0)
    scores = [cross_val_score(plain, X, y, scoring=scoring, cv=folds_of_rows)]
    scores += [cross_val_score(plain, X, y, scoring=scoring, cv=folds, groups=building)]
    with sklearn.config_context(enable_metadata_routing=True):
        asks = pipeline(clone(model).set_fit_request(groups=True))
        params = {"groups": building}
        scores += [cross_val_score(asks, X, y, scoring=scoring, cv=folds, params=params)]
    errors[name] = [-score.mean() for score in scores]
    print(f"{name:<22}" + "{:14.1f}{:14.1f}{:15.1f}".format(*errors[name]))

# %%
# A sample weight of three is a row three times, for the scaler too.

lets = rng.integers(1, 4, size=300)
weights = {"standardscaler": lets, "nadarayawatsonregressor": lets}
weighted, copied = (pipeline(NadarayaWatsonRegressor(bandwidth=0.5)) for _ in range(2))
weighted.fit(X, y, **{f"{step}__sample_weight": each for step, each in weights.items()})
copies = np.repeat(np.arange(300), lets)
copied.fit(X.iloc[copies], y.iloc[copies])
print(f"\nweights or copies: {np.abs(weighted.predict(X) - copied.predict(X)).max():.0e} apart")

# %%
# scikit-learn 1.9 and later call callbacks after every step of training. Here, R squared at the
# training rows, which attend to themselves.

if importlib.util.find_spec("sklearn.callback") is None:
    print("\nscikit-learn has no callbacks before 1.9")
else:
    from sklearn.callback import ScoringMonitor

    monitor = ScoringMonitor(scoring="r2")
    pipeline(ParametricAttentionRegressor("diagonal").set_callbacks(monitor)).fit(X, y)
    log = [step["r2"] for step in monitor.get_logs().data]
    print(f"\nR squared after each of {len(log)} steps: {np.round(log, 3).tolist()}")

# %%
# Left, the search: with buildings left out, leave-one-out and folds nearly agree. Right, the table:
# every model looks better in folds of rows than it is for a new building.

figure, (left, right) = plt.subplots(1, 2, figsize=(10.5, 4.2), layout="constrained")
found = search.cv_results_["mean_test_score"]
left.plot(bandwidths, -found, "o-", color="black", ms=4, label="4 folds of buildings")
looks = {"buildings": ("tab:blue", "--", "s"), "rows": ("tab:orange", ":", "^")}
for name, (colour, style, marker) in looks.items():
    curve = curves[name]
    left.plot(bandwidths, curve, style, color=colour, lw=2, label=f"leaving {name} out")
    least = curve.argmin()
    left.plot(bandwidths[least], curve[least], marker, color=colour, ms=9)
left.set(xscale="log", xlabel="bandwidth (standard deviations)", ylabel="root mean squared error")
left.set_xticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
left.minorticks_off()
left.set_title("one bandwidth; marked: the least")
left.legend(fontsize="small")

places = np.arange(len(MODELS))
kinds = (("folds of rows", "0.85", ""), ("of buildings", "white", "//"))
for column, (label, colour, hatch) in enumerate((*kinds, ("groups in fit too", "0.4", ""))):
    values = [errors[name][column] for name in MODELS]
    look = {"color": colour, "hatch": hatch, "edgecolor": "black", "label": label}
    right.barh(places + 0.27 * (column - 1), values, 0.27, **look)
right.set_yticks(places, MODELS)
right.invert_yaxis()
right.set(xlabel="root mean squared error, 4 folds", xlim=(0, 180))
right.legend(fontsize="small", loc="lower right")

plt.show()

# %%
# Remember: search nothing that leave-one-out selects inside ``fit``; search what it does not, such
# as the kernel. Split by groups wherever rows come in groups, and hand the groups to ``fit`` too.
