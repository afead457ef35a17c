"""How often bandwidth selection misses a lower minimum: one checkout against random descents.

    python tests/benchmarks/compare_thoroughness.py --reference reference.npz [--degree 0]
        [--starts 12] [--out criteria.csv] [--against other.csv]

Run it with PYTHONPATH set to the checkout that is judged; it uses the public interface only.

136 problems of two to four features and 40 to 300 rows, drawn from seeds 0 to 135: see `problem`.
On each, skattn selects the bandwidths of the Gaussian kernel by leave-one-out, and 12 descents from
random starts on all rows, here in plain NumPy and SciPy, minimise the same criterion. A *miss* is a
criterion more than 0.1 % above the lowest of the twelve.

The twelve depend on nothing but the problems: they are computed once, which takes minutes, and kept
in the file --reference names, so that all checkouts are compared with the same numbers. That both
mean the same criterion is checked on each problem, at the bandwidths selected. Where skattn is far
below the twelve, it can get worse without a miss: --against compares with the criteria that another
checkout wrote to --out.
"""

import argparse
import platform
import time
from pathlib import Path

import numpy as np
import pandas as pd
import scipy
import sklearn
from scipy.optimize import minimize
from threadpoolctl import threadpool_limits

import skattn

PROBLEMS = 136
MISS, SAME = 1e-3, 1e-8
# Log-bandwidths in spreads: of the starts, and the range of the descents.
NARROW_START, WIDE_START = -2.5, 1.5
NARROWEST, WIDEST = -7.0, 7.0
# Eigenvalues below which local lines are flat, relative: as skattn.smoother defines.
FLAT = 1e-8

# Problems


def problem(seed):
    """Features of one of four distributions, a target of one of five kinds, noise of any size."""
    rng = np.random.default_rng([seed, 0])
    d, n = 2 + seed % 3, round(np.exp(rng.uniform(np.log(40), np.log(300))))
    X = FEATURES[rng.integers(len(FEATURES))](rng, n, d)
    signal = SIGNALS[rng.integers(len(SIGNALS))](rng, X)
    noise = np.exp(rng.uniform(np.log(0.02), np.log(1.5)))
    y = signal / signal.std() + noise * rng.standard_normal(n)
    return X * np.exp(rng.normal(size=d)), y  # in units of their own


def correlated(rng, n, d):
    return rng.standard_normal((n, d)) + rng.standard_normal((n, 1))


def clustered(rng, n, d):
    centers = rng.uniform(-2.0, 2.0, (4, d))
    return centers[rng.integers(4, size=n)] + 0.4 * rng.standard_normal((n, d))


FEATURES = [
    lambda rng, n, d: rng.standard_normal((n, d)),
    lambda rng, n, d: rng.uniform(-2.0, 2.0, (n, d)),
    correlated,
    clustered,
]


def additive(rng, X):
    frequencies = np.exp(rng.uniform(np.log(0.3), np.log(4.0), X.shape[1]))
    return np.sin(X * frequencies + rng.uniform(0.0, 6.0, X.shape[1])).sum(axis=1)


def projected(rng, X):
    direction = rng.standard_normal(X.shape[1])
    return np.sin(2.0 * X @ direction / np.linalg.norm(direction)) + 0.3 * X[:, 0]


def friends(rng, X):
    return np.sin(2.0 * X[:, 0] * X[:, 1]) + 0.5 * X[:, -1] ** 2


SIGNALS = [
    additive,
    projected,
    friends,
    lambda rng, X: np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2,  # others do not matter
    lambda rng, X: np.where(X[:, 0] > 0.3, 1.0, -1.0) + X[:, 1],  # a jump
]

# The criterion, straight


class LeaveOneOut:
    """Mean squared leave-one-out error of weighted means or local lines, Gaussian kernel."""

    def __init__(self, X, y, degree):
        self.y, self.degree, self.spread = y, degree, spread(X)
        coordinates = (X / self.spread).T
        self.away = coordinates[:, None, :] - coordinates[:, :, None]  # (features, rows, keys)
        self.squares = (self.away**2).reshape(len(coordinates), -1)

    def at(self, bandwidth):
        """The criterion at bandwidths in the units of the features."""
        return self(np.log(bandwidth / self.spread))[0]

    def __call__(self, theta):
        """The criterion and its gradient in log-bandwidths in spreads.

        A prediction changes with a log-weight by its entry of the smoother matrix times how far
        the key's target is from the line; exactly so where lines are not flat.
        """
        n, inverse = len(self.y), np.exp(-2.0 * theta)
        logits = (-0.5 * inverse @ self.squares).reshape(n, n)
        np.fill_diagonal(logits, -np.inf)
        logits -= logits.max(axis=1, keepdims=True)
        smoother = np.exp(logits, out=logits)
        smoother /= smoother.sum(axis=1, keepdims=True)
        mean = smoother @ self.y
        residuals = self.y - mean[:, None]
        if self.degree == 1:
            mean = self._lines(theta, smoother, residuals, mean)
        errors = self.y - mean
        np.multiply(smoother, residuals, out=smoother)
        smoother *= errors[:, None]
        gradient = -2.0 / n * inverse * (self.squares @ smoother.ravel())
        return (errors**2).mean(), gradient

    def _lines(self, theta, smoother, residuals, level):
        """Predictions; what was of the mean becomes that of lines, in place."""
        scale = np.exp(np.minimum(theta, 0.0))  # line coordinates: of order one, finite
        away = self.away / scale[:, None, None]
        center = np.stack([np.einsum("ij,ij->i", smoother, part) for part in away])
        away -= center[:, :, None]
        weighted = away * smoother
        covariance = np.einsum("aij,bij->iab", weighted, away, optimize=False)
        cross = np.stack([np.einsum("ij,ij->i", part, residuals) for part in weighted], axis=1)
        inverse = flat_inverse(covariance)
        arm = -np.einsum("iab,bi->ia", inverse, center)
        slope = np.einsum("iab,ib->ia", inverse, cross)
        factors = 1.0 + np.einsum("ia,aij->ij", arm, away, optimize=False)
        smoother *= factors
        residuals -= np.einsum("ia,aij->ij", slope, away, optimize=False)
        return level + np.einsum("ia,ia->i", arm, cross)


def flat_inverse(covariance):
    """Inverses, but of directions in which keys do not differ: those tend to zero."""
    variances, axes = np.linalg.eigh(covariance)
    variances = np.maximum(variances, 0.0)
    unit = np.maximum(variances[:, -1:], 1.0)
    relative = variances / unit
    inverse = relative**3 / (relative**4 + FLAT**4) / unit
    return (axes * inverse[:, None, :]) @ axes.transpose(0, 2, 1)


def spread(X):
    """The smaller of the standard deviation and the interquartile range / 1.349."""
    quartiles = np.quantile(X, [0.25, 0.75], axis=0, method="inverted_cdf")
    return np.minimum(X.std(axis=0, ddof=1), np.diff(quartiles, axis=0)[0] / 1.349)


def lowest(seed, degree, n_starts):
    """The lowest criterion of descents from random starts."""
    X, y = problem(seed)
    criterion, rng = LeaveOneOut(X, y, degree), np.random.default_rng([seed, 1])
    bounds = [(NARROWEST, WIDEST)] * X.shape[1]
    options = {"maxiter": 100, "ftol": 1e-8, "gtol": 0.0}
    seen = []

    def relative(theta):
        if not np.isfinite(theta).all():  # SciPy's line search fails where lines turn flat
            return np.inf, np.zeros_like(theta)
        value, gradient = criterion(theta)
        seen.append(value)
        return value / y.var(), gradient / y.var()

    for start in rng.uniform(NARROW_START, WIDE_START, (n_starts, X.shape[1])):
        minimize(relative, start, jac=True, bounds=bounds, options=options)
    return min(seen)


# Reference


def reference(file, degree, n_starts):
    """The lowest criteria of all problems: those of the file, or computed and added to it."""
    stored, name = dict(np.load(file)) if file.exists() else {}, f"degree{degree}_starts{n_starts}"
    drawn = np.array([problem(seed)[1].sum() for seed in range(PROBLEMS)])
    if stored and not np.allclose(stored["drawn"], drawn, rtol=1e-9, atol=1e-9):
        raise SystemExit(f"{file} is of other problems: NumPy or this script has changed. Move it.")
    if name not in stored:
        start = time.process_time()
        stored[name] = np.array([lowest(seed, degree, n_starts) for seed in range(PROBLEMS)])
        np.savez(file, **stored | {"drawn": drawn})
        print(f"reference of degree {degree}: {time.process_time() - start:.0f} s of CPU time")
    return stored[name]


def select(seed, degree):
    """A row of results of the checkout on one problem."""
    X, y = problem(seed)
    start = time.process_time()
    model = skattn.NadarayaWatsonRegressor("loo", degree=degree).fit(X, y)
    seconds = time.process_time() - start
    ours = LeaveOneOut(X, y, degree).at(model.bandwidth_)
    row = {"problem": seed, "n": len(y), "d": X.shape[1], "criterion": model.criterion_}
    row |= {"seconds": seconds, "deviation": abs(ours / model.criterion_ - 1.0)}
    return row | {"bandwidth": " ".join(f"{h:.6g}" for h in model.bandwidth_)}


# Tables


def show(table):
    line = " {:3} {:4} {:2} {:14.8g} {:14.8g} {:+10.2%} {:8.3f}  {}"
    print("   #    n  d      criterion   lowest known             seconds  bandwidths")
    columns = ["problem", "n", "d", "criterion", "lowest", "above", "seconds", "bandwidth"]
    for row in table[columns].itertuples(index=False):
        print(line.format(*row), *(["  MISS"] if row.above > MISS else []))


def summarize(table, what):
    """Misses, the worst of them, and how often it is the other way round."""
    above = table["above"].to_numpy()
    misses, worst = np.flatnonzero(above > MISS), np.argmax(above)
    print(f"\n{len(misses)} of {len(above)} more than {MISS:.1%} above {what}", end="")
    print(f"; {(above < -MISS).sum()} below by more than that")
    if misses.size:
        print("  " + ", ".join(f"#{table['problem'][i]} {above[i]:+.2%}" for i in misses))
    number, n, d = (table[name][worst] for name in ("problem", "n", "d"))
    print(f"worst: #{number}, n = {n}, d = {d}, {above[worst]:+.3%}", end="")
    print(f"; mean log-ratio {np.log1p(above).mean():+.3%}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--reference", type=Path, required=True, help=".npz, made where absent")
    parser.add_argument("--degree", type=int, choices=[0, 1], default=1)
    parser.add_argument("--starts", type=int, default=12, help="random descents for each")
    parser.add_argument("--out", type=Path, help="CSV file to write the criteria to")
    parser.add_argument("--against", type=Path, help="CSV file of another checkout")
    arguments = parser.parse_args()
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}")
    print(f"scikit-learn {sklearn.__version__}, {skattn.__file__}, degree {arguments.degree}")
    with threadpool_limits(1):
        minima = reference(arguments.reference, arguments.degree, arguments.starts)
        table = pd.DataFrame([select(seed, arguments.degree) for seed in range(PROBLEMS)])
    table["lowest"] = minima
    table["above"] = table["criterion"] / minima - 1.0
    if arguments.out:
        table.to_csv(arguments.out, index=False)
    show(table)
    summarize(table, f"the lowest of {arguments.starts} random descents")
    if arguments.against:
        other = pd.read_csv(arguments.against)["criterion"]
        summarize(table.assign(above=table["criterion"] / other - 1.0), arguments.against)
    seconds, deviation = table["seconds"], table["deviation"]
    print(f"{seconds.sum():.1f} s of CPU time to select, {seconds.max():.2f} s at most")
    print(f"criterion_ and the criterion here, at bandwidth_, differ by {deviation.max():.1e}")
    if deviation.max() > SAME:
        raise SystemExit(f"not the same criterion: {np.flatnonzero(deviation > SAME).tolist()}")


if __name__ == "__main__":
    main()
