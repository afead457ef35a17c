"""Bandwidth selection against its peer, and how it grows, all in one run.

    python tests/benchmarks/compare_selection.py [--slow]

Prints seconds of CPU time of one fit on one thread, as the median of repetitions, and the criterion
reached: the mean squared leave-one-out error ("loo") or the corrected Akaike criterion ("aicc"),
both evaluated by skattn at the bandwidth of either.

statsmodels is compared where it is installed: pip install statsmodels. It takes minutes on the
problems that only --slow runs.
"""

import argparse
import importlib.util
import platform
import statistics
import time

import numpy as np
import scipy
import sklearn
from threadpoolctl import threadpool_info, threadpool_limits

from skattn import NadarayaWatsonRegressor


def problem(n, d):
    """Normal features, of which the first half matters; noise of about half the spread."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1 : (d + 1) // 2].sum(axis=1)
    return X, y + 0.3 * rng.standard_normal(n)


def waves(n, d):
    """Uniform features, of which two matter."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2.0, 2.0, (n, d))
    return X, np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * rng.standard_normal(n)


def interaction(n, d):
    """Normal features, of which two interact."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d))
    y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 0] * X[:, 1]
    return X, y + 0.3 * rng.standard_normal(n)


def skattn(X, y, criterion, degree):
    return NadarayaWatsonRegressor(criterion, degree=degree).fit(X, y).bandwidth_


def statsmodels(X, y, criterion, degree):
    from statsmodels.nonparametric.kernel_regression import KernelReg

    method = {"loo": "cv_ls", "aicc": "aic"}[criterion]
    return KernelReg(y, X, "c" * X.shape[1], reg_type=("lc", "ll")[degree], bw=method).bw


def timed(select, X, y, criterion, degree, repetitions):
    """Median of CPU seconds, and the bandwidth."""
    seconds = []
    for _ in range(repetitions):
        start = time.process_time()
        bandwidth = select(X, y, criterion, degree)
        seconds.append(time.process_time() - start)
    return statistics.median(seconds), bandwidth


def compare(n, d, criterion, repetitions, *, peer, degree=0, draw=problem):
    X, y = draw(n, d)
    judge = NadarayaWatsonRegressor(1.0, degree=degree).fit(X, y)
    with threadpool_limits(1):
        seconds, bandwidth = timed(skattn, X, y, criterion, degree, repetitions)
        value = judge.criterion_curve([bandwidth], criterion=criterion)[0]
        print(f"n = {n:<6} d = {d:<3} {criterion:<5} skattn      {value:12.8g} {seconds:10.3f} s")
        if peer and importlib.util.find_spec("statsmodels"):
            theirs, bandwidth = timed(statsmodels, X, y, criterion, degree, 1)
            # a negative bandwidth, which statsmodels may return, weights as its absolute value
            bandwidth = np.maximum(np.abs(bandwidth), 1e-300)
            other = judge.criterion_curve([bandwidth], criterion=criterion)[0]
            print(
                f"{'':26}statsmodels {other:12.8g} {theirs:10.3f} s "
                f"{theirs / seconds:8.0f} x skattn, criterion {other - value:+.2g}"
            )


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repetitions", type=int, default=3)
    parser.add_argument("--slow", action="store_true", help="statsmodels on larger problems")
    arguments = parser.parse_args()
    blas = {(p["internal_api"], p["version"], p.get("architecture")) for p in threadpool_info()}
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}")
    print(f"scikit-learn {sklearn.__version__}, {sorted(blas, key=str)}")
    print("one output, Gaussian kernel, a bandwidth for each feature, CPU time on one thread")
    for n, d, criterion, peer in [
        (100, 2, "loo", True),
        (100, 5, "loo", True),
        (100, 2, "aicc", True),
        (500, 2, "loo", True),
        (500, 5, "loo", arguments.slow),
        (1000, 2, "loo", arguments.slow),
        (1000, 2, "gcv", False),
        (1000, 2, "aicc", False),
        (1000, 10, "loo", False),
        (10_000, 1, "loo", False),
        (10_000, 10, "loo", False),
    ]:
        compare(n, d, criterion, arguments.repetitions, peer=peer)
    for draw in (waves, interaction):
        print(f"local lines: {draw.__doc__}")
        for n in (50, 100, 200, 500):
            compare(n, 2, "loo", arguments.repetitions, peer=True, degree=1, draw=draw)


if __name__ == "__main__":
    main()
