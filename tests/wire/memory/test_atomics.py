"""Who waits, for whom, and that a sum of two workers loses nothing."""

import time
from threading import Thread

import numpy as np
import pytest
from numba import njit, typeof

from dml.types import Edges
from dml.wire.memory import locked
from dml.wire.memory.atomics import LINE, add, barrier, load
from dml.wire.memory.state import state

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
        one.join(10)
    assert sorted(left) == [0, 1, 2]


def test_all_rows_of_an_edge_are_locked_and_no_others():
    edges = Edges(np.array([0, 2, 5]), np.array([0, 1, 2, 4, 5], np.uint32))
    locks = state(np.zeros(7), 1, False, False, np.zeros).sync
    locked.turn(locks, edges, 1, 0, True)
    assert np.flatnonzero(locks.locks).tolist() == [2, 4, 5]
    locked.leave(locks, edges, 1, 0, True)
    assert not locks.locks.any()
