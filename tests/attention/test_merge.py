"""Joining sums over disjoint sets of keys."""

import numpy as np
from numpy.testing import assert_allclose, assert_array_equal

from skattn._attention._merge import Sums, merge

FIELDS = ("log_shift", "numerator", "denominator", "squares", "own")


def sums_of(logits, values, own):
    """Sums of given log-weights, shifted by their maximum; `own` marks own keys."""
    shift = logits.max(axis=1)
    weights = np.exp(logits - shift[:, None])
    return Sums(
        shift,
        weights @ values,
        weights.sum(axis=1),
        (weights**2).sum(axis=1),
        (weights * own).sum(1),
    )


def totals(sums):
    scale = np.exp(sums.log_shift)
    return [
        scale[:, None] * sums.numerator,
        scale * sums.denominator,
        scale**2 * sums.squares,
        scale * sums.own,
    ]


def test_merging_parts_gives_the_sums_of_the_whole(rng):
    logits = 20.0 * rng.standard_normal((5, 12))
    values, own = rng.standard_normal((12, 2)), rng.random((5, 12)) < 0.3
    whole = sums_of(logits, values, own)
    cuts = [slice(0, 3), slice(3, 7), slice(7, 12)]
    a, b, c = (sums_of(logits[:, cut], values[cut], own[:, cut]) for cut in cuts)
    for merged in (merge(merge(a, b), c), merge(a, merge(b, c)), merge(merge(c, a), b)):
        for ours, expected in zip(totals(merged), totals(whole), strict=True):
            assert_allclose(ours, expected, rtol=1e-12)


def test_empty_sums_are_neutral(rng):
    logits, values = rng.standard_normal((3, 4)), rng.standard_normal((4, 1))
    sums = sums_of(logits, values, np.zeros((3, 4)))
    merged = merge(Sums.empty(3, 1), sums)
    for name in FIELDS:
        assert_array_equal(getattr(merged, name), getattr(sums, name))


def test_two_empty_sums_stay_empty_without_warning():
    with np.errstate(all="raise"):
        merged = merge(Sums.empty(2, 1), Sums.empty(2, 1))
    assert_array_equal(merged.log_shift, -np.inf)
    assert_array_equal(merged.denominator, 0.0)


def test_shifts_far_apart_do_not_overflow():
    near = Sums(np.array([0.0]), np.array([[3.0]]), np.ones(1), np.ones(1), np.zeros(1))
    far = Sums(np.array([-1e6]), np.array([[7.0]]), np.ones(1), np.ones(1), np.zeros(1))
    with np.errstate(over="raise", invalid="raise"):
        merged = merge(far, near)
    assert merged.log_shift[0] == 0.0
    assert merged.numerator[0, 0] == 3.0
