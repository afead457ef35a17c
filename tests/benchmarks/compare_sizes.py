"""How time and memory grow with the number of rows: the table of docs/guide/large_data.rst.

    python tests/benchmarks/compare_sizes.py [n ...]

Five features of which three matter, Gaussian kernel, constructor defaults, one thread. CPU time of
``fit`` (which selects the bandwidths by leave-one-out) and of predicting 10 000 queries, and the
highest memory allocated in each beyond the data; the same of the ten nearest neighbours by
scikit-learn's tree. One size after the other, each in a process of its own.
"""

import argparse
import subprocess
import sys
import time
import tracemalloc

import numpy as np
from sklearn.neighbors import KNeighborsRegressor
from threadpoolctl import threadpool_limits

from skattn import NadarayaWatsonRegressor


def rows(n, rng):
    X = rng.standard_normal((n, 5))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * rng.standard_normal(n)


def measure(n):
    rng = np.random.default_rng(0)
    X, y = rows(n, rng)
    queries = rows(10_000, rng)[0]
    print(f"{n:>8}", end="")
    for model in (NadarayaWatsonRegressor(), KNeighborsRegressor(10)):
        for name, task, data in [
            ("fit", model.fit, (X, y)),
            ("predict", model.predict, (queries,)),
        ]:
            tracemalloc.start()
            begin = time.process_time()
            task(*data)
            seconds = time.process_time() - begin
            megabytes = tracemalloc.get_traced_memory()[1] / 1e6
            tracemalloc.stop()
            print(f"   {name} {seconds:6.2f} s {megabytes:4.0f} MB", end="")
    print(flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("n", type=int, nargs="*", default=[1_000, 10_000, 100_000])
    sizes = parser.parse_args().n
    if len(sizes) == 1:
        with threadpool_limits(1):
            measure(sizes[0])
    else:
        for n in sizes:
            subprocess.run([sys.executable, __file__, str(n)], check=True)
