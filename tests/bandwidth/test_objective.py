"""The criterion as a function of log-bandwidths."""

import numpy as np
import pytest
from definitions import objective
from numpy.testing import assert_allclose

from skattn._bandwidth import CRITERIA
from skattn._geometry.training_set import Exclusion
from skattn.kernels import KERNELS


@pytest.mark.parametrize("criterion", CRITERIA)
def test_the_mean_is_the_limit_of_wide_bandwidths(criterion, rng):
    X, values, weights = rng.standard_normal((30, 2)), rng.standard_normal((30, 2)), rng.random(30)
    weights[3] = 1e9  # nearly all weight: sums without it keep their digits
    every = np.arange(30)
    kinds = {
        "row": Exclusion(every, every + 1, np.zeros(30)),
        "itself": Exclusion(every, every + 1, 1.0 + 0 * X[:, 0]),
    }
    kinds["group"] = Exclusion(every // 3 * 3, every // 3 * 3 + 3, np.zeros(30))
    for excluded in kinds.values():
        judged = objective(X, values, weights, excluded, criterion, KERNELS["gaussian"])
        wide = judged.value(np.full(2, np.log(1e7)))
        assert_allclose(judged.value(np.full(2, np.inf)), wide, rtol=1e-9)
