"""Schedules on networks with links against the world that runs them, rank by rank."""

from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.sim.evaluate_routed import drive
from dml.sim.evaluate_tables import NONE, build
from dml.sim.networks.fabric import Links, Paths, Rates
from dml.sim.networks.named import network
from dml.types import BadInput, Round
from dml.wire.collectives import ALLREDUCE
from dml.wire.plans.schedules import SCHEDULES
from dml.wire.plans.topology import groups

FLAT = sorted(SCHEDULES.keys() - {"hierarchical"})
EAGER = (0, 300, 1 << 40)
RATES = Rates(1.3e-6, 0.7e-9, 0.3e-9, hop=1e-7, link=0.9e-9)


class Street:
    """Four crossings in a row, two ranks at each; no two links are alike."""

    capacity, crossings = 8, 4

    def __init__(self, eager=0, rates=RATES):
        self.rates = rates._replace(eager=eager)

    def links(self):
        count = 2 * (self.crossings - 1)
        return Links(np.linspace(1e-7, 3e-7, count), np.linspace(0.5e-9, 2e-9, count))

    def paths(self, source, dest):
        ways = []
        for here, there in zip(source // 2, dest // 2, strict=True):
            back = [self.crossings - 1 + k for k in range(here - 1, there - 1, -1)]
            ways.append([*range(here, there), *back])
        count = len(ways)
        alpha, beta = np.full((2, count), [[self.rates.alpha], [self.rates.beta]])
        starts = np.concatenate([[0], np.cumsum([len(way) for way in ways])])
        links = np.array([link for way in ways for link in way], np.int32)
        return Paths(alpha, beta, starts.astype(np.int64), links)

    def hosts(self, size):
        return list(range(size))


def agree(allreduce, schedule, size, length, place):
    """Compare every rank's clock, to the last bit: the order of departures is one.

    Ranks begin at different times, so that no two messages come to a link at once.
    """
    delays = np.random.default_rng(size).exponential(2e-6, size)

    def program(comm):
        comm.platform.compute(float(delays[comm.rank]))
        allreduce(comm, np.ones(length, np.float32))
        return comm.Wtime()

    found = sim.evaluate(schedule, place, size, delays)
    assert found.exact
    assert found.clocks.tolist() == sim.run(program, size, place)


@pytest.mark.parametrize("eager", EAGER)
@pytest.mark.parametrize("name", FLAT)
def test_every_ranks_clock_is_that_of_the_running_world(name, eager):
    for size in (1, 2, 3, 5, 8):
        for length, segment in ((0, 99), (1, 99), (151, 1000), (151, 200), (1200, 500)):
            allreduce = partial(ALLREDUCE[name], segment=segment)
            schedule = SCHEDULES[name](size, length, segment=segment)
            agree(allreduce, schedule, size, length, Street(eager))


@pytest.mark.parametrize("text", ("torus:4x4", "fat_tree", "dragonfly", "slim_fly:5"))
@pytest.mark.parametrize("name", FLAT)
def test_it_is_on_every_kind_of_network(name, text):
    for size in (5, 16):
        for length in (3, 1000):
            place = network(f"{text}@1.3e-6,0.7e-9,0.3e-9", size)
            agree(ALLREDUCE[name], SCHEDULES[name](size, length), size, length, place)


@pytest.mark.parametrize("name", FLAT)
def test_ranks_that_begin_at_once_depart_in_their_order(name):
    for place in map(Street, EAGER):

        def program(comm):
            ALLREDUCE[name](comm, np.ones(304, np.float32))
            return comm.Wtime()

        found = sim.evaluate(SCHEDULES[name](8, 304), place, 8)
        assert found.clocks.tolist() == sim.run(program, 8, place)


@pytest.mark.parametrize("width", (1, 2, 3))
def test_groups_keep_their_clocks(width):
    size, members = 8, groups(tuple(range(8)), width)
    for place in map(Street, EAGER):

        def program(comm):
            buffer = np.ones(1001, np.float32)
            ALLREDUCE["hierarchical"](comm, buffer, group=width)  # groups are made here
            comm.Barrier()
            start = comm.Wtime()
            ALLREDUCE["hierarchical"](comm, buffer, group=width)
            return start, comm.Wtime()

        start, end = np.array(sim.run(program, size, place)).T
        schedule = SCHEDULES["hierarchical"](size, 1001, members=members)
        assert (sim.evaluate(schedule, place, size, start).clocks == end).all()


def one_round(source, dest, nbytes, **how):
    arrays = [np.array(each) for each in (source, dest, nbytes)]
    return Round(*arrays, how.pop("reduces", False), **how)


def test_a_message_alone_takes_what_the_fabric_says():
    place, nbytes = Street(eager=1 << 40), 1000
    alpha, beta = place.links()
    found = sim.evaluate([one_round([0], [7], [nbytes])], place, 8).clocks
    head, narrowest = sum(alpha[:3]), max(RATES.beta, *beta[:3])
    assert found[7] == pytest.approx(head + RATES.alpha + nbytes * narrowest, rel=1e-12)
    assert found[0] == pytest.approx(RATES.alpha + nbytes * RATES.beta, rel=1e-12)
    assert not found[1:7].any()


def test_messages_over_one_link_take_turns_and_lower_ranks_go_first():
    """Ranks 0 and 1 both send over the link from crossing 0 to 1."""
    place, nbytes = Street(eager=1 << 40), 100_000
    alpha, beta = place.links()
    alone = sim.evaluate([one_round([1], [3], [nbytes])], place, 8).clocks[3]
    found = sim.evaluate([one_round([1, 0], [3, 2], [nbytes] * 2)], place, 8).clocks
    assert found[2] == pytest.approx(alone, rel=1e-12)
    assert found[3] == pytest.approx(alone + nbytes * beta[0], rel=1e-12)


def test_however_many_segments_are_under_way_none_is_lost():
    """More than there is room for at first."""
    schedule = partial(SCHEDULES["star"], 8, 2000, segment=4)
    allreduce = partial(ALLREDUCE["star"], segment=4)
    agree(allreduce, schedule(), 8, 2000, Street(1 << 40))


def test_all_room_is_free_again_when_all_messages_are_there():
    for place in map(Street, EAGER):
        rounds = list(SCHEDULES["ring"](8, 300, segment=100))
        machine = build(rounds, place, place.rates, np.zeros(8), 999)
        assert drive(machine)
        slot, free = machine.free[0], 0
        while slot != NONE:
            slot, free = machine.slots[slot]["after"], free + 1
        assert free == 999


def test_what_repeats_too_often_is_extrapolated_and_says_so():
    size, place = 16, network("torus:4x4", 16)
    schedule = [one._replace(times=300) for one in SCHEDULES["ring"](size, 16_000)]
    exact = sim.evaluate(schedule, place, size)
    found = sim.evaluate(schedule, place, size, most=size * 60)
    assert exact.exact and not found.exact
    # What a ring does at its beginning is gone after p rounds; then it repeats itself.
    np.testing.assert_allclose(found.clocks, exact.clocks, rtol=1e-9)


def test_what_never_repeats_is_not_cut_short():
    schedule = list(SCHEDULES["butterfly"](8, 100))
    found = sim.evaluate(schedule, Street(), 8, most=1)
    assert found.exact
    assert (found.clocks == sim.evaluate(schedule, Street(), 8).clocks).all()


def test_nothing_to_do_takes_no_time():
    assert sim.evaluate([], Street(), 3).clocks.tolist() == [0, 0, 0]


def test_more_ranks_than_a_network_holds_are_refused():
    with pytest.raises(BadInput, match="1 to 8 ranks"):
        sim.evaluate([], Street(), 9)
