"""All ranks of a host see one vector, and no other host does."""

import time
from threading import Thread
from typing import NamedTuple

import numpy as np
import pytest
from numba import njit, typeof

from dml import sim
from dml.sim.comm import VirtualComm
from dml.types import Edges
from dml.wire.comm import Metered
from dml.wire.memory import locked
from dml.wire.memory.atomics import LINE, add, barrier, load
from dml.wire.memory.shared import load_shared, shared_zeros
from dml.wire.memory.state import state


@pytest.mark.parametrize("host", (0, 1, 2, 3))
@pytest.mark.parametrize("size", (1, 2, 5, 6))
@pytest.mark.parametrize("dtype", (np.float32, np.uint16, np.float64))
def test_what_a_rank_writes_its_host_reads(size, host, dtype):
    def program(comm):
        vector, other = (shared_zeros(Metered(comm), size, dtype) for _ in range(2))
        assert vector.dtype == dtype and vector.tolist() == [0] * size
        assert len(shared_zeros(comm, 0)) == 0
        other[:] = 9
        comm.Barrier()
        vector[comm.rank] = comm.rank + 1
        comm.Barrier()
        return vector.tolist()

    found = sim.run(program, size, sim.Uniform(host=host))
    for rank, seen in enumerate(found):
        mine = [r // (host or size) == rank // (host or size) for r in range(size)]
        assert seen == [(r + 1) * here for r, here in enumerate(mine)]


class Tree(NamedTuple):
    """What a rank may load."""

    arrays: list[np.ndarray]
    rest: tuple[str, float]


NUMBERS = np.arange(20.0).reshape(5, 4)
ARRAYS = [NUMBERS, NUMBERS.T, NUMBERS[:, ::2], NUMBERS[:0], np.array(2.0), NUMBERS > 5]
ARRAYS.append(np.broadcast_to(np.float32(3), 4))  # cannot be written


@pytest.mark.parametrize("size, host", ((1, 0), (3, 0), (4, 2)))
def test_one_rank_of_a_host_loads_arrays_that_all_of_it_share(size, host):
    def program(comm):
        calls, loaded = [], Tree(ARRAYS, ("text", 0.5))
        tree = load_shared(comm, lambda: calls.append(comm.rank) or loaded)
        assert calls == ([comm.rank] if comm.rank % (host or size) == 0 else [])
        assert load_shared(comm, lambda: "no array") == "no array"
        assert tree.rest == loaded.rest
        lines = {array.ctypes.data % 64 for array in tree.arrays}
        assert len(lines) == 1  # arrays begin with cache lines
        for array, want in zip(tree.arrays, ARRAYS, strict=True):
            np.testing.assert_array_equal(array, want)
            assert array.shape == want.shape and array.dtype == want.dtype
            assert array.flags.c_contiguous and array.flags.writeable
        comm.Barrier()
        for array in tree.arrays[:2]:
            array[comm.rank, 0] = -1  # an array of one's own would show only this
        comm.Barrier()
        return [(array[:size, 0] == -1).tolist() for array in tree.arrays[:2]]

    found = sim.run(program, size, sim.Uniform(host=host))
    for rank, seen in enumerate(found):
        mine = [r // (host or size) == rank // (host or size) for r in range(size)]
        assert seen == [mine] * 2


def test_memory_that_was_used_before_is_zeroed(monkeypatch):
    new = VirtualComm.shared_window

    def used(comm, nbytes):
        window = new(comm, nbytes)
        if comm.rank == 0:
            window.parts[0][:] = 7
        return window

    monkeypatch.setattr(VirtualComm, "shared_window", used)
    assert sim.run(lambda comm: shared_zeros(comm, 3).tolist(), 2) == [[0] * 3] * 2


TIMES = 200_000


@njit(nogil=True)
def count(numbers, flags, me, workers):
    barrier(flags, me, workers)
    for _ in range(TIMES):
        add(numbers, 0, 1)
        load(flags, 0)  # else a compiler would add all at once


def test_a_number_that_two_workers_add_to_has_every_sum():
    numbers, flags = np.zeros(1, np.float32), np.zeros(2 * LINE, np.int64)
    count.compile((typeof(numbers), typeof(flags), typeof(1), typeof(1)))
    both = [Thread(target=count, args=(numbers, flags, me, 2)) for me in (0, 1)]
    for one in both:
        one.start()
    for one in both:
        one.join()
    assert numbers[0] == 2 * TIMES


@pytest.mark.parametrize("last", (0, 1, 2))
def test_nobody_leaves_a_meeting_before_the_last_has_come(last):
    flags = np.zeros(3 * LINE, np.int64)
    left = []

    def come(me):
        barrier(flags, me, 3)
        left.append(me)

    early = [Thread(target=come, args=(me,)) for me in range(3) if me != last]
    for one in early:
        one.start()
    time.sleep(0.03)
    assert not left
    come(last)
    for one in early:
        one.join()
    assert sorted(left) == [0, 1, 2]


def test_all_rows_of_an_edge_are_locked_and_no_others():
    edges = Edges(np.array([0, 2, 5]), np.array([0, 1, 2, 4, 5], np.uint32))
    locks = state(np.zeros(7), 1, False, False, np.zeros).sync
    locked.before_changes(locks, edges, 1, 0, True)
    assert np.flatnonzero(locks.locks).tolist() == [2, 4, 5]
    locked.leave(locks, edges, 1, 0, True)
    assert not locks.locks.any()
