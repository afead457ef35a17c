"""Prediction against its floor and its peers, all in one run.

    python tests/benchmarks/compare_predict.py [n]

Prints nanoseconds of CPU time a pair of query and training row on one thread, as the median of
alternating repetitions, and the ratio to skattn. The *floor* is what the arithmetic costs in the
same libraries and blocks with nothing around it: a matrix product of the rows, exp, and a
matrix-vector product with the targets. All are given the bandwidths of Scott's rule.

statsmodels and KeOps are compared where they are installed: pip install statsmodels pykeops.
"""

import argparse
import importlib.util
import platform
import statistics
import time

import numpy as np
import scipy
import sklearn
from sklearn.neighbors import KNeighborsRegressor
from threadpoolctl import threadpool_info, threadpool_limits

from skattn import NadarayaWatsonRegressor

ROWS, COLUMNS = 256, 1024  # 2 MiB of float64, as skattn's blocks


def problem(n, d, dtype):
    rng = np.random.default_rng(0)
    X, queries = rng.standard_normal((n, d)), rng.standard_normal((n, d))
    y = np.sin(2.0 * X[:, 0]) + 0.3 * rng.standard_normal(n)
    return X.astype(dtype), y.astype(dtype), queries.astype(dtype)


def floor(X, y, queries, bandwidth):
    """Matrix product, exp and matrix-vector product, with arguments that do not underflow."""
    keys = np.ascontiguousarray((X / bandwidth * 0.1).T.astype(X.dtype))
    rows = (queries / bandwidth * 0.1).astype(X.dtype)
    memory = np.empty(ROWS * COLUMNS, X.dtype)

    def run():
        sums = np.zeros(len(rows), X.dtype)
        for i in range(0, len(rows), ROWS):
            for j in range(0, len(y), COLUMNS):
                query, targets = rows[i : i + ROWS], y[j : j + COLUMNS]
                block = memory[: len(query) * len(targets)].reshape(len(query), -1)
                np.exp(np.matmul(query, keys[:, j : j + COLUMNS], out=block), out=block)
                sums[i : i + ROWS] += block @ targets
        return sums

    return run


def one_liner(X, y, queries, bandwidth):
    """The formula as one would type it, a hundred queries at a time so that it fits in memory."""
    keys, rows = X / bandwidth, queries / bandwidth

    def predict(q):
        weights = np.exp(-((q[:, None] - keys) ** 2).sum(axis=2) / 2)
        return weights @ y / weights.sum(axis=1)

    return lambda: np.concatenate([predict(rows[i : i + 100]) for i in range(0, len(rows), 100)])


def statsmodels(X, y, queries, bandwidth):
    from statsmodels.nonparametric.kernel_regression import KernelReg

    kinds = "c" * X.shape[1]
    model = KernelReg(y, X, kinds, reg_type="lc", bw=np.broadcast_to(bandwidth, X.shape[1]))
    return lambda: model.fit(queries)[0]


def keops(X, y, queries, bandwidth):
    from pykeops.numpy import LazyTensor

    rows = LazyTensor(np.ascontiguousarray(queries / bandwidth)[:, None, :])
    keys = LazyTensor(np.ascontiguousarray(X / bandwidth)[None])
    targets = LazyTensor(np.ascontiguousarray(np.stack([y, np.ones_like(y)], axis=1))[None])

    def run():
        sums = ((-((rows - keys) ** 2).sum(-1) / 2).exp() * targets).sum(axis=1)
        return sums[:, 0] / sums[:, 1]

    return run


def contenders(X, y, queries, share):
    """Names, what to call, and the share of the queries each is given."""
    model = NadarayaWatsonRegressor("scott").fit(X, y)
    bandwidth = model.bandwidth_.astype(X.dtype)
    few = queries[: int(len(queries) * share)]
    yield "skattn", lambda: model.predict(queries), 1.0
    yield "floor", floor(X, y, queries, bandwidth), 1.0
    neighbors = KNeighborsRegressor(50, algorithm="brute").fit(X, y)
    yield "KNeighborsRegressor(50, brute)", lambda: neighbors.predict(queries), 1.0
    yield "NumPy one-liner", one_liner(X, y, few, bandwidth), share
    if importlib.util.find_spec("pykeops"):
        yield "KeOps (CPU)", keops(X, y, queries, bandwidth), 1.0
    if importlib.util.find_spec("statsmodels") and X.dtype == np.float64:
        yield "statsmodels KernelReg", statsmodels(X, y, few, bandwidth), share


def cpu_seconds(function):
    start = time.process_time()
    function()
    return time.process_time() - start


def compare(n, d, dtype, repetitions):
    X, y, queries = problem(n, d, dtype)
    with threadpool_limits(1):
        everyone = list(contenders(X, y, queries, share=200 / n))
        times = {name: [] for name, _, _ in everyone}
        for repetition in range(repetitions + 1):
            for name, function, share in everyone:
                seconds = cpu_seconds(function) / share
                if repetition:  # the first warms up
                    times[name].append(seconds)
    medians = {name: statistics.median(seconds) for name, seconds in times.items()}
    print(f"\nd = {d}, {np.dtype(dtype).name}")
    for name, seconds in medians.items():
        pair = 1e9 * seconds / n**2
        print(f"  {name:<32} {pair:9.2f} ns/pair {seconds / medians['skattn']:9.2f} x skattn")


def threads(n, d):
    X, y, queries = problem(n, d, np.float64)
    cpu, wall = {1: [], 2: []}, {1: [], 2: []}
    models = {k: NadarayaWatsonRegressor("scott", n_jobs=k).fit(X, y) for k in cpu}
    for _ in range(5):
        for k, model in models.items():
            start = time.perf_counter()
            cpu[k].append(cpu_seconds(lambda model=model: model.predict(queries)))
            wall[k].append(time.perf_counter() - start)
    inflation = statistics.median(cpu[2]) / statistics.median(cpu[1])
    speed_up = statistics.median(wall[1]) / statistics.median(wall[2])
    print(f"\ntwo threads, d = {d}: CPU time x {inflation:.2f}, {speed_up:.2f} x faster")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("n", nargs="?", type=int, default=20_000, help="queries and training rows")
    parser.add_argument("--repetitions", type=int, default=3)
    arguments = parser.parse_args()
    blas = {(p["internal_api"], p["version"], p.get("architecture")) for p in threadpool_info()}
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, SciPy {scipy.__version__}")
    print(f"scikit-learn {sklearn.__version__}, {sorted(blas, key=str)}")
    print(f"n = m = {arguments.n}, one output, CPU time on one thread")
    for d in (1, 10, 100):
        for dtype in (np.float64, np.float32):
            compare(arguments.n, d, dtype, arguments.repetitions)
    threads(arguments.n, 10)


if __name__ == "__main__":
    main()
