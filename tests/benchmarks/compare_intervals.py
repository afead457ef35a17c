"""Prediction intervals against their peers: how often they cover, and how wide they are.

    python tests/benchmarks/compare_intervals.py [--seeds 200] [--problems sine t3 ...]

Intervals of 90 % from 200 training rows, judged on 1000 new rows drawn alike; means over seeds.
*low* and *high* are the coverage where the first feature is below and above one half: the quiet and
the noisy half of the heteroscedastic problem. Narrower is better only among those that cover.

The peers: split-conformal k-NN, which fits one half of the rows and takes the residuals of the
other, plain and divided by a k-NN estimate of their spread; and quantile forests, from 5 % to 95 %.
Those of package quantile-forest are used where it is installed (pip install quantile-forest), and
otherwise forests written out below. Leaves of 1 are that package's default, leaves of 5 R's
quantregForest's.
"""

import argparse
import importlib.util
import platform
import time

import numpy as np
import sklearn
from sklearn.datasets import make_friedman1
from sklearn.ensemble import RandomForestRegressor
from sklearn.neighbors import KNeighborsRegressor
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from skattn import NadarayaWatsonRegressor

COVERAGE = 0.9
ROWS, QUERIES = 200, 1000


def sine(noise):
    def draw(n, rng):
        x = rng.uniform(size=n)
        return x[:, None], np.sin(2 * np.pi * x) + noise(x, rng)

    return draw


def friedman(n, rng):
    seed = int(rng.integers(2**31))
    return make_friedman1(n, n_features=5, noise=1.0, random_state=seed)


# The noise of "heteroscedastic" grows twentyfold, from 0.05 to 1.0, over the range of x.
PROBLEMS = {
    "sine": sine(lambda x, rng: 0.3 * rng.standard_normal(len(x))),
    "heteroscedastic": sine(lambda x, rng: 0.05 * np.exp(3 * x) * rng.standard_normal(len(x))),
    "t3": sine(lambda x, rng: 0.3 * rng.standard_t(3, len(x))),
    "friedman": friedman,
}


def skattn(**options):
    local = options.pop("local")

    def interval(X, y, queries):
        model = NadarayaWatsonRegressor(**options).fit(X, y)
        return model.predict_interval(queries, coverage=COVERAGE, local=local).T

    return interval


def tuned_neighbors(X, y):
    """k-NN of the least squared leave-one-out error; these errors."""
    best, best_errors = None, None
    for k in np.unique(np.geomspace(1, len(y) / 2, 20).astype(int)):
        for weights in ("uniform", "distance"):
            model = KNeighborsRegressor(int(k), weights=weights).fit(X, y)
            errors = y - model.predict(None)
            if best is None or (errors**2).sum() < (best_errors**2).sum():
                best, best_errors = model, errors
    return best, best_errors


def split_conformal(local):
    """Residuals of half of the rows around k-NN tuned on the other half; features standardised.

    The spread is that of k-NN, tuned alike, on the absolute leave-one-out errors of the fitted
    half; a tenth of their mean is added, lest a few small errors make it vanish.
    """

    def interval(X, y, queries):
        half = len(y) // 2
        scaler = StandardScaler().fit(X[:half])
        X, queries = scaler.transform(X), scaler.transform(queries)
        model, errors = tuned_neighbors(X[:half], y[:half])
        sizes = tuned_neighbors(X[:half], np.abs(errors))[0]
        floor = 0.1 * np.abs(errors).mean()

        def spread(rows):
            return sizes.predict(rows) + floor if local else np.ones(len(rows))

        errors = np.abs(y[half:] - model.predict(X[half:]))
        ratios = np.sort(errors / spread(X[half:]))
        ratio = ratios[int(np.ceil(COVERAGE * (len(ratios) + 1))) - 1]
        mean = model.predict(queries)
        margin = ratio * spread(queries)
        return mean - margin, mean + margin

    return interval


def quantile_forest(min_samples_leaf):
    """Quantiles of the training targets, weighted by how often they share a leaf with the query."""
    options = {"min_samples_leaf": min_samples_leaf, "random_state": 0}
    quantiles = [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2]

    def installed(X, y, queries):
        from quantile_forest import RandomForestQuantileRegressor

        model = RandomForestQuantileRegressor(**options).fit(X, y)
        return model.predict(queries, quantiles=quantiles).T

    def written_out(X, y, queries):
        model = RandomForestRegressor(**options).fit(X, y)
        weights = np.zeros((len(queries), len(y)))
        for asked, held in zip(model.apply(queries).T, model.apply(X).T, strict=True):
            shared = asked[:, None] == held
            weights += shared / shared.sum(axis=1, keepdims=True)
        order = np.argsort(y)
        shares = np.cumsum(weights[:, order], axis=1)
        shares /= shares[:, -1:]
        return [y[order][np.argmax(shares >= q - 1e-12, axis=1)] for q in quantiles]

    return installed if importlib.util.find_spec("quantile_forest") else written_out


METHODS = {
    "skattn": skattn(local=False),
    "skattn, local": skattn(local=True),
    "skattn, degree 1": skattn(degree=1, local=False),
    "skattn, degree 1, local": skattn(degree=1, local=True),
    "split-conformal k-NN": split_conformal(local=False),
    "split-conformal k-NN, local": split_conformal(local=True),
    "quantile forest, leaves of 1": quantile_forest(1),
    "quantile forest, leaves of 5": quantile_forest(5),
    "quantile forest, leaves of 10": quantile_forest(10),
    "quantile forest, leaves of 20": quantile_forest(20),
}


def judge(lower, upper, X, y):
    """Coverage, overall and on either half of the first feature; mean width."""
    covered = (lower <= y) & (y <= upper)
    low = X[:, 0] < 0.5
    width = (upper - lower).mean()
    return covered.mean(), covered[low].mean(), covered[~low].mean(), width


def compare(name, seeds, methods):
    results = {method: [] for method in methods}
    seconds = dict.fromkeys(methods, 0.0)
    for seed in range(seeds):
        X, y = PROBLEMS[name](ROWS + QUERIES, np.random.default_rng(seed))
        for method in methods:
            start = time.process_time()
            lower, upper = METHODS[method](X[:ROWS], y[:ROWS], X[ROWS:])
            seconds[method] += time.process_time() - start
            results[method].append(judge(lower, upper, X[ROWS:], y[ROWS:]))
    print(f"\n{name:30} coverage    low   high   width (standard error)  seconds")
    for method, result in results.items():
        coverage, low, high, width = np.mean(result, axis=0)
        error = np.std(result, axis=0)[3] / np.sqrt(seeds)
        print(
            f"{method:30}    {coverage:.3f}  {low:.3f}  {high:.3f}  {width:6.3f} ({error:.3f})"
            f"{seconds[method] / seeds:18.3f}"
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=200)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=list(PROBLEMS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    arguments = parser.parse_args()
    forest = "quantile-forest" if importlib.util.find_spec("quantile_forest") else "written out"
    print(f"Python {platform.python_version()}, NumPy {np.__version__}")
    print(f"scikit-learn {sklearn.__version__}, quantile forest: {forest}")
    print(f"{arguments.seeds} seeds, CPU time of a fit and {QUERIES} intervals on one thread")
    with threadpool_limits(1):
        for name in arguments.problems:
            compare(name, arguments.seeds, arguments.methods)


if __name__ == "__main__":
    main()
