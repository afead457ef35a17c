"""Time and memory of one checkout against another's, in one run.

    python tests/benchmarks/compare_commits.py BASE NEW [--repeats 5] [--only predict learned ...]
        [--csv times.csv]

BASE and NEW are folders that hold the package, such as two git worktrees. What is timed uses the
public interface only, so that it runs on commits between which everything else was renamed.

Each group of operations runs in a process of its own, BASE and NEW in turns, so that both see the
same load of the machine. A process fits what an operation needs, anew for every repetition, lest
something kept from the last one be timed, and calls it until it has warmed up and then a few times;
the least CPU time counts, on one thread. Of that, the minimum and the median over processes are
printed, and the ratios NEW / BASE: where the two ratios differ much, the machine was disturbed.

*differ* is by how much the results of the two differ at most, in units of their spread: whether
both did the same work. Memory is the peak of the process's resident memory: all of it, and what
prediction adds to the peak before, which was that of imports and the fit.
"""

import argparse
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd

# Each operation, after one call to warm up: so many seconds or calls, and two calls at least.
SECONDS, MOST_CALLS, LEAST_CALLS = 0.4, 12, 2
# Results are compared in so many places.
PLACES = 100
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")

# Operations: what they need, made before every call, and what is called.


def rows(n, m, d, dtype=np.float64):
    """Training rows, targets and queries: normal features, of which the first half matters."""
    rng = np.random.default_rng(0)
    X, queries = rng.standard_normal((n, d)), rng.standard_normal((m, d))
    y = np.sin(2.0 * X[:, 0]) + 0.5 * X[:, 1 : (d + 1) // 2].sum(axis=1)
    y += 0.3 * rng.standard_normal(n)
    return X.astype(dtype), y.astype(dtype), queries.astype(dtype)


def smoothed(call, n, m, d, dtype=np.float64, **options):
    """A call of an estimator, whose bandwidths are a rule of thumb, with queries."""
    from skattn import NadarayaWatsonRegressor

    X, y, queries = rows(n, m, d, dtype)
    return (
        lambda: NadarayaWatsonRegressor("scott", **options).fit(X, y),
        lambda model: call(model, queries),
    )


def selected(n, d, bandwidth="loo", **options):
    """A fit that selects bandwidths; its result is the criterion reached."""
    from skattn import NadarayaWatsonRegressor

    X, y, _ = rows(n, 1, d)
    return (
        lambda: NadarayaWatsonRegressor(bandwidth, **options),
        lambda model: model.fit(X, y).criterion_,
    )


def learned(n, d, **options):
    """A fit of the learned estimator; its result are predictions, of few rows."""
    from skattn import ParametricAttentionRegressor

    X, y, queries = rows(n, PLACES, d)
    return (
        lambda: ParametricAttentionRegressor(random_state=0, **options),
        lambda model: model.fit(X, y).predict(queries),
    )


def predict(model, queries):
    return model.predict(queries)


def leave_one_out(model, _):
    return model.predict(None)


def largest_weights(model, queries):
    return model.attention_weights(queries, top_k=5).sum(axis=1)


def quantiles(model, queries):
    return model.predict_quantiles(queries, [0.1, 0.5, 0.9])


def interval(model, queries):
    return model.predict_interval(queries)


def large():
    return smoothed(predict, 20_000, 20_000, 5)


GROUPS = {
    "predict, degree 0": {
        "d = 3": lambda: smoothed(predict, 4000, 4000, 3),
        "d = 10": lambda: smoothed(predict, 4000, 4000, 10),
        "d = 1": lambda: smoothed(predict, 4000, 4000, 1),
        "d = 3, laplace": lambda: smoothed(predict, 4000, 4000, 3, kernel="laplace"),
        "d = 3, epanechnikov": lambda: smoothed(predict, 4000, 4000, 3, kernel="epanechnikov"),
        "d = 3, float32": lambda: smoothed(predict, 4000, 4000, 3, np.float32),
        "d = 3, one query": lambda: smoothed(predict, 4000, 1, 3),
    },
    "predict, degree 1": {
        "d = 3": lambda: smoothed(predict, 2000, 2000, 3, degree=1),
        "d = 8": lambda: smoothed(predict, 2000, 2000, 8, degree=1),
    },
    "inference": {
        "predict(None), degree 0": lambda: smoothed(leave_one_out, 4000, 1, 3),
        "predict(None), degree 1": lambda: smoothed(leave_one_out, 2000, 1, 3, degree=1),
        "attention_weights(top_k=5)": lambda: smoothed(largest_weights, 4000, 4000, 3),
        "predict_quantiles": lambda: smoothed(quantiles, 2000, 2000, 3),
        "predict_interval, degree 0": lambda: smoothed(interval, 1500, 500, 3),
        "predict_interval, degree 1": lambda: smoothed(interval, 600, 200, 3, degree=1),
    },
    "selection": {
        "n = 250, d = 3": lambda: selected(250, 3),
        "n = 1000, d = 5": lambda: selected(1000, 5),
        "n = 4000, d = 2": lambda: selected(4000, 2),
        "n = 250, d = 3, gcv": lambda: selected(250, 3, "gcv"),
        "n = 200, d = 2, uniform": lambda: selected(200, 2, kernel="uniform"),
        "n = 300, d = 2, adaptive": lambda: selected(300, 2, adaptive="query"),
    },
    "selection, degree 1": {
        "n = 100, d = 2": lambda: selected(100, 2, degree=1),
        "n = 250, d = 3": lambda: selected(250, 3, degree=1),
        "n = 800, d = 5": lambda: selected(800, 5, degree=1),
    },
    "learned": {
        "n = 200, d = 5": lambda: learned(200, 5),
        "n = 800, d = 8": lambda: learned(800, 8),
        "n = 200, d = 5, degree 0": lambda: learned(200, 5, degree=0),
        "n = 800, d = 8, degree 0": lambda: learned(800, 8, degree=0),
    },
    "memory of the process": {"predict, n = m = 20000, d = 5": large},
    "memory beyond the fit": {"predict, n = m = 20000, d = 5": large},
}

# In a process of one checkout


def measure(group):
    """The least CPU seconds, or the megabytes, of each operation of a group, and its results."""
    measured, found = MEMORY.get(group, seconds), {}
    for name, operation in GROUPS[group].items():
        try:
            make, call = operation()
            value, result = measured(make, call)
        except Exception as error:  # the other operations are worth their time all the same
            found[name] = {"error": f"{type(error).__name__}: {error}".splitlines()[0]}
            continue
        result = np.ravel(result).astype(float)
        found[name] = {"value": value, "result": result[:: max(1, len(result) // PLACES)].tolist()}
    return found


def seconds(make, call):
    times, result = [], call(make())
    while len(times) < LEAST_CALLS or (sum(times) < SECONDS and len(times) < MOST_CALLS):
        model = make()
        start = time.process_time()
        result = call(model)
        times.append(time.process_time() - start)
    return min(times), result


def peak(make, call):
    result = call(make())
    return megabytes(), result


def peak_beyond(make, call):
    model = make()
    before = megabytes()
    result = call(model)
    return megabytes() - before, result


def megabytes():
    """The peak of the resident memory of this process so far."""
    unit = 1e6 if sys.platform == "darwin" else 1e3  # bytes, kilobytes
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


MEMORY = {"memory of the process": peak, "memory beyond the fit": peak_beyond}

# Around it


def run(checkout, group):
    """Measure a group in a process of its own."""
    environment = os.environ | ONE_THREAD | {"PYTHONPATH": str(checkout)}
    command = [sys.executable, __file__, str(checkout), str(checkout), "--measure", group]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{checkout}, {group}:\n{done.stderr}")
    told = json.loads(done.stdout.splitlines()[-1])
    if checkout not in Path(told["file"]).parents:
        raise SystemExit(f"{checkout} holds no package: {told['file']} was imported.")
    return told["found"]


def difference(first, second):
    """Largest difference of results, in units of their spread; of a single one, of its size."""
    first, second = np.array(first), np.array(second)
    if first.shape != second.shape:
        return np.inf
    unit = first.std() if len(first) > 1 else abs(first[0])
    return float(np.abs(first - second).max() / (unit or 1.0))


def compare(group, checkouts, repeats):
    """Rows of the table: an operation's values over all processes, both checkouts in turns."""
    taken = [[run(checkout, group) for checkout in checkouts] for _ in range(repeats)]
    lines = []
    for name in GROUPS[group]:
        row = {"group": group, "operation": name}
        for i, which in enumerate(("base", "new")):
            found = [both[i][name] for both in taken]
            errors = [each["error"] for each in found if "error" in each]
            if errors:
                row["error"] = f"{which}: {errors[0]}"
                continue
            values = [each["value"] for each in found]
            row |= {f"{which} min": min(values), f"{which} median": statistics.median(values)}
        if "error" not in row:
            for of in ("min", "median"):
                row[f"ratio {of}"] = row[f"new {of}"] / row[f"base {of}"]
            row["differ"] = difference(*(each[name]["result"] for each in taken[0]))
        lines.append(row)
    return lines


def show(group, lines):
    unit = "MB" if group in MEMORY else "ms of CPU time"
    print(f"\n{f'{group}: {unit}':36}{'BASE min  median':>19}{'NEW min  median':>19}", end="")
    print(f"{'NEW / BASE':>15}{'differ':>10}")
    factor = 1.0 if group in MEMORY else 1e3
    for row in lines:
        print(f"  {row['operation']:34}", end="")
        if "error" in row:
            print(f"  failed in {row['error']}", flush=True)
            continue
        for which in ("base", "new"):
            low, middle = factor * row[f"{which} min"], factor * row[f"{which} median"]
            print(f"{low:10.2f}{middle:9.2f}", end="")
        print(f"{row['ratio min']:8.2f}{row['ratio median']:7.2f}{row['differ']:10.1e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("base", type=Path, help="folder that holds the package")
    parser.add_argument("new", type=Path)
    parser.add_argument("--repeats", type=int, default=5, help="processes of each checkout")
    parser.add_argument("--only", nargs="+", default=[""], help="groups whose name starts so")
    parser.add_argument("--csv", type=Path, help="file to write the table to")
    parser.add_argument("--measure", choices=GROUPS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.measure:
        import skattn

        found = measure(arguments.measure)
        print(json.dumps({"file": skattn.__file__, "found": found}))
        return
    checkouts, start = [arguments.base.resolve(), arguments.new.resolve()], time.perf_counter()
    print(f"Python {platform.python_version()}, NumPy {np.__version__}, one thread")
    print(f"BASE {checkouts[0]}\nNEW  {checkouts[1]}\n{arguments.repeats} processes of each")
    lines = []
    for group in GROUPS:
        if group.startswith(tuple(arguments.only)):
            lines += compare(group, checkouts, arguments.repeats)
            show(group, [row for row in lines if row["group"] == group])
    if arguments.csv:
        pd.DataFrame(lines).to_csv(arguments.csv, index=False)
    ratios = [
        row["ratio min"] for row in lines if "ratio min" in row and row["group"] not in MEMORY
    ]
    if ratios:
        mean = statistics.geometric_mean(ratios)
        print(f"\ngeometric mean of the ratios of minima, times only: {mean:.3f}", end="")
        print(f" ({min(ratios):.2f} to {max(ratios):.2f})")
    print(f"{time.perf_counter() - start:.0f} s in all")


if __name__ == "__main__":
    main()
