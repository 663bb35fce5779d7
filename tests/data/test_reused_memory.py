"""Memory used again: never while anybody holds it."""

import multiprocessing
import pickle

import numpy as np
import pytest
import torch

from faze.data.reused_memory import Buffers, spread

SHAPE = (4, 8)


def test_tensors_that_are_held_never_share_memory():
    """Seen red: with a count of references one too large, every second tensor is the one before it."""
    buffers = Buffers()
    held = [buffers.take(SHAPE, np.float32).fill_(i) for i in range(6)]
    assert [float(tensor.mean()) for tensor in held] == [0, 1, 2, 3, 4, 5]
    assert len({tensor.data_ptr() for tensor in held}) == 6


@pytest.mark.parametrize(
    "keep",
    [lambda t: t[1], lambda t: t.numpy(), lambda t: t.view(-1)[3:].detach(), lambda t: memoryview(t.numpy()[2])],
)
def test_a_view_holds_its_memory(keep):
    buffers = Buffers()
    view = keep(buffers.take(SHAPE, np.uint8).fill_(7))
    buffers.take(SHAPE, np.uint8).fill_(9)
    assert set(torch.as_tensor(view).flatten().tolist()) == {7}


def test_what_autograd_keeps_is_held():
    buffers = Buffers()
    weight = torch.ones(8, requires_grad=True)
    loss = (buffers.take(SHAPE, np.float32).fill_(3) * weight).sum()
    buffers.take(SHAPE, np.float32).fill_(9)
    loss.backward()
    assert weight.grad.tolist() == [12.0] * 8


def test_memory_that_is_let_go_serves_again():
    buffers = Buffers()
    addresses = {buffers.take(SHAPE, np.uint8).data_ptr() for _ in range(10)}
    assert len(addresses) == 1


def test_another_shape_or_type_is_new_memory():
    buffers = Buffers()
    for shape, dtype in ((SHAPE, np.uint8), ((8, 4), np.uint8), (SHAPE, np.float32), (SHAPE, np.uint8)):
        taken = buffers.take(shape, dtype)
        assert tuple(taken.shape) == shape and taken.numpy().dtype == dtype


def test_pickled_buffers_begin_anew():
    buffers = Buffers()
    held = buffers.take(SHAPE, np.uint8).fill_(7)
    pickle.loads(pickle.dumps(buffers)).take(SHAPE, np.uint8).fill_(1)
    assert (held == 7).all()


@pytest.mark.parametrize(("count", "threads"), [(0, 2), (1, 4), (7, 2), (64, 1), (64, 3), (65, 16)])
def test_parts_make_up_the_whole_once(count, threads):
    met = np.zeros(count, int)

    def work(first: int, stop: int) -> None:
        met[first:stop] += 1

    spread(work, count, threads)
    assert (met == 1).all()


@pytest.mark.parametrize("bad", [0, 63])
def test_an_error_of_any_part_is_the_callers(bad):
    def work(first: int, stop: int) -> None:
        if first <= bad < stop:
            raise ValueError("bad row")

    with pytest.raises(ValueError, match="bad row"):
        spread(work, 64, 4)


def _spread_in_child(queue: multiprocessing.Queue) -> None:
    spread(lambda first, stop: queue.put(stop - first), 64, 2)


def test_a_forked_process_has_threads_of_its_own():
    """Seen red: with one pool for all processes the child waits for ever for threads that it has not got."""
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
