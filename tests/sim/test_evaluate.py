"""Schedules evaluated against the world that runs them, rank by rank."""

from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.sim.evaluate import messages
from dml.sim.evaluate_routed import evaluate_routed
from dml.types import BadInput, Round
from dml.wire.collectives import ALLREDUCE
from dml.wire.costs import allreduce as cost
from dml.wire.costs.allreduce import Job, Rates
from dml.wire.plans.schedules import SCHEDULES
from dml.wire.plans.topology import groups

ALPHA, BETA, GAMMA = 1.3e-6, 0.7e-9, 0.3e-9
RATES = Rates(ALPHA, BETA, GAMMA)
FLAT = sorted(SCHEDULES.keys() - {"hierarchical"})
SIZES = (*range(2, 18), 33, 64)
EAGER = (0, 1 << 40)


def uniform(eager=65536):
    return sim.Uniform(ALPHA, BETA, GAMMA, eager, host=1)


def running(allreduce, size, length, network, delays=None):
    """Every rank's clock before and after an all-reduce on virtual ranks."""

    def program(comm):
        buffer = np.ones(length, np.float32)
        allreduce(comm, buffer)  # groups are made here
        comm.Barrier()
        if delays is not None:
            comm.platform.compute(delays[comm.rank])
        start = comm.Wtime()
        allreduce(comm, buffer)
        return start, comm.Wtime()

    return np.array(sim.run(program, size, network)).T


def agree(allreduce, schedule, size, length, eager, delays=None):
    """Compare clocks, to the last bit where every addition is made in the same order.

    What is skipped, because it only shifts, is one product there and many sums here.
    """
    network = uniform(eager)
    start, end = running(allreduce, size, length, network, delays)
    rounds = list(schedule)
    found = sim.evaluate(rounds, network, size, start)
    assert found.exact
    skips = any(
        one.times > 1 or 0 < 3 * one.segment < one.nbytes.max() for one in rounds
    )
    np.testing.assert_allclose(found.clocks, end, rtol=1e-12 if skips else 0, atol=0)


def delays(size):
    return np.random.default_rng(0).exponential(1e-5, size).tolist()


@pytest.mark.parametrize("size", (2, 3, 4, 5, 7, 8, 13, 16))
@pytest.mark.parametrize("name", FLAT)
def test_segments_overlap_as_they_do_there_and_late_ranks_too(name, size):
    for eager in EAGER:
        for segment in (4, 60, 1 << 20):
            for late in (None, delays(size)):
                allreduce = partial(ALLREDUCE[name], segment=segment)
                schedule = SCHEDULES[name](size, 151, segment=segment)
                agree(allreduce, schedule, size, 151, eager, late)


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_both_cases_of_the_evaluator_give_the_same_bits(name):
    """With segments that are all eager, or none, and too few to skip any."""
    for size in (2, 3, 5, 8, 13, 33):
        for eager in EAGER:
            for length in (0, 1, size + 1, 10 * size + 1, 151):
                late = np.array(delays(size))
                rounds = list(SCHEDULES[name](size, length, segment=300))
                rounds = [one for one in rounds for _ in range(one.times)]
                rounds = [one._replace(times=1) for one in rounds]
                network = uniform(eager)
                found = sim.evaluate(rounds, network, size, late).clocks
                linked = evaluate_routed(rounds, network, network.rates, late)
                assert found.tolist() == linked.tolist()


@pytest.mark.parametrize("outside", FLAT)
def test_groups_of_any_width_keep_their_clocks(outside):
    for size in (2, 5, 8, 13):
        for width in (1, 2, 3, 4):
            members = groups((0,) * size, width)
            allreduce = partial(
                ALLREDUCE["hierarchical"], group=width, outside=ALLREDUCE[outside]
            )
            for length in (0, 7, 1000):
                for eager in EAGER:
                    schedule = SCHEDULES["hierarchical"](
                        size, length, members=members, outside=SCHEDULES[outside]
                    )
                    agree(allreduce, schedule, size, length, eager, delays(size))


@pytest.mark.parametrize("size", (*range(2, 65), 1000))
@pytest.mark.parametrize("name", FLAT)
def test_the_slowest_rank_takes_what_the_formula_says(name, size):
    for length, segment in ((size - 1, 1 << 18), (4 * size, 64), (20_000, 30_000)):
        if (size, name) == (1000, "ring") and length % size:
            length = 3 * size + 1
        schedule = SCHEDULES[name](size, length, segment=segment)
        found = sim.evaluate(schedule, uniform(), size)
        job = Job(size, length, segment=segment)
        assert max(found.clocks) == pytest.approx(
            cost.seconds(name, job, RATES), rel=1e-9
        )


def test_even_groups_take_what_the_formula_says():
    for size, width in ((4, 2), (12, 3), (64, 8), (1000, 10)):
        members = groups((0,) * size, width)
        job = Job(size, 4000, groups=tuple(map(len, members)), hosts=False)
        schedule = SCHEDULES["hierarchical"](size, 4000, members=members)
        found = sim.evaluate(schedule, uniform(), size)
        seconds = cost.seconds("hierarchical", job, RATES)
        assert max(found.clocks) == pytest.approx(seconds, rel=1e-9)


@pytest.mark.parametrize("name", ("tree", "halving_doubling", "ring"))
def test_a_million_ranks_take_what_the_formula_says(name):
    size = 1 << 20
    found = sim.evaluate(SCHEDULES[name](size, size), uniform(), size)
    job = Job(size, size)
    assert max(found.clocks) == pytest.approx(cost.seconds(name, job, RATES), rel=1e-9)


def test_a_million_ranks_of_a_butterfly_take_what_the_books_say():
    size, nbytes = 1 << 20, 4000
    found = sim.evaluate(SCHEDULES["butterfly"](size, 1000), uniform(), size)
    book = 20 * (ALPHA + nbytes * (BETA + GAMMA))
    np.testing.assert_allclose(found.clocks, book, rtol=1e-12)


def test_a_late_rank_is_waited_for_however_often_a_round_is_repeated():
    """Its lateness travels round the ring; until it is everywhere, not all shift."""
    size, late = 50, [0.0] * 50
    late[7] = 1e-3
    schedule = SCHEDULES["ring"](size, 500)
    agree(ALLREDUCE["ring"], schedule, size, 500, 1 << 40, late)


def test_ranks_outside_a_round_keep_their_clocks():
    one = np.array([0]), np.array([2]), np.array([100])
    start = np.array([0.0, 5.0, 0.0])
    found = sim.evaluate([Round(*one, False)], uniform(), 3, start)
    took = ALPHA + BETA * 100
    assert found.clocks.tolist() == [took, 5.0, took]
    assert start.tolist() == [0, 5, 0]


def test_small_rounds_are_not_lost_in_late_clocks():
    """Of so late a clock the last bit is 2e-12 s; a round is repeated 999 times."""
    size, late = 1000, 1e4
    begun, later = (
        sim.evaluate(SCHEDULES["ring"](size, size), uniform(), size, start).clocks
        for start in (np.zeros(size), np.full(size, late))
    )
    np.testing.assert_allclose(later - late, begun, rtol=0, atol=5e-12)


@pytest.mark.parametrize("nbytes, parts", ((8, 1), (9, 2), (16, 2), (17, 3)))
def test_the_last_segment_may_be_of_any_length(nbytes, parts):
    one = np.array([0]), np.array([1]), np.array([nbytes])
    found = sim.evaluate([Round(*one, False, 8)], uniform(), 2).clocks
    assert found == pytest.approx([parts * ALPHA + nbytes * BETA] * 2, rel=1e-12)


def test_segments_are_counted_one_by_one_and_an_empty_message_is_one():
    one = np.array([0, 1]), np.array([1, 0]), np.array([9, 0])
    assert messages([Round(*one, False, 4, 3), Round(*one, False)]) == 3 * 4 + 2


def test_nothing_to_do_takes_no_time():
    assert sim.evaluate([], uniform(), 3).clocks.tolist() == [0, 0, 0]


def test_clocks_to_start_from_must_be_one_a_rank():
    with pytest.raises(BadInput, match="expected 3 clocks"):
        sim.evaluate([], uniform(), 3, np.zeros(2))


@pytest.mark.parametrize("name", FLAT)
def test_a_schedule_of_more_ranks_is_refused(name):
    with pytest.raises(BadInput, match="ranks 0 … 6, got .* rank 7"):
        sim.evaluate(SCHEDULES[name](8, 100), uniform(), 7)


@pytest.mark.parametrize("source, dest", ((0, 7), (7, 0), (0, -1), (-1, 0)))
def test_a_message_of_or_to_a_rank_that_is_not_there_is_refused(source, dest):
    one = Round(np.array([source]), np.array([dest]), np.array([8]), False)
    with pytest.raises(BadInput, match="expected a schedule of ranks 0 … 6"):
        sim.evaluate([one], uniform(), 7)
