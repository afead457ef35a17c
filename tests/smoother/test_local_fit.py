"""The local mean, and fits that are written over."""

import numpy as np
from definitions import attention_of, attention_weights
from numpy.testing import assert_allclose, assert_array_equal

from skattn._attention import Products, attend
from skattn._geometry.training_set import Exclusion
from skattn._smoother import Fit, LocalMean


def test_means_and_leverages_are_shares_of_the_total(rng):
    queries, keys = 20.0 * rng.standard_normal((9, 2)), rng.standard_normal((30, 2))
    every = np.arange(9)
    attention = attention_of(queries, keys, excluded=Exclusion(every, every + 2, np.full(9, 0.3)))
    values, (weights, _) = rng.standard_normal((30, 2)), attention_weights(attention)
    fit = LocalMean().read(attend(attention, Products(values)), None)
    assert_allclose(fit.prediction, weights @ values, atol=1e-12)
    assert_allclose(fit.leverage, weights[every, every] + weights[every, every + 1], atol=1e-12)
    assert not fit.ill_conditioned.any()
    assert LocalMean().smoother_rows(fit, weights, None) is weights


def test_fits_of_some_queries_are_written_over():
    fit = Fit(np.zeros((4, 1)), np.zeros(4))
    fit.write(np.array([1, 3]), Fit(np.ones((2, 1)), np.array([5.0, 6.0])))
    assert_array_equal(fit.prediction[:, 0], [0.0, 1.0, 0.0, 1.0])
    assert_array_equal(fit.leverage, [0.0, 5.0, 0.0, 6.0])
