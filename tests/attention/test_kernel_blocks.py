"""Kernel weights of blocks in single precision, where that is accurate."""

import numpy as np
import pytest
from definitions import attention_of
from numpy.testing import assert_allclose

from skattn._attention import Products, Resources, attend

SINGLE = Resources(dtype=np.dtype(np.float32))


def means(attention, values, resources=Resources()):
    moments = attend(attention, Products(values), resources=resources)
    return moments.sums / moments.total[:, None]


@pytest.mark.parametrize(
    ("d", "scale", "tolerance"),
    [
        # 300 bandwidths of range: expanded squares would be wrong by percents in float32
        (2, 300.0, 1e-5),
        # weights of 60 coordinates underflow in float32
        (60, 1.2, 1e-4),
    ],
)
def test_single_precision_is_given_up_where_it_would_not_do(d, scale, tolerance, rng):
    keys, values = scale * rng.standard_normal((300, d)), rng.standard_normal((300, 1))
    queries = keys[:64] + 0.5 if d == 2 else scale * rng.standard_normal((64, d))
    attention = attention_of(queries, keys)
    assert_allclose(
        means(attention, values, SINGLE), means(attention, values), rtol=tolerance, atol=tolerance
    )


def test_single_precision_is_used_where_it_will_do(rng):
    attention = attention_of(rng.standard_normal((64, 2)), rng.standard_normal((300, 2)))
    values = rng.standard_normal((300, 1))
    single, double = means(attention, values, SINGLE), means(attention, values)
    assert 1e-9 < np.abs(single - double).max() < 5e-5
