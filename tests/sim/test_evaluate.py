"""Schedules evaluated against the world that runs them, rank by rank."""

from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.sim.evaluate import messages
from dml.sim.evaluate_routed import evaluate_routed, process_messages
from dml.sim.evaluate_tables import NONE, build
from dml.sim.networks.fabric import Rates as LinkRates
from dml.sim.networks.named import network
from dml.types import BadInput, Round
from dml.wire.collectives import ALLREDUCE
from dml.wire.costs import allreduce as cost
from dml.wire.costs.allreduce import Job, Rates
from dml.wire.plans.schedules import SCHEDULES
from tests.sim.play import Line

ALPHA, BETA, GAMMA = 1.3e-6, 0.7e-9, 0.3e-9
RATES = Rates(ALPHA, BETA, GAMMA)
STREET = LinkRates(ALPHA, BETA, GAMMA, hop=1e-7, link=0.9e-9)
FLAT = sorted(SCHEDULES.keys() - {"hierarchical"})
EAGER = (0, 1 << 40)
LIMITS = (0, 300, 1 << 40)  # of the street


def uniform(eager=65536):
    return sim.Uniform(ALPHA, BETA, GAMMA, eager, host=1)


def street(eager=0, size=8):
    """Crossings in a row, two ranks at each; no two links are alike."""
    return Line(size, STREET._replace(eager=eager), seats=2, spread=3.0)


def delays(size, mean=1e-5):
    return np.random.default_rng(size).exponential(mean, size).tolist()


def agree(allreduce, schedule, size, length, place, late=None, exact=True, before=0):
    """Compare every rank's clock with the running world's, to the last bit if `exact`.

    What is skipped, because it only shifts, is one product there and many sums here.
    `before`: all-reduces before the one that is compared, which make its groups.
    """

    def program(comm):
        buffer = np.ones(length, np.float32)
        for _ in range(before):
            allreduce(comm, buffer)
            comm.Barrier()
        if late is not None:
            comm.platform.compute(late[comm.rank])
        start = comm.Wtime()
        allreduce(comm, buffer)
        return start, comm.Wtime()

    start, end = np.array(sim.run(program, size, place)).T
    found = sim.evaluate(schedule, place, size, start)
    assert found.exact
    np.testing.assert_allclose(found.clocks, end, rtol=0 if exact else 1e-12, atol=0)


def skips(rounds):
    """Whether the evaluator may skip repetitions of a round or of a segment."""
    return any(
        one.times > 1 or 0 < 3 * one.segment < one.nbytes.max() for one in rounds
    )


@pytest.mark.parametrize("size", (2, 3, 5, 8, 13))
@pytest.mark.parametrize("name", FLAT)
def test_segments_overlap_as_they_do_there_and_late_ranks_too(name, size):
    for number, segment in enumerate((4, 60, 1 << 20)):
        allreduce = partial(ALLREDUCE[name], segment=segment)
        rounds = list(SCHEDULES[name](size, 151, segment=segment))
        for late, eager in enumerate(EAGER if number % 2 else EAGER[::-1]):
            place, exact = uniform(eager), not skips(rounds)
            start = delays(size) if late else None
            agree(allreduce, rounds, size, 151, place, start, exact, before=1)


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_both_cases_of_the_evaluator_give_the_same_bits(name):
    """With segments that are all eager, or none, and too few to skip any."""
    for size in (2, 3, 8, 13):
        for eager in EAGER:
            for length in (0, 1, size + 1, 151):
                late = np.array(delays(size))
                rounds = list(SCHEDULES[name](size, length, segment=300))
                rounds = [one for one in rounds for _ in range(one.times)]
                rounds = [one._replace(times=1) for one in rounds]
                place = uniform(eager)
                found = sim.evaluate(rounds, place, size, late).clocks
                linked = evaluate_routed(rounds, place, place.rates, late)
                assert found.tolist() == linked.tolist()


@pytest.mark.parametrize("name", ("tree", "butterfly", "halving_doubling", "ring"))
def test_a_million_ranks_take_the_seconds_of_the_formula(name):
    size = 1 << 20
    clocks = sim.evaluate(SCHEDULES[name](size, size), uniform(), size).clocks
    seconds = cost.seconds(name, Job(size, size), RATES)
    assert max(clocks) == pytest.approx(seconds, rel=1e-9)


def test_a_late_rank_is_waited_for_however_often_a_round_is_repeated():
    """Its lateness travels round the ring; until it is everywhere, not all shift."""
    size, late = 50, [0.0] * 50
    late[7] = 1e-3
    schedule = SCHEDULES["ring"](size, 500)
    agree(ALLREDUCE["ring"], schedule, size, 500, uniform(1 << 40), late, exact=False)


def one_round(source, dest, nbytes, *how, times=1):
    arrays = [np.array(each) for each in (source, dest, nbytes)]
    return Round(*arrays, False, *how, times=times)


def test_small_rounds_are_not_lost_in_late_clocks():
    """Of so late a clock the last bit is 2e-12 s; a round is repeated 999 times."""
    size, late = 1000, 1e4
    begun, later = (
        sim.evaluate(SCHEDULES["ring"](size, size), uniform(), size, start).clocks
        for start in (np.zeros(size), np.full(size, late))
    )
    np.testing.assert_allclose(later - late, begun, rtol=0, atol=5e-12)


def test_segments_are_counted_one_by_one_and_an_empty_message_is_one():
    one = [0, 1], [1, 0], [9, 0]
    assert messages([one_round(*one, 4, times=3), one_round(*one)]) == 3 * 4 + 2


@pytest.mark.parametrize(
    "schedule, place, start, why",
    [
        ([], uniform(), np.zeros(2), "expected 7 clocks in"),
        ([], street(size=6), None, "1 to 6 ranks"),
        *(
            (SCHEDULES[name](8, 100), uniform(), None, "ranks 0 … 6, got .* rank 7")
            for name in FLAT
        ),
        *(
            ([one_round([a], [b], [8])], uniform(), None, "a schedule of ranks 0 … 6")
            for a, b in ((0, 7), (7, 0), (0, -1), (-1, 0))
        ),
    ],
)
def test_what_does_not_fit_7_ranks_is_refused(schedule, place, start, why):
    with pytest.raises(BadInput, match=why):
        sim.evaluate(schedule, place, 7, start)


# On networks with links: to the last bit, as the order of departures is one.


@pytest.mark.parametrize("eager", LIMITS)
@pytest.mark.parametrize("name", FLAT)
def test_every_ranks_clock_on_a_street_is_that_of_the_running_world(name, eager):
    """Ranks begin at different times: no two messages come to a link at once."""
    place = street(eager)
    for size in (1, 2, 5, 8):
        for length, segment in ((0, 99), (1, 99), (151, 1000), (1200, 500)):
            allreduce = partial(ALLREDUCE[name], segment=segment)
            schedule = SCHEDULES[name](size, length, segment=segment)
            agree(allreduce, schedule, size, length, place, delays(size, 2e-6))
    # Ranks that begin at once depart in their order.
    agree(ALLREDUCE[name], SCHEDULES[name](8, 304), 8, 304, place)


@pytest.mark.parametrize("text", ("torus:4x4", "fat_tree", "dragonfly", "slim_fly:5"))
@pytest.mark.parametrize("name", FLAT)
def test_it_is_on_every_kind_of_network(name, text):
    for size in (5, 16):
        place = network(f"{text}@1.3e-6,0.7e-9,0.3e-9", size)
        for length in (3, 1000):
            schedule = SCHEDULES[name](size, length)
            agree(ALLREDUCE[name], schedule, size, length, place, delays(size, 2e-6))


def test_all_room_is_free_again_when_all_messages_are_there():
    for place in map(street, LIMITS):
        rounds = list(SCHEDULES["ring"](8, 300, segment=100))
        machine = build(rounds, place, place.rates, np.zeros(8), 999)
        assert process_messages(machine)
        slot, free = machine.free[0], 0
        while slot != NONE:
            slot, free = machine.slots[slot]["after"], free + 1
        assert free == 999


def test_many_equal_rounds_are_extrapolated_and_marked():
    size, place = 16, network("torus:4x4", 16)
    schedule = [one._replace(times=300) for one in SCHEDULES["ring"](size, 16_000)]
    exact = sim.evaluate(schedule, place, size)
    found = sim.evaluate(schedule, place, size, max_messages=size * 60)
    assert exact.exact and not found.exact
    # What a ring does at its beginning is gone after p rounds; then it repeats itself.
    np.testing.assert_allclose(found.clocks, exact.clocks, rtol=1e-9)
