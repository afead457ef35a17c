"""Small data sets that several tests share."""

import os

if "PYTEST_XDIST_WORKER" in os.environ:  # workers share the cores already; before NumPy is loaded
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import settings

# The same examples on every run: a failure here is a failure everywhere.
settings.register_profile("skattn", derandomize=True, deadline=None, max_examples=40)
settings.load_profile("skattn")


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def wave():
    """Forty noisy points of a sine: X of shape (40, 1), y of shape (40,)."""
    X = np.linspace(0.0, 1.0, 40)[:, None]
    noise = np.random.default_rng(7).standard_normal(40)
    return X, np.sin(6.0 * X[:, 0]) + 0.4 * noise
