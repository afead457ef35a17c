"""Time and peak memory of prediction."""

import tracemalloc

import numpy as np
import pytest

from skattn import NadarayaWatsonRegressor


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("d", [1, 10, 100])
def test_time_predict(benchmark, rows, d, dtype):
    X, y, queries = rows(20_000, 20_000, d, dtype)
    model = NadarayaWatsonRegressor("scott").fit(X, y)
    predictions = benchmark.pedantic(model.predict, (queries,), rounds=3, warmup_rounds=1)
    assert np.isfinite(predictions).all()


@pytest.mark.parametrize("n", [1000, 100_000])
def test_time_predict_one_row(benchmark, rows, n):
    X, y, queries = rows(n, 1, 5)
    model = NadarayaWatsonRegressor("scott").fit(X, y)
    assert np.isfinite(benchmark(model.predict, queries)).all()


@pytest.mark.parametrize("method", ["predict", "attention_weights"])
def test_peakmem(benchmark, rows, method):
    X, y, queries = rows(50_000, 50_000, 5)
    model = NadarayaWatsonRegressor("scott").fit(X, y)
    call = {
        "predict": lambda: model.predict(queries),
        "attention_weights": lambda: model.attention_weights(queries, top_k=10),
    }[method]
    tracemalloc.start()
    benchmark.pedantic(call, rounds=1)
    peak = tracemalloc.get_traced_memory()[1] / 2**20
    tracemalloc.stop()
    benchmark.extra_info["peak MiB"] = peak
    assert peak < 500
