"""Data of the benchmarks: run with ``python -m pytest tests/benchmarks``."""

import numpy as np
import pytest


@pytest.fixture
def rows():
    """Make training rows and queries: normal features, a sine of the first, noise."""

    def make(n, m, d, dtype=np.float64):
        rng = np.random.default_rng(0)
        X, queries = rng.standard_normal((n, d)), rng.standard_normal((m, d))
        y = np.sin(2.0 * X[:, 0]) + 0.3 * rng.standard_normal(n)
        return X.astype(dtype), y.astype(dtype), queries.astype(dtype)

    return make
