"""Predicted seconds against virtual time."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml import sim
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.comm.buffers import allocate
from dml.wire.costs import allreduce as cost
from dml.wire.costs.allreduce import Job, Rates
from dml.wire.plans.topology import groups

ALPHA, BETA, GAMMA = 1.3e-6, 0.7e-9, 0.3e-9
RATES = Rates(ALPHA, BETA, GAMMA, barrier=ALPHA)  # virtual ranks copy in no time
NAMES = sorted(ALLREDUCE.keys() - {"auto", "hierarchical"})
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 31)
BY_HAND = sorted(set(NAMES) - {"native"})
few = settings(max_examples=80, derandomize=True, deadline=None, database=None)


def measured(allreduce, job, eager=65536, host=0):
    """Virtual seconds of the slowest rank."""

    def program(comm):
        dtype = np.dtype(f"f{job.itemsize}")
        if job.registered:
            buffer = allocate(comm, job.length, dtype)
        else:
            buffer = np.empty(job.length, dtype)
        buffer[:] = comm.rank
        allreduce(comm, buffer)  # makes what is kept between calls
        comm.Barrier()
        start = comm.Wtime()
        allreduce(comm, buffer)
        return comm.Wtime() - start

    network = sim.Uniform(ALPHA, BETA, GAMMA, eager, host)
    return max(sim.run(program, job.size, network))


def agree(name, job, allreduce=None, eager=65536):
    took = measured(allreduce or ALLREDUCE[name], job, eager)
    assert took == pytest.approx(cost.seconds(name, job, RATES), rel=1e-9, abs=0)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ("shared", "native"))
def test_all_reduces_without_a_schedule_take_the_seconds_of_their_formulas(name, size):
    for length in (0, 1, size - 1, size, size + 1, 1000):
        for registered in (False, True):
            agree(name, Job(size, length, registered=registered))


def test_a_shared_all_reduce_sends_no_words():
    def program(comm):
        metered = Metered(comm)
        ALLREDUCE["shared"](metered, allocate(metered, 1000, np.float32))
        return metered.bytes_sent

    assert sim.run(program, 3) == [0] * 3


@pytest.mark.parametrize("size", (2, 3, 6, 8))
@pytest.mark.parametrize("name", NAMES)
def test_many_segments_and_stages_cost_what_is_predicted(name, size):
    for registered in (False, True):
        agree(name, Job(size, 700_001, itemsize=8, registered=registered))


@pytest.mark.parametrize(
    "name", ("star", "tree", "butterfly", "halving_doubling", "ring")
)
@few
@given(
    size=st.integers(1, 20),
    length=st.integers(0, 500),
    itemsize=st.sampled_from((2, 4, 8)),
    segment=st.integers(1, 600),
    eager=st.sampled_from((0, 300, 1 << 30)),
)
def test_any_segment_costs_what_is_predicted(
    name, size, length, itemsize, segment, eager
):
    job = Job(size, length, itemsize, segment=segment)
    agree(name, job, partial(ALLREDUCE[name], segment=segment), eager)


@pytest.mark.parametrize("eager", (0, 65536))
@pytest.mark.parametrize("size", SIZES)
def test_hierarchical_costs_are_exact_for_even_groups_and_a_bound_else(size, eager):
    for length in (0, 1, size + 1, 1000, 100_003):
        for width in {1, 2, 3, 4, size} - set(range(size + 1, 5)):
            for host, outside in ((0, "ring"), (1, "ring"), (1, "tree"), (0, "star")):
                members = tuple(map(len, groups((0,) * size, width)))
                hosts = host == 0 or width == 1
                job = Job(size, length, groups=members, hosts=hosts, outside=outside)
                allreduce = partial(
                    ALLREDUCE["hierarchical"], group=width, outside=ALLREDUCE[outside]
                )
                took = measured(allreduce, job, eager, host)
                bound = cost.seconds("hierarchical", job, RATES)
                assert 0.9 * bound <= took <= bound * (1 + 1e-9)
                if len(set(members)) == 1:
                    assert took == pytest.approx(bound, rel=1e-9, abs=0)


@pytest.mark.parametrize("size", (2, 4, 8, 64))
@pytest.mark.parametrize("name", ("ring", "halving_doubling", "butterfly", "tree"))
def test_seconds_are_those_of_the_books_where_nothing_is_uneven(name, size):
    """ALGORITHMS.md, with one segment and p a power of two that divides n."""
    n, lg = 64_000, round(math.log2(size))
    a, b, g = ALPHA, BETA * 4 * n, GAMMA * 4 * n
    share = (size - 1) / size
    book = {
        "ring": 2 * (size - 1) * a + share * (2 * b + g),
        "halving_doubling": 2 * lg * a + share * (2 * b + g),
        "butterfly": lg * (a + b + g),
        "tree": 2 * lg * (a + b) + lg * g,
    }
    job = Job(size, n, segment=1 << 40)
    assert cost.seconds(name, job, RATES) == pytest.approx(book[name], rel=1e-12)


@pytest.mark.parametrize("size, crossing", [(4, 8.0), (8, 8.8), (16, 12.2), (64, 29.8)])
def test_butterfly_beats_ring_up_to_the_crossing_of_the_books(size, crossing):
    """n·β/α where both take as long, if adding costs nothing."""
    exact = (2 * (size - 1) - math.log2(size)) / (
        math.log2(size) - 2 * (size - 1) / size
    )
    assert exact == pytest.approx(crossing, abs=0.05)
    rates = Rates(alpha=1.0, beta=1e-6, gamma=0.0)

    def faster(ratio):
        length = round(ratio / rates.beta / 4 / size) * size
        job = Job(size, length, segment=1 << 60)
        return cost.choose(job, rates, ("ring", "butterfly"))

    assert faster(0.999 * exact) == "butterfly"
    assert faster(1.001 * exact) == "ring"


@pytest.mark.parametrize("nbytes", (1, 1000, 10**6, 10**9))
def test_butterfly_always_beats_ring_between_two_ranks(nbytes):
    rates = Rates(1e-6, 1e-9, 0.0)
    job = Job(2, nbytes, itemsize=1, segment=1 << 60)
    assert cost.choose(job, rates, ("ring", "butterfly")) == "butterfly"


def test_virtual_ranks_cross_where_the_formula_says():
    """Ring against butterfly on 16 virtual ranks, a little before and after."""
    crossing = 12.2 * 1e-6 / 1e-9 / 4

    def took(name, length):
        def program(comm):
            ALLREDUCE[name](comm, np.zeros(length, np.float32), segment=1 << 40)
            return comm.Wtime()

        return max(sim.run(program, 16, sim.Uniform(1e-6, 1e-9, 0.0)))

    for factor, winner in ((0.95, "butterfly"), (1.05, "ring")):
        length = round(factor * crossing / 16) * 16
        assert took(winner, length) == min(
            took("ring", length), took("butterfly", length)
        )


@pytest.mark.parametrize("name", sorted(set(BY_HAND) - {"shared"}))
def test_no_messages_beat_the_yardstick_where_adds_overlap_nothing(name):
    for size in (2, 3, 8, 17):
        for length in (1, 1000, 100_000):
            job = Job(size, length, segment=1 << 60)
            least = cost.seconds("native", job, RATES)
            assert cost.seconds(name, job, RATES) >= least * (1 - 1e-12)


def test_fit_recovers_the_rates_of_a_virtual_network():
    rows = []
    for name in ("ring", "butterfly", "halving_doubling", "tree"):
        for length in (1, 1000, 30_000, 300_000):
            job = Job(5, length)
            rows.append((name, job, measured(ALLREDUCE[name], job)))
    found = cost.fit(rows)
    assert found.alpha == pytest.approx(ALPHA, rel=1e-6)
    assert found.beta == pytest.approx(BETA, rel=1e-6)
    assert found.gamma == pytest.approx(GAMMA, rel=1e-6)


def test_fit_bears_noise_and_finds_the_rates_of_shared_memory_too():
    truth = Rates(2e-6, 4e-10, 1e-10, 5e-7, 2e-10)
    rng, rows = np.random.default_rng(0), []
    for name in ("ring", "butterfly", "shared", "star"):
        for length in (1, 1000, 30_000, 3_000_000):
            for registered in (False, True):
                job = Job(8, length, registered=registered)
                noise = math.exp(rng.normal(0, 0.01))
                rows.append((name, job, noise * cost.seconds(name, job, truth)))
    # 1 % of noise, 32 rows, five rates: within 10 % of each.
    assert cost.fit(rows) == pytest.approx(truth, rel=0.1)


def test_choose_takes_shared_memory_where_meeting_is_cheap():
    job = Job(8, 1 << 20)
    cheap = Rates(1e-6, 1e-9, 1e-10, barrier=1e-7, copy=1e-10)
    dear = cheap._replace(copy=1e-6)
    assert cost.choose(job, cheap, ("ring", "shared")) == "shared"
    assert cost.choose(job, dear, ("ring", "shared")) == "ring"


def test_one_rank_takes_no_time():
    for name in BY_HAND:
        job = Job(1, 1000, groups=(1,))
        assert cost.seconds(name, job, RATES) == 0
