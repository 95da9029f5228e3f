"""Gradient coding: stragglers change neither the bits of a run nor its seconds."""

from functools import partial
from itertools import combinations, count, islice

import numpy as np
import pytest

from dml import sim
from dml.metrics.timer import Timer
from dml.sim.delays import delay_distribution, expected, seconds
from dml.strategies.gradient_coding import gradient_coding
from dml.strategies.serial import serial
from dml.strategies.synchronous import synchronous
from dml.types import BadInput, Problem, Rows
from dml.update.table import table
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.comm.delayed import Delayed
from dml.wire.plans.codes.decoding import make_plan
from dml.wire.reducers.exact import exact
from tests.strategies.small import alone, close, same_bits, train

FREE = sim.Uniform(0, 0, 0)  # messages take no time
WIDTH, EXAMPLES = 5, 60
TARGETS = np.random.default_rng(0).standard_normal((EXAMPLES, WIDTH))
TARGETS = TARGETS.astype(np.float32)


def gradient(row_1xD, indices):
    errors = row_1xD - TARGETS[indices]
    loss = float((errors**2).sum() / 2 / len(indices))
    return loss, Rows(np.zeros(1, np.int32), errors.mean(axis=0, keepdims=True))


ROWS = Problem(
    params=np.zeros((1, WIDTH), np.float32),
    examples=EXAMPLES,
    gradient=gradient,
    evaluate=lambda params: {},
    touched=lambda indices: np.zeros(1, np.int32),
)


def train_rows(comm, updates, **options):
    """Return the steps on one rank, with its clock at each."""
    batches = islice(np.tile(np.arange(EXAMPLES), (updates, 1)), updates)
    update = partial(table, "sgd", rate=0.1)
    own = {"comm": comm, "timer": Timer(comm.Wtime), **options}
    steps = gradient_coding(ROWS, batches, update, **own)
    return [
        (step._replace(params=step.params().copy()), comm.Wtime()) for step in steps
    ]


def delays(workers, updates=200, law="shifted_exponential:1,0.5"):
    return seconds(delay_distribution(law), 3, updates, workers)


def slow(stragglers):
    """Return comm -> work, of which stragglers end long after the others."""

    def make(comm):
        time = 100.0 if comm.rank in stragglers else 1.0 + comm.rank
        return lambda share, unless: comm.platform.compute(time, unless)

    return make


def run(workers, work=None, draws_TxP=None, **options):
    """Return the steps of a network on all virtual ranks."""

    def program(comm):
        if draws_TxP is not None and comm.rank < workers:
            comm = Delayed(comm, iter(draws_TxP[:, comm.rank].tolist()))
        own = {"work": work(comm)} if work else {}
        return train(gradient_coding, comm=Metered(comm), **own, **options)

    return sim.run(program, workers + 1)


def summed_by(allreduce, ranks):
    def program(comm):
        reducer = exact(ALLREDUCE[allreduce])
        return train(synchronous, comm=Metered(comm), reducer=reducer)

    return sim.run(program, ranks)[0]


def test_repetition_has_the_bits_of_synchronous_training_for_any_stragglers():
    plain = summed_by("star", 3)
    for missing in ((0,), (0, 1, 2), (3, 1, 5)):
        ranks = run(6, slow(missing), code="repetition:1")
        assert all(same_bits(found, plain) for found in ranks)
    for draws in (None, delays(6, law="pareto:1,1.2")):
        ranks = run(6, draws_TxP=draws, code="repetition:1")
        assert all(same_bits(found, plain) for found in ranks)


def test_waiting_for_all_workers_is_synchronous_training():
    plain = summed_by("star", 3)
    ranks = run(3, draws_TxP=delays(3), code="uncoded:0")
    assert all(same_bits(found, plain) for found in ranks)


@pytest.mark.parametrize("code", ["cyclic:2", "random:1"])
def test_combined_parts_are_decoded_without_any_stragglers(code):
    serially = train(serial, accumulate=5)
    for missing in combinations(range(5), int(code[-1])):
        master = run(5, slow(missing), code=code)[-1]
        close(master, serially)


def test_all_ranks_have_the_parameters_of_the_master():
    for found in run(5, draws_TxP=delays(5), code="cyclic:2"):
        assert same_bits(found, run(5, draws_TxP=delays(5), code="cyclic:2")[-1])


def test_without_a_straggler_the_mean_of_the_other_parts_remains():
    def program(comm):
        missing = slow((2,))(comm)
        return train_rows(Metered(comm), 1, code="uncoded:1", work=missing)[0][0]

    *_, step = sim.run(program, 6)
    seen = np.delete(TARGETS.reshape(5, 12, WIDTH), 2, axis=0).reshape(-1, WIDTH)
    np.testing.assert_allclose(step.params[0], 0.1 * seen.mean(axis=0), rtol=1e-5)


def start_times(plan, draws_TxP, updates):
    """Return when each update ends if late workers end their computation first."""
    workers = plan.code.workers
    draws = [iter(draws_TxP[:, worker].tolist()) for worker in range(workers)]
    following = [next(draw) for draw in draws]
    free, times = np.zeros(workers), [0.0]
    for _ in range(updates):
        starts = np.maximum(free, times[-1])
        ends = starts + plan.load * np.array(following)
        order = np.argsort(ends)
        needed = (
            n
            for n in range(1, workers + 1)
            if plan.suffices(np.isin(np.arange(workers), order[:n]))
        )
        times.append(ends[order[next(needed) - 1]])
        for worker in np.flatnonzero(starts < times[-1]):
            free[worker], following[worker] = ends[worker], next(draws[worker])
    return times[1:]


@pytest.mark.parametrize("code", ["repetition:1", "repetition:2", "cyclic:2"])
@pytest.mark.parametrize("law", ["shifted_exponential:1,0.5", "pareto:1,1.1"])
def test_updates_end_at_the_times_of_the_max_plus_recurrence(code, law):
    updates, draws = 40, delays(6, law=law)

    def program(comm):
        if comm.rank < 6:
            comm = Delayed(comm, iter(draws[:, comm.rank].tolist()))
        return train_rows(Metered(comm), updates, code=code)

    ranks = sim.run(program, 7, FREE)
    wanted = start_times(make_plan(code, 6), draws, updates)
    lap = np.cumsum([sum(step.seconds.values()) for step, _ in ranks[-1]])
    assert lap == pytest.approx(wanted, rel=1e-12)
    skipped = sum(step.measures["skipped"] for rank in ranks[:-1] for step, _ in rank)
    assert skipped > updates / 2


def stopping(comm, draws_TxP):
    """Return work that ends with the sum; each update has its own draw."""
    number = count()

    def work(share, unless):
        drawn = share * float(draws_TxP[next(number), comm.rank])
        return comm.platform.compute(drawn, unless)

    return work


@pytest.mark.parametrize("code, stragglers", [("cyclic:2", 2), ("uncoded:1", 1)])
def test_an_update_takes_an_order_statistic_if_late_workers_stop(code, stragglers):
    updates, workers, draws = 30, 6, delays(6)
    load = make_plan(code, workers).load

    def program(comm):
        comm = Metered(comm)
        return train_rows(comm, updates, code=code, work=stopping(comm, draws))

    *_, master = sim.run(program, workers + 1, FREE)
    taken = load * np.sort(draws[:updates], axis=1)[:, workers - stragglers - 1]
    times = [sum(step.seconds.values()) for step, _ in master]
    assert times == pytest.approx(taken, rel=1e-9)
    assert not any(step.measures["unused_terms"] for step, _ in master)


def test_the_mean_order_statistic_is_that_of_the_closed_form():
    """E = (s+1)(c + (H_p - H_s)/mu) if the tail grows with the load (Lee 2018)."""
    c, mu, p, s = 1.0, 0.5, 6, 2
    harmonic = [sum(1 / k for k in range(1, n + 1)) for n in range(p + 1)]
    closed = (s + 1) * c + (s + 1) * (harmonic[p] - harmonic[s]) / mu
    drawn = (s + 1) * np.sort(delays(p, 40_000), axis=1)[:, p - s - 1]
    error = drawn.std() / np.sqrt(len(drawn))
    assert abs(drawn.mean() - closed) < 4 * error < 0.01 * closed
    delay = delay_distribution(f"shifted_exponential:{c},{mu}")
    assert (s + 1) * expected(delay, p - s, p) == pytest.approx(closed)


def test_a_worker_that_never_ends_in_time_delays_no_update():
    def program(comm):
        if comm.rank < 4:
            comm = Delayed(comm, iter([1000.0] if comm.rank == 1 else [1.0] * 50))
        return train_rows(Metered(comm), 50, code="cyclic:1")

    *workers, master = sim.run(program, 5, FREE)
    lap = np.cumsum([sum(step.seconds.values()) for step, _ in master])
    assert lap.tolist() == [2.0 * n for n in range(1, 51)]
    assert [step.measures["skipped"] for step, _ in workers[1]] == [1.0] * 50
    assert all(
        np.array_equal(worker[-1][0].params, master[-1][0].params) for worker in workers
    )


def test_terms_of_another_run_are_not_added():
    """Two terms of a run that is ended after an update arrive in the next run."""

    def program(comm):
        comm, update = Metered(comm), partial(table, "sgd", rate=0.1)
        every, found = np.arange(EXAMPLES), []
        for seen, given, updates in ((every[:8], 3, 1), (every, 6, 6), (every, 6, 6)):
            batches = np.tile(seen, (given, 1))
            own = {"comm": comm, "timer": Timer(comm.Wtime), "code": "repetition:1"}
            own["work"] = lambda share, unless: comm.platform.compute(1.0)
            steps = gradient_coding(ROWS, batches, update, **own)
            for step in islice(steps, updates):
                params = step.params().copy()
            found.append(params)
        return found[1:]

    def undisturbed(comm):
        return train_rows(Metered(comm), 6, code="repetition:1")[-1][0].params

    *_, wanted = sim.run(undisturbed, 5)
    for found in sim.run(program, 5):
        assert all(np.array_equal(params, wanted) for params in found)


def test_words_are_a_term_and_a_sum_per_worker_and_update():
    def program(comm):
        steps = train_rows(Metered(comm), 3, code="cyclic:1")
        return [step.words_sent for step, _ in steps]

    *workers, master = sim.run(program, 5, FREE)
    length = WIDTH + 1
    assert all(words == [length + 2, length + 2, length + 4] for words in workers)
    assert master == [4 * length] * 3


def test_one_rank_is_refused():
    with pytest.raises(BadInput, match="a master and at least one worker, got one"):
        train(gradient_coding, comm=alone())
