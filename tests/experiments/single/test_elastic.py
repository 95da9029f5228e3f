"""The single file of elastic training has the bits of order-free sums and of deaths."""

import numpy as np
import pytest

from dml import sim
from dml.metrics.timer import Timer
from dml.sim.events import Death
from dml.strategies.elastic import Elastic, Saved
from dml.strategies.synchronous import synchronous
from dml.types import Problem, Rows
from dml.wire.collectives.all_gather_parts import all_gather_parts, gather_lengths
from dml.wire.collectives.ring import ring_allreduce
from dml.wire.comm import Metered
from dml.wire.recovery import Members
from dml.wire.reducers.fixed_point import order_free
from experiments.single import elastic
from tests.experiments.single.proof import broken, ran

V, D, BATCH, STEPS, RATE = elastic.V, elastic.D, elastic.BATCH, 12, elastic.RATE


def stays(me, step):
    return False


def single(size, leaves=stays, module=elastic):
    """Return parameters and numbers of ranks of every rank, and its bytes."""

    def program(comm):
        w, ranks = module.train(comm, leaves, steps=STEPS)
        return w.tobytes(), ranks

    return ran(program, size)


class Descent:
    """Gradient descent in NumPy."""

    state = ()

    def __init__(self, values):
        self.values = values.copy()

    def update(self, at, grads, share=1.0):
        self.values[at] -= RATE * grads


def gradient(row_1xD, indices):
    step, first = divmod(int(indices[0]), BATCH)
    inputs = np.float32(np.random.default_rng(step).standard_normal((BATCH, D)))
    own = inputs[first : first + len(indices)]
    mean = own.T @ (own @ (row_1xD[0] - 1)) / np.float32(len(own))
    return 0.0, Rows(np.zeros(1, np.int32), mean[None])


def steps(comm, start, number=0, **options):
    """Begin the strategy after a number of updates."""
    task = Problem(start, STEPS * BATCH, gradient, dict)
    batches = np.arange(STEPS * BATCH).reshape(STEPS, BATCH)[number:]
    how = {"comm": comm, "timer": Timer(comm.Wtime), "shards": V, **options}
    return synchronous(
        task, batches, Descent, reducer=order_free(ring_allreduce), **how
    )


START = np.zeros((1, D), np.float32)


def modular(size):
    def program(comm):
        return [step.params() for step in steps(comm, START)][-1].tobytes()

    return ran(program, size)


def more_words(comm):
    """Send what `synchronous` sends besides integers and exponents."""
    own = np.zeros(len(np.array_split(np.arange(V), comm.size)[comm.rank]))
    for _ in range(STEPS):
        gather_lengths(comm, 1)  # of rows
        all_gather_parts(comm, own, gather_lengths(comm, len(own)))  # losses
        ring_allreduce(comm, np.zeros(2, np.uint8), np.maximum)  # and numbers of terms


def exponents(comm):
    for _ in range(STEPS):
        ring_allreduce(comm, np.zeros(1, np.uint8), np.maximum)


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_bits_and_words_are_those_of_order_free_sums(size):
    more, less = ran(more_words, size), ran(exponents, size)
    wanted, (((alone, _), _),) = modular(size), single(1)
    for rank, ((w, ranks), sent) in enumerate(single(size)):
        assert w == wanted[rank][0] == alone
        assert ranks == [size] * STEPS
        assert sent - less[rank][1] == wanted[rank][1] - more[rank][1]


def after_a_death(size, rank, time):
    """Return the parameters of ranks that live on after a death, by `Elastic`."""
    network = sim.Uniform(1e-5, 1e-9, 1e-10)

    def attempt(comm, saved, commit):
        start = np.array(saved.params())
        for step in steps(comm, start, saved.number, commit=commit):
            yield step._replace(number=saved.number + step.number)

    def program(comm):
        comm = Metered(comm)
        saved = Saved(0, lambda: START, tuple)
        run = Elastic(Members(comm, size), attempt, saved, STEPS)
        workers = [comm.size for _ in run.steps()]
        last = run.finish(lambda workers: run.saved.params().tobytes())
        return last, len(workers), len(run.members.recoveries)

    return sim.run(program, size, network, events=[Death(rank, time)])


def test_ranks_that_leave_or_die_change_no_bit():
    (((w, _), _),) = single(1)
    found = single(4, lambda me, step: (me, step) in {(2, 3), (0, 7)})
    assert [ranks for (_, ranks), _ in found] == [
        [4] * 3 + [3] * 4,
        [4] * 3 + [3] * 4 + [2] * 5,
        [4] * 3,
        [4] * 3 + [3] * 4 + [2] * 5,
    ]
    assert [one == w for (one, _), _ in found] == [False, True, False, True]
    died = after_a_death(4, 2, 2e-3)
    assert died.pop(2) is None
    assert died == [(w, STEPS, 1)] * 3


def test_main_prints_the_words_of_each_number_of_ranks(capsys):
    def exponent_bytes(size):
        exponent = np.zeros(1, np.uint8)
        return ran(lambda comm: elastic.ring(comm, exponent, np.maximum), size)[0][1]

    (_, sent), *_ = ran(elastic.main, 4)
    *lines, _, left, one = capsys.readouterr().out.splitlines()
    counts = [[int(n) for n in line.split() if n.isdigit()][:3] for line in lines]
    assert [counted[:2] for counted in counts] == [[4, 10], [3, 15], [2, 15]]
    both = [*counts, [4, elastic.STEPS, counts[0][2]]]  # without leaving, too
    assert sent == sum(n * (4 * words + exponent_bytes(p)) for p, n, words in both)
    assert left.endswith("True") and one.endswith("True")
    with pytest.raises(SystemExit, match="expected at most 12 ranks, got 13"):
        ran(elastic.main, 13)


@pytest.mark.parametrize(
    "old, new",
    [
        ("np.rint(terms * scale).astype(np.int32)", "(terms * scale)"),
        ("ring(comm, exponent, np.maximum)", "pass"),
        ("np.array_split(np.arange(V), comm.Get_size())", "np.split(np.arange(V), 4)"),
    ],
)
def test_a_broken_line_changes_the_parameters(old, new, tmp_path):
    mutant = broken(tmp_path, elastic, (old, new))
    leaves = lambda me, step: (me, step) == (3, 5)  # noqa: E731
    (((w, _), _),) = single(1)
    assert [one == w for (one, _), _ in single(4, leaves, mutant)[:3]] != [True] * 3
