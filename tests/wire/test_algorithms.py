"""Every registered all-reduce: virtual ranks, schedule and formulas agree."""

from functools import partial

import numpy as np
import pytest

from dml import sim
from dml.wire.collectives import ALLREDUCE
from dml.wire.costs import allreduce as cost
from dml.wire.costs.allreduce import Job, Rates
from dml.wire.plans.schedules import SCHEDULES, words
from dml.wire.plans.topology import SEGMENT, chunks, fold, groups, segments
from tests.wire.collectives.spy import Spy

ALPHA, BETA, GAMMA = 1.3e-6, 0.7e-9, 0.3e-9
RATES = Rates(ALPHA, BETA, GAMMA)
FLAT = sorted(SCHEDULES.keys() - {"hierarchical"})
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 33)
BUFFERS = ((np.float32, SEGMENT), (np.float64, 103), (np.float64, 3))


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


def running(allreduce, job, dtype, network):
    """Run on virtual ranks; return clocks before and after, and messages by rank."""

    def program(comm):
        spy = Spy(comm)
        buffer = np.ones(job.length, dtype)
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


def agree(name, allreduce, rounds, job, dtype=np.float32, eager=65536):
    """Compare messages, words and seconds of a run, a schedule and the formulas."""
    network = sim.Uniform(ALPHA, BETA, GAMMA, eager, host=1)
    start, end, sent = running(allreduce, job, dtype, network)
    assert messages(rounds, job.size) == sent
    counted = sum(nbytes for row in sent for _, nbytes in row) / job.itemsize
    assert counted == words(rounds, job.itemsize) == total(name, job)
    found = sim.evaluate(rounds, network, job.size, start)
    assert found.exact
    # A skipped repetition is one product in the schedule and many sums in the run.
    skips = any(
        one.times > 1 or 0 < 3 * one.segment < one.nbytes.max() for one in rounds
    )
    np.testing.assert_allclose(found.clocks, end, rtol=1e-12 if skips else 0, atol=0)
    took, formula = end.max() - start.max(), cost.seconds(name, job, RATES)
    if len(set(job.groups)) <= 1:
        assert took == pytest.approx(formula, rel=1e-9, abs=0)
    else:
        assert 0.9 * formula <= took <= formula * (1 + 1e-9)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", FLAT)
def test_run_schedule_and_formulas_agree(name, size):
    for length in (0, 1, size - 1, size, size + 1, 1000):
        for dtype, segment in BUFFERS:
            itemsize = np.dtype(dtype).itemsize
            job = Job(size, length, itemsize, segment=segment)
            allreduce = partial(ALLREDUCE[name], segment=segment)
            rounds = list(SCHEDULES[name](size, length, itemsize, segment))
            agree(name, allreduce, rounds, job, dtype)


@pytest.mark.parametrize("eager", (0, 1 << 30))
@pytest.mark.parametrize("name", FLAT)
def test_the_eager_limit_changes_no_paired_exchange(name, eager):
    for size in (2, 5, 8, 17):
        for length in (1, size + 1, 100_003):
            rounds = list(SCHEDULES[name](size, length))
            agree(name, ALLREDUCE[name], rounds, Job(size, length), eager=eager)


@pytest.mark.parametrize("outside", FLAT)
@pytest.mark.parametrize("size", SIZES)
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
            job = Job(size, length)
            _, _, sent = running(ALLREDUCE["hierarchical"], job, np.float32, network)
            assert across == sent


@pytest.mark.parametrize("name", FLAT)
def test_running_ranks_take_the_seconds_of_the_formula_from_2_to_64_and_1000(name):
    def program(comm):
        ALLREDUCE[name](comm, np.zeros(2 * comm.size + 1, np.float32))
        return comm.Wtime()

    for size in (*range(2, 65), 1000):
        wanted = cost.seconds(name, Job(size, 2 * size + 1), RATES)
        took = max(sim.run(program, size, sim.Uniform(ALPHA, BETA, GAMMA)))
        assert took == pytest.approx(wanted, rel=1e-9, abs=0)


def test_every_all_reduce_has_a_schedule_and_a_formula():
    assert ALLREDUCE.keys() - {"auto"} == cost.SECONDS.keys()
    assert ALLREDUCE.keys() - SCHEDULES.keys() == {"shared", "native", "auto"}
