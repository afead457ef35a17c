"""The saturating variable of descents."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from skattn._bandwidth.saturating_log import (
    HIGHEST,
    LOWEST,
    WIDEST,
    desaturate,
    saturate,
    stretch,
)


def test_desaturate_is_the_inverse():
    logs = np.array([-WIDEST, -3.0, 0.0, 2.0, 5.0, WIDEST])
    assert_allclose(desaturate(saturate(logs)), logs, rtol=1e-9, atol=1e-12)
    assert_array_equal(saturate(np.array([-np.inf, np.inf])), [LOWEST, HIGHEST])


def test_narrow_bandwidths_do_not_saturate():
    assert_allclose(saturate(np.array([-5.0])), -5.0, atol=1e-4)


def test_stretch_is_the_derivative():
    saturated, step = saturate(np.array([-2.0, 0.0, 1.5, 3.0])), 1e-6
    slope = (desaturate(saturated + step) - desaturate(saturated - step)) / (2.0 * step)
    assert_allclose(stretch(desaturate(saturated)), slope, rtol=1e-4)
