"""Blocks, threads over them, and the setting of the linear algebra library."""

import threading

import pytest
from threadpoolctl import threadpool_info, threadpool_limits

from skattn._attention import Resources, run_blocks, slices


def blas_threads():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@pytest.mark.parametrize("n_threads", [1, 3, 20])
def test_each_block_is_run_once(n_threads):
    blocks, seen = [slice(i, i + 1) for i in range(7)], []
    run_blocks(seen.extend, blocks, n_threads)
    assert sorted(block.start for block in seen) == list(range(7))


def test_linear_algebra_is_single_threaded_inside_and_as_before_outside():
    inside = []
    with threadpool_limits(2, user_api="blas"):
        before = blas_threads()
        run_blocks(lambda blocks: inside.extend(blas_threads()), [slice(0, 1)], 1)
        assert set(inside) == {1}
        assert blas_threads() == before


@pytest.mark.parametrize("n_threads", [1, 2])
def test_an_error_reaches_the_caller_and_leaves_the_setting_as_it_was(n_threads):
    def task(blocks):
        raise ValueError("in a block")

    before = blas_threads()
    with pytest.raises(ValueError, match="in a block"):
        run_blocks(task, [slice(0, 1), slice(1, 2)], n_threads)
    assert blas_threads() == before


@pytest.mark.parametrize("first_ends_first", [True, False])
def test_overlapping_computations_leave_the_setting_as_it_was(first_ends_first):
    before = blas_threads()
    started, proceed = threading.Event(), threading.Event()

    def first(blocks):
        started.set()
        assert proceed.wait(10)

    one = threading.Thread(target=run_blocks, args=(first, [slice(0, 1)], 1))

    def second(blocks):
        if first_ends_first:
            proceed.set()
            one.join()

    one.start()
    assert started.wait(10)
    run_blocks(second, [slice(0, 1)], 1)
    proceed.set()
    one.join()
    assert blas_threads() == before


@pytest.mark.parametrize("shape", [(1, 1), (300, 50), (5000, 7), (40_000, 9000)])
def test_blocks_cover_everything_once_whatever_the_threads(shape):
    for block_bytes in (1, 2 << 20):
        one, two = (Resources(n, block_bytes).query_blocks(*shape) for n in (1, 2))
        assert one == two
        for blocks, length in ((one, shape[0]), (Resources().key_blocks(*shape), shape[1])):
            assert [i for block in blocks for i in range(block.start, block.stop)] == [
                *range(length)
            ]


def test_blocks_of_many_pairs_are_enough_for_a_few_threads():
    resources = Resources(n_threads=4)
    assert len(resources.query_blocks(2000, 2000)) >= 8
    assert resources.workers(2000 * 2000) == 4
    assert resources.workers(100) == 1
    assert list(slices(5, 2)) == [slice(0, 2), slice(2, 4), slice(4, 5)]
