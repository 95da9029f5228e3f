"""Schedules as data against what the all-reduces themselves send."""

from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.wire import cost
from dml.wire.cost import Job
from dml.wire.messages import ALLREDUCE, Metered
from dml.wire.schedules import SCHEDULES
from dml.wire.topology import groups, segments

FLAT = sorted(SCHEDULES.keys() - {"hierarchical"})
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 33)
FAR = sim.Uniform(host=1)  # every rank on its own host


class Spy(Metered):
    """Writes down what a rank sends, in order, by the world's ranks."""

    def __init__(self, comm, origin=None):
        super().__init__(comm, origin)
        self.sent = origin.sent if origin else []

    def count(self, operation, buffer, dest):
        self.sent.append((self.names[dest], buffer.nbytes))

    def Split(self, color=0, key=0):
        return Spy(self.comm.Split(color, key), self)


def watched(allreduce, size, length, dtype=np.float32):
    """What every rank sends in an all-reduce: (dest, nbytes), in order."""

    def program(comm):
        spy = Spy(comm)
        buffer = np.ones(length, dtype)
        allreduce(spy, buffer)  # groups are made here
        spy.sent.clear()
        allreduce(spy, buffer)
        return spy.sent

    return sim.run(program, size, FAR)


def told(schedule, size):
    """What every rank sends by a schedule."""
    sent = [[] for _ in range(size)]
    for one in schedule:
        rows = zip(one.source, one.dest, one.nbytes, strict=True)
        for source, dest, nbytes in [tuple(map(int, row)) for row in rows] * one.times:
            for part in segments(nbytes, one.segment or nbytes or 1):
                sent[source].append((dest, part.stop - part.start))
    return sent


def sent_words(schedule, size, itemsize):
    words = np.zeros(size, np.int64)
    for one in schedule:
        np.add.at(words, one.source, one.nbytes // itemsize * one.times)
    return words.tolist()


def lengths(size):
    return (0, 1, size - 1, size, size + 1, 1000)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FLAT)
def test_a_schedule_is_what_the_all_reduce_sends_message_for_message(name, size):
    for length in lengths(size):
        for dtype, segment in ((np.float32, 1 << 18), (np.float64, 103)):
            allreduce = partial(ALLREDUCE[name], segment=segment)
            sent = watched(allreduce, size, length, dtype)
            itemsize = np.dtype(dtype).itemsize
            assert told(SCHEDULES[name](size, length, itemsize, segment), size) == sent


@pytest.mark.parametrize("name", FLAT)
def test_a_segment_is_at_least_one_element(name):
    sent = watched(partial(ALLREDUCE[name], segment=3), 5, 7, np.float64)
    assert told(SCHEDULES[name](5, 7, 8, 3), 5) == sent


@pytest.mark.parametrize("outside", FLAT)
@pytest.mark.parametrize("size", SIZES)
def test_a_hierarchical_schedule_is_too_whatever_its_groups(size, outside):
    for width in {1, 2, 3, 4, size}:
        members = groups((0,) * size, width)
        allreduce = partial(
            ALLREDUCE["hierarchical"], group=width, outside=ALLREDUCE[outside]
        )
        for length in (0, size - 1, 1000, 300_003 if size in (2, 6) else 1):
            schedule = SCHEDULES["hierarchical"](
                size, length, members=members, outside=SCHEDULES[outside]
            )
            assert told(schedule, size) == watched(allreduce, size, length)


@pytest.mark.parametrize("name", FLAT)
def test_a_schedule_sends_the_words_that_its_cost_says(name):
    for size in (*range(1, 40), 100):
        for length in lengths(size):
            job = Job(size, length, itemsize=8)
            schedule = SCHEDULES[name](size, length, 8)
            assert sent_words(schedule, size, 8) == cost.words(name, job)


def test_a_hierarchical_schedule_does_too():
    for size in range(1, 30):
        for width, outside in ((1, "star"), (3, "ring"), (4, "butterfly"), (7, "tree")):
            members = groups((0,) * size, width)
            sizes = tuple(map(len, members))
            for length in lengths(size):
                job = Job(size, length, groups=sizes, hosts=False, outside=outside)
                schedule = SCHEDULES["hierarchical"](
                    size, length, members=members, outside=SCHEDULES[outside]
                )
                assert sent_words(schedule, size, 4) == cost.words("hierarchical", job)


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_no_rank_sends_twice_or_receives_twice_in_a_round(name):
    for size in range(1, 40):
        for one in SCHEDULES[name](size, 2 * size + 1):
            assert len(set(one.source.tolist())) == len(one.source) > 0
            assert len(set(one.dest.tolist())) == len(one.dest)
            assert len(one.nbytes) == len(one.source) == len(one.dest)
            assert not np.any(one.source == one.dest)


def test_groups_may_lie_anywhere():
    """Members of a group need not be neighbours: rank r on group r mod 3."""
    members = [[0, 3, 6], [1, 4, 7], [2, 5]]
    schedule = list(SCHEDULES["hierarchical"](8, 20, members=members))
    place = {
        rank: (g, k) for g, group in enumerate(members) for k, rank in enumerate(group)
    }
    for one in schedule:
        for source, dest in zip(one.source.tolist(), one.dest.tolist(), strict=True):
            same_group = place[source][0] == place[dest][0]
            same_place = place[source][1] == place[dest][1]
            assert same_group != same_place


def test_a_million_ranks_have_few_rounds():
    size = 1 << 20
    rounds = {name: 0 for name in ("butterfly", "halving_doubling", "tree", "ring")}
    for name in rounds:
        for one in SCHEDULES[name](size, 4 * size):
            rounds[name] += one.times
            assert len(one.source) <= size
    assert rounds == {
        "butterfly": 20,
        "halving_doubling": 40,
        "tree": 40,
        "ring": 2 * (size - 1),
    }
