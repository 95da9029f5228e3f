"""Every all-reduce: virtual ranks, schedules, words and predicted seconds agree."""

import math
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dml import sim
from dml.wire.collectives import ALLREDUCE, AUTO, COLLECTIVES
from dml.wire.comm.buffers import allocate
from dml.wire.costs import allreduce as cost
from dml.wire.costs.allreduce import Job, Rates
from dml.wire.plans.schedules import SCHEDULES, words_sent
from dml.wire.plans.topology import SEGMENT, chunks, fold, groups, segments
from tests.sim.test_evaluate import skips
from tests.wire.collectives.spy import Spy

ALPHA, BETA, GAMMA = 1.3e-6, 0.7e-9, 0.3e-9
RATES = Rates(ALPHA, BETA, GAMMA, barrier=ALPHA)  # virtual ranks copy in no time
FLAT = sorted(SCHEDULES.keys() - {"hierarchical"})
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9)
BUFFERS = ((np.float32, SEGMENT), (np.float64, 103), (np.float64, 3))
few = settings(max_examples=40)


def folded(size, per_place):
    """Words of a power of two of places, and of the ranks that are folded into them."""
    power, extra = fold(size)
    return lambda n: (2 * extra + power * per_place(power)) * n


def total(name, job):
    """Words of all ranks by the textbook."""
    size, n = job.size, job.length
    if name == "butterfly":
        return folded(size, lambda power: power.bit_length() - 1)(n)
    if name == "halving_doubling":
        return round(folded(size, lambda power: 2 * (power - 1) / power)(n))
    if name == "hierarchical":
        inside = sum(2 * (group - 1) * n for group in job.groups)
        parts = chunks(n, min(job.groups))
        across = (Job(len(job.groups), part.stop - part.start) for part in parts)
        return inside + sum(total(job.outside, one) for one in across)
    return 2 * (size - 1) * n


def running(allreduce, job, network):
    """Run on virtual ranks; return clocks before and after, and messages by rank."""

    def program(comm):
        spy, dtype = Spy(comm), np.dtype(f"f{job.itemsize}")
        buffer = np.ones(job.length, dtype)
        if job.registered:
            buffer = allocate(spy, job.length, dtype)
        allreduce(spy, buffer)  # makes the groups
        spy.each.clear()
        comm.Barrier()
        start = comm.Wtime()
        allreduce(spy, buffer)
        return start, comm.Wtime(), [message[1:] for message in spy.each]

    start, end, sent = zip(*sim.run(program, job.size, network), strict=True)
    return np.array(start), np.array(end), list(sent)


def messages(rounds, size):
    """Return what every rank sends by a schedule, in order."""
    sent = [[] for _ in range(size)]
    for one in rounds:
        rows = zip(one.source, one.dest, one.nbytes, strict=True)
        for source, dest, nbytes in [tuple(map(int, row)) for row in rows] * one.times:
            for part in segments(nbytes, one.segment or nbytes or 1):
                sent[source].append((dest, part.stop - part.start))
    return sent


def agree(name, allreduce, rounds, job, eager=65536):
    """Compare messages, words and seconds of a run, a schedule and the formulas."""
    network = sim.Uniform(ALPHA, BETA, GAMMA, eager, host=1)
    start, end, sent = running(allreduce, job, network)
    assert messages(rounds, job.size) == sent
    counted = sum(nbytes for row in sent for _, nbytes in row) / job.itemsize
    assert counted == words_sent(rounds, job.itemsize) == total(name, job)
    found = sim.evaluate(rounds, network, job.size, start)
    assert found.exact
    # A skipped repetition is one product in the schedule and many sums in the run.
    near = 1e-12 if skips(rounds) else 0
    np.testing.assert_allclose(found.clocks, end, rtol=near, atol=0)
    seconds_agree(name, job, start, end)


def seconds_agree(name, job, start, end):
    took, formula = end.max() - start.max(), cost.seconds(name, job, RATES)
    if len(set(job.groups)) <= 1:
        assert took == pytest.approx(formula, rel=1e-9, abs=0)
    else:
        assert 0.9 * formula <= took <= formula * (1 + 1e-9)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FLAT)
def test_run_schedule_and_formulas_agree(name, size):
    for i, length in enumerate((0, 1, size - 1, size, size + 1, 1000)):
        for dtype, segment in BUFFERS[:2] if i % 2 else BUFFERS[1:]:
            itemsize = np.dtype(dtype).itemsize
            job = Job(size, length, itemsize, registered=False, segment=segment)
            allreduce = partial(ALLREDUCE[name], segment=segment)
            rounds = list(SCHEDULES[name](size, length, itemsize, segment))
            agree(name, allreduce, rounds, job)


@pytest.mark.parametrize("name", FLAT)
@few
@given(
    size=st.integers(1, 20),
    length=st.integers(0, 500),
    itemsize=st.sampled_from((2, 4, 8)),
    segment=st.integers(1, 600),
    eager=st.sampled_from((0, 300, 1 << 30)),
)
def test_any_segment_and_eager_limit_agree(
    name, size, length, itemsize, segment, eager
):
    job = Job(size, length, itemsize, segment=segment)
    rounds = list(SCHEDULES[name](size, length, itemsize, segment))
    agree(name, partial(ALLREDUCE[name], segment=segment), rounds, job, eager)


@pytest.mark.parametrize("outside", FLAT)
@pytest.mark.parametrize("size", (1, 2, 3, 5, 6, 8, 9))
def test_hierarchical_run_schedule_and_formulas_agree(size, outside):
    for width in {1, 2, 3, 4, size} - set(range(size + 1, 5)):
        members = groups((0,) * size, width)
        allreduce = partial(
            ALLREDUCE["hierarchical"], group=width, outside=ALLREDUCE[outside]
        )
        for length in (0, size - 1, 1000, 300_003 if size in (2, 6) else 1):
            schedule = SCHEDULES["hierarchical"](
                size, length, members=members, outside=SCHEDULES[outside]
            )
            sizes = tuple(map(len, members))
            job = Job(size, length, groups=sizes, hosts=width == 1, outside=outside)
            agree("hierarchical", allreduce, list(schedule), job)
            if outside in ("ring", "star"):  # the same on one host
                network = sim.Uniform(ALPHA, BETA, GAMMA)
                start, end, _ = running(allreduce, job, network)
                seconds_agree("hierarchical", job._replace(hosts=True), start, end)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ("shared", "native"))
@pytest.mark.parametrize("registered", (False, True))
def test_all_reduces_without_a_schedule_send_no_words(name, size, registered):
    for length in (0, 1, size - 1, size, size + 1, 1000):
        job = Job(size, length, registered=registered)
        network = sim.Uniform(ALPHA, BETA, GAMMA)
        start, end, sent = running(ALLREDUCE[name], job, network)
        assert not any(sent)
        seconds_agree(name, job, start, end)


@pytest.mark.parametrize("registered", (False, True))
@pytest.mark.parametrize("size", (3, 8))
@pytest.mark.parametrize("name", sorted(cost.SECONDS.keys() - {"hierarchical"}))
def test_many_segments_and_stages_cost_what_is_predicted(name, size, registered):
    job = Job(size, 700_001, itemsize=8, registered=registered)
    start, end, _ = running(ALLREDUCE[name], job, sim.Uniform(ALPHA, BETA, GAMMA))
    seconds_agree(name, job, start, end)


@pytest.mark.parametrize("host", (1, 2, 3, 5))
def test_groups_on_one_host_send_only_across_groups(host):
    for size in (2, 5, 7, 8):
        for length in (0, 1, 1000):
            hosts = [rank // host for rank in range(size)]
            members = groups(tuple(hosts))
            rounds = SCHEDULES["hierarchical"](size, length, members=members)
            across = [
                [(dest, nbytes) for dest, nbytes in sent if hosts[dest] != hosts[rank]]
                for rank, sent in enumerate(messages(rounds, size))
            ]
            network = sim.Uniform(host=host)
            _, _, sent = running(ALLREDUCE["hierarchical"], Job(size, length), network)
            assert across == sent


@pytest.mark.parametrize("name", sorted(SCHEDULES))
def test_no_rank_sends_twice_or_receives_twice_in_a_round(name):
    for size in range(1, 40):
        for one in SCHEDULES[name](size, 2 * size + 1):
            assert len(set(one.source.tolist())) == len(one.source) > 0
            assert len(set(one.dest.tolist())) == len(one.dest)
            assert not np.any(one.source == one.dest)


def test_groups_may_lie_anywhere():
    """Members of a group need not be neighbours: rank r in group r mod 3."""
    members = [[0, 3, 6], [1, 4, 7], [2, 5]]
    for one in SCHEDULES["hierarchical"](8, 20, members=members):
        for source, dest in zip(one.source.tolist(), one.dest.tolist(), strict=True):
            same_group, same_place = source % 3 == dest % 3, source // 3 == dest // 3
            assert same_group != same_place


def test_every_all_reduce_has_a_schedule_and_a_formula():
    table = COLLECTIVES["allreduce"]
    assert [name for name, one in table.items() if one.seconds is None] == [*AUTO]
    unscheduled = {name for name, one in table.items() if one.schedule is None}
    assert unscheduled == {"shared", "native", *AUTO}


@pytest.mark.parametrize("size", (2, 4, 8, 64))
def test_seconds_are_those_of_the_books_where_nothing_is_uneven(size):
    """The formulas of the docstrings, with one segment; p is a power of two, p | n."""
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
    for name, seconds in book.items():
        assert cost.seconds(name, job, RATES) == pytest.approx(seconds, rel=1e-12)


def test_choose_takes_shared_memory_where_meeting_is_cheap():
    job = Job(8, 1 << 20)
    cheap = Rates(1e-6, 1e-9, 1e-10, barrier=1e-7, copy=1e-10)
    dear = cheap._replace(copy=1e-6)
    assert cost.choose(job, cheap, ("ring", "shared")) == "shared"
    assert cost.choose(job, dear, ("ring", "shared")) == "ring"


@pytest.mark.parametrize("noise, near", [(0, 1e-6), (0.01, 0.1)])
def test_fit_recovers_the_rates_of_a_machine(noise, near):
    truth = Rates(2e-6, 4e-10, 1e-10, 5e-7, 2e-10)
    rng, rows = np.random.default_rng(0), []
    for name in ("ring", "butterfly", "shared", "star"):
        for length in (1, 1000, 30_000, 3_000_000):
            for registered in (False, True):
                job = Job(8, length, registered=registered)
                factor = math.exp(rng.normal(0, noise))
                rows.append((name, job, factor * cost.seconds(name, job, truth)))
    assert cost.fit(rows) == pytest.approx(truth, rel=near)
