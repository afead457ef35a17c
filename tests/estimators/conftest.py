"""Data and configurations that tests of estimators share."""

import numpy as np
import pytest
from definitions import CONFIGURATIONS


@pytest.fixture(params=CONFIGURATIONS, ids=str)
def configuration(request):
    return CONFIGURATIONS[request.param]


@pytest.fixture
def plane(rng):
    """Forty rows of two features, a curved target, and queries within and beyond them."""
    X = rng.uniform(-1.0, 1.0, (40, 2))
    y = np.sin(2.0 * X[:, 0]) + X[:, 1] ** 2 + 0.3 * rng.standard_normal(40)
    return X, y, rng.uniform(-1.2, 1.2, (9, 2))
