"""Accuracy on real data against its peers: one protocol, every method the same rows.

    python tests/benchmarks/compare_accuracy.py --data FOLDER [--methods nw attention hgb ...]
        [--stored baselines.csv ...] [--csv scores.csv]

FOLDER holds a table NAME.csv.gz for every set, targets last, and meta.json, which says for each how
many rows it has ("n"), which columns are "targets" and which are "categorical".

The protocol. Split s of a set with n rows permutes them by ``default_rng(1000 + s)``: the first
fifth, 3000 rows at most, is the test, the others are for training, 2000 rows at most. Three splits,
one of sets with more than 1600 rows. All methods get the same design matrix: numbers are imputed by
the median, with a flag where some are missing, and standardised, on the training rows; categories
that these hold five times at least become indicators (one for two), ordered ones numbers. The score
is nRMSE: the root mean squared error over the standard deviation of the target on the whole set, as
a mean over targets. Means, ranks and ratios are those of sets, each the mean of its splits.

Choices are made on other splits (--seed-offset 5000) than those reported. --stored adds scores from
files that this program wrote, or that have their columns, for methods that are not run. CatBoost
and xRFM are compared where they are installed: pip install catboost xrfm.

gp_ard is scikit-learn's Gaussian process with a length scale for each feature and noise; at most
1000 rows, drawn at random, find its hyper-parameters, all are conditioned on. k-NN, SVR, kernel
ridge and ridge are tuned by cross-validation, the others run at their defaults, the forest with 300
trees. Methods for one target are fitted to each.
"""

import argparse
import importlib.util
import json
import platform
import time
import warnings
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import sklearn
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import HistGradientBoostingRegressor, RandomForestRegressor
from sklearn.exceptions import ConvergenceWarning
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.multioutput import MultiOutputRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVR
from threadpoolctl import threadpool_limits

import skattn
from skattn.variants import Encoder

OFFICIAL = 1000
SUITE = [
    *("mcycle", "cps71", "ethanol", "diabetes", "yacht", "autompg", "servo", "hitters", "wage1"),
    *("meats", "concrete", "airfoil", "kin8nm", "california", "pol", "diamonds"),
]
# Sets of more rows are LARGE: one split instead of three.
MANY_ROWS = 1600
MOST_TRAINING, MOST_TEST, GP_ROWS = 2000, 3000, 1000
FEWEST_OF_A_LEVEL = 5
# Levels of ordered factors, which meta.json does not order.
ORDERED = {
    "diamonds": {
        "cut": ["Fair", "Good", "Very Good", "Premium", "Ideal"],
        "color": list("DEFGHIJ"),
        "clarity": ["I1", "SI2", "SI1", "VS2", "VS1", "VVS2", "VVS1", "IF"],
    }
}

# Data


class Data:
    """A set: its table, targets and the kinds of its columns."""

    def __init__(self, folder, name):
        meta = json.loads((folder / "meta.json").read_text())[name]
        table = pd.read_csv(folder / f"{name}.csv.gz")
        self.name, ordered = name, ORDERED.get(name, {})
        self.categorical = set(meta["categorical"]) - set(ordered)
        self.y = table[meta["targets"]].to_numpy(float)
        self.X = table.drop(columns=meta["targets"])
        for column, levels in ordered.items():
            self.X[column] = pd.Categorical(self.X[column], levels, ordered=True).codes

    def split(self, seed):
        """Training rows and targets, test rows and targets."""
        order = np.random.default_rng(seed).permutation(len(self.y))
        n_test = round(0.2 * len(self.y))
        test, training = order[:n_test][:MOST_TEST], order[n_test:][:MOST_TRAINING]
        design = self.design(training)
        return design[training], self.y[training], design[test], self.y[test]

    def design(self, training):
        """Columns of all rows: numbers first, then indicators of categories."""
        measured, indicated = [], []
        for name, column in self.X.items():
            if name in self.categorical:
                indicated += indicators(column.fillna("missing").astype(str), training)
            else:
                measured += numbers(column.to_numpy(float), training)
        return np.column_stack(measured + indicated)


def indicators(column, training):
    counts = column.iloc[training].value_counts()
    levels = sorted(counts.index[counts >= FEWEST_OF_A_LEVEL])
    if len(levels) == 2:
        levels = levels[:1]
    return [(column == level).to_numpy(float) for level in levels]


def numbers(column, training):
    missing = np.isnan(column)
    column = np.where(missing, np.nanmedian(column[training]), column)
    spread = column[training].std()
    columns = [(column - column[training].mean()) / spread] if spread > 0.0 else []
    return [*columns, missing.astype(float)] if missing[training].any() else columns


# Methods: from the seed of a split to an estimator.


def tuned(estimator, grid):
    def make(seed):
        folds = KFold(3, shuffle=True, random_state=seed)
        return GridSearchCV(estimator, grid, scoring="neg_mean_squared_error", cv=folds)

    return make


def scaled(make):
    """Of targets in standard units."""
    return lambda seed: TransformedTargetRegressor(make(seed), transformer=StandardScaler())


def each_target(make):
    """Of one target, fitted to each."""
    return lambda seed: MultiOutputRegressor(make(seed))


class GaussianProcess(RegressorMixin, BaseEstimator):
    def __init__(self, random_state=0):
        self.random_state = random_state

    def fit(self, X, y):
        rng = np.random.default_rng(self.random_state)
        rows = rng.permutation(len(X))[:GP_ROWS]
        scales = RBF(np.full(X.shape[1], np.sqrt(X.shape[1])), (1e-2, 1e4))
        kernel = ConstantKernel(1.0, (1e-3, 1e4)) * scales + WhiteKernel(0.1, (1e-6, 1e1))
        with warnings.catch_warnings():  # length scales at their bounds
            warnings.simplefilter("ignore", ConvergenceWarning)
            learned = GaussianProcessRegressor(kernel, normalize_y=True).fit(X[rows], y[rows])
        self.model_ = GaussianProcessRegressor(learned.kernel_, optimizer=None, normalize_y=True)
        self.model_.fit(X, y)
        return self

    def predict(self, X):
        return self.model_.predict(X)


def catboost(seed):
    from catboost import CatBoostRegressor

    options = {"verbose": 0, "thread_count": 1, "allow_writing_files": False}
    return CatBoostRegressor(random_seed=seed, **options)


class XRFM(RegressorMixin, BaseEstimator):
    """xRFM, whose fit wants rows to validate by: a fifth, drawn at random."""

    def __init__(self, random_state=0):
        self.random_state = random_state

    def fit(self, X, y):
        from xrfm import xRFM

        rows = np.random.default_rng(self.random_state).permutation(len(X))
        held, used = rows[: len(X) // 5], rows[len(X) // 5 :]
        X, y = X.astype(np.float32), y.reshape(-1, 1).astype(np.float32)
        self.model_ = xRFM(device="cpu", tuning_metric="mse")
        self.model_.fit(X[used], y[used], X[held], y[held])
        return self

    def predict(self, X):
        return self.model_.predict(X.astype(np.float32)).ravel()


def learned_attention(**options):
    return lambda seed: skattn.ParametricAttentionRegressor(random_state=seed, **options)


PEERS = {
    "ridge": scaled(lambda seed: RidgeCV(np.logspace(-4, 4, 25))),
    "knn": tuned(
        KNeighborsRegressor(weights="distance"),
        {"n_neighbors": [1, 2, 3, 5, 7, 10, 15, 22, 32], "p": [1, 2]},
    ),
    "rf": lambda seed: RandomForestRegressor(300, random_state=seed),
    "hgb": each_target(lambda seed: HistGradientBoostingRegressor(random_state=seed)),
    "svr": each_target(
        scaled(
            tuned(
                SVR(), {"C": [1.0, 10.0, 100.0], "gamma": [0.01, 0.1, 1.0], "epsilon": [0.01, 0.1]}
            )
        ),
    ),
    "krr": scaled(
        tuned(
            KernelRidge(kernel="rbf"),
            {"alpha": [1e-4, 1e-3, 1e-2, 0.1, 1.0], "gamma": np.logspace(-3, 0, 7)},
        )
    ),
    "gp_ard": each_target(GaussianProcess),
    "cat": each_target(catboost),
    "xrfm": each_target(scaled(XRFM)),
}
OURS = {
    "nw": lambda seed: skattn.NadarayaWatsonRegressor(),
    "nw_degree1": lambda seed: skattn.NadarayaWatsonRegressor(degree=1),
}
LEARNED = {
    "attention": learned_attention(),
    "attention_mean_of_8": learned_attention(n_estimators=8),
<<<<<<< HEAD
    "attention_encoder": learned_attention(variant=Encoder(64, dropout=0.5)),
    "attention_straight": learned_attention(curvature=False),
    "attention_degree0": learned_attention(degree=0),
    "attention_linear": learned_attention(metric="linear", curvature=True),
    "attention_diagonal": learned_attention(metric="diagonal", curvature=True),
=======
    "attention_encoder": learned_attention(variant=Encoder((64,), dropout=0.5)),
    "attention_straight": learned_attention(curvature=False),
    "attention_degree0": learned_attention(degree=0),
    "attention_diagonal": learned_attention(metric="diagonal"),
    "attention_linear": learned_attention(metric="linear"),
>>>>>>> refs/heads/docs
}
METHODS = PEERS | OURS | LEARNED


def available(methods):
    """Those that can run here; says why others cannot."""
    absent = {
        name: f"{package} is not installed"
        for name, package in {"cat": "catboost", "xrfm": "xrfm"}.items()
        if importlib.util.find_spec(package) is None
    }
    if set(methods) & set(LEARNED):
        try:
            import torch  # noqa: F401 - before threads are limited
        except ImportError:
            absent |= dict.fromkeys(LEARNED, "torch is not installed")
    for name in methods:
        if name in absent:
            print(f"{name} is left out: {absent[name]}.")
    return [name for name in methods if name not in absent]


# Scores


def run(data, split, offset, methods):
    """A row of scores for each method on one split."""
    X, y, queries, truth = data.split(offset + split)
    y, rows = (y if y.shape[1] > 1 else y.ravel()), []
    with threadpool_limits(1):
        for name in methods:
            model = METHODS[name](split)
            if isinstance(model, MultiOutputRegressor) and y.ndim == 1:
                model = model.estimator
            start = time.process_time()
            model.fit(X, y)
            fitted = time.process_time()
            errors = model.predict(queries).reshape(truth.shape) - truth
            done = time.process_time()
            nrmse = (np.sqrt((errors**2).mean(axis=0)) / data.y.std(axis=0)).mean()
            row = {"dataset": data.name, "split": split, "method": name}
            row |= {"n": len(X), "d": X.shape[1], "nrmse": nrmse}
            rows.append(row | {"fit_cpu": fitted - start, "predict_cpu": done - fitted})
    return rows


def run_all(arguments, methods):
    cases = []
    for name in arguments.sets:
        data = Data(arguments.data, name)
        usual = 3 if len(data.y) <= MANY_ROWS else 1
        splits = range(arguments.splits or usual)
        cases += [(data, split, arguments.seed_offset, methods) for split in splits]
    parallel = joblib.Parallel(arguments.jobs, return_as="generator")
    scores = []
    for rows in parallel(joblib.delayed(run)(*case) for case in cases):
        scores += rows
        if arguments.csv:
            pd.DataFrame(scores).to_csv(arguments.csv, index=False)
    return pd.DataFrame(scores)


def with_stored(scores, files):
    """Scores, and those of other methods in files on the same splits of the same sets."""
    cases = scores[["dataset", "split"]].drop_duplicates()
    for file in files:
        stored = pd.read_csv(file)
        stored = stored[~stored["method"].isin(scores["method"]) & stored["nrmse"].notna()]
        scores = pd.concat([scores, stored.merge(cases)], ignore_index=True)
    counts = scores.groupby("method")["nrmse"].count()
    partial = sorted(counts.index[counts < len(cases)])
    if partial:
        print(f"left out, scores for some splits only: {', '.join(partial)}")
    return scores[~scores["method"].isin(partial)]


# Tables


def show_sets(table):
    print(f"\nnRMSE, mean of the splits\n{table.to_string(float_format='{:.3f}'.format)}")


def show_summary(scores, table):
    seconds = scores.groupby("method")["fit_cpu"]
    summary = pd.DataFrame(
        {
            "mean": table.mean(),
            "geo-mean": np.exp(np.log(table).mean()),
            "rank": table.rank(axis=1).mean(),
            "worst / best": table.div(table.min(axis=1), axis=0).max(),
            "fit s": seconds.mean(),
            "max": seconds.max(),
        }
    ).sort_values("geo-mean")
    print(f"\n{len(table)} sets; CPU seconds of a fit on one thread")
    print(summary.to_string(float_format="{:.3f}".format))


def show_pairs(table, ours):
    """How each of ours compares with all others, over the sets."""
    print("\nSets better-worse; mean log-ratio of nRMSE and its standard error, negative: better")
    for name in ours:
        print(name)
        for peer in table.columns.drop(name):
            ratios = np.log(table[name] / table[peer])
            error = ratios.std() / np.sqrt(len(ratios))
            wins, losses = (ratios < 0).sum(), (ratios > 0).sum()
            print(f"  {peer:22}{wins:3}-{losses:<3}{ratios.mean():+8.1%} ± {error:.1%}")


def arguments_given():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True, help="folder of the sets")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--sets", nargs="+", default=SUITE, help="default: the suite")
    parser.add_argument("--splits", type=int, help="default: 3, or 1 of large sets")
    parser.add_argument("--seed-offset", type=int, default=OFFICIAL, help="of development: 5000")
    parser.add_argument("--stored", type=Path, nargs="+", default=[], help="files of scores")
    parser.add_argument("--jobs", type=int, default=1, help="processes over splits")
    parser.add_argument("--csv", type=Path, help="file to write the scores to")
    arguments = parser.parse_args()
    if arguments.stored and arguments.seed_offset != OFFICIAL:
        parser.error(f"--stored scores are of --seed-offset {OFFICIAL}")
    return arguments


def main():
    arguments = arguments_given()
    print(f"Python {platform.python_version()}, NumPy {np.__version__}")
    print(f"scikit-learn {sklearn.__version__}, seeds from {arguments.seed_offset}")
    methods = available(arguments.methods)
    scores = with_stored(run_all(arguments, methods), arguments.stored)
    table = scores.pivot_table(index="dataset", columns="method", values="nrmse")
    order = [name for name in [*METHODS, *scores["method"].unique()] if name in table]
    table = table.loc[arguments.sets, list(dict.fromkeys(order))]
    show_sets(table)
    show_summary(scores, table)
    show_pairs(table, [name for name in methods if name not in PEERS])


if __name__ == "__main__":
    main()
