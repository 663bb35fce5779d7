"""Distributing work over threads."""

import multiprocessing
import time

import numpy as np
import pytest

from faze.data.network_input import spread


@pytest.mark.parametrize(
    ("count", "threads", "parts"),
    [(0, 2, 1), (1, 4, 1), (7, 2, 1), (8, 2, 2), (11, 8, 2), (64, 1, 1), (64, 3, 3), (65, 16, 16), (65, 17, 16)],
)
def test_parts_make_up_the_whole_once(count, threads, parts):
    """A part has at least four items."""
    met, sizes = np.zeros(count, int), []

    def work(first: int, stop: int) -> None:
        met[first:stop] += 1
        sizes.append(stop - first)

    spread(work, count, threads)
    assert (met == 1).all() and len(sizes) == parts
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("bad", [0, 63])
def test_an_error_of_any_part_is_the_callers(bad):
    finished = []

    def work(first: int, stop: int) -> None:
        if first <= bad < stop:
            raise ValueError("bad row")
        time.sleep(0.02)
        finished.append((first, stop))

    with pytest.raises(ValueError, match="bad row"):
        spread(work, 64, 4)
    parts = [(0, 16), (16, 32), (32, 48), (48, 64)]
    assert sorted(finished) == [part for part in parts if not part[0] <= bad < part[1]]  # no part is still at work


def _spread_in_child(queue: multiprocessing.Queue) -> None:
    spread(lambda first, stop: queue.put(stop - first), 64, 2)


def test_a_forked_process_has_threads_of_its_own():
    """Regression: all processes shared one pool, so a forked child waited forever for threads that it did not have."""
    spread(lambda first, stop: None, 64, 2)
    fork = multiprocessing.get_context("fork")
    queue = fork.Queue()
    child = fork.Process(target=_spread_in_child, args=(queue,))
    child.start()
    child.join(20)
    ended = child.exitcode
    child.kill()
    assert ended == 0
    assert sorted(queue.get(timeout=5) for _ in range(2)) == [32, 32]
