"""Calls on one rank first, and results that virtual ranks compute once."""

from functools import partial
from itertools import islice

import jax
import numpy as np
import pytest

from dml import sim
from dml.data.images.digits import CLASSES, FEATURES, digits
from dml.data.minibatches import minibatches, take
from dml.metrics.timer import Timer
from dml.models.model_problem import model_problem
from dml.models.networks.logistic import logistic
from dml.strategies.server.server import row_partition
from dml.strategies.synchronous import synchronous
from dml.types import Problem
from dml.update.dense import make
from dml.wire.collectives import ALLREDUCE
from dml.wire.collectives.benchmark import benchmark
from dml.wire.comm import Metered, first_of_all, first_of_each_host
from dml.wire.comm.buffers import ALIGN, address
from dml.wire.comm.once import once_per_call
from dml.wire.comm.tags import Tag
from dml.wire.reducers.buckets import buckets
from dml.wire.reducers.exact import exact

HOSTS = {  # the ranks of which the first one goes first
    first_of_all: [range(7)],
    first_of_each_host: [(0, 1, 2), (3, 4, 5), (6,)],
}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("way", HOSTS)
def test_the_lowest_rank_of_each_host_goes_before_the_others(way, seed):
    called = []

    def program(comm):
        assert comm.platform.hosts() == [0, 0, 0, 1, 1, 1, 2]
        comm = Metered(comm)
        assert way(comm, lambda: called.append(comm.rank) or comm.rank) == comm.rank
        return comm.messages_sent, comm.bytes_sent

    sent = sim.run(program, 7, network=sim.Uniform(host=3), seed=seed)
    assert sorted(called) == list(range(7))
    for host in HOSTS[way]:
        assert next(rank for rank in called if rank in host) == host[0]
        others = len(host) - 1
        assert [sent[rank] for rank in host] == [(others, 0)] + [(0, 0)] * others


def test_others_wait_until_the_first_is_done():
    def program(comm):
        def call():
            if comm.rank == 0:  # virtual time passes
                comm.Sendrecv(np.zeros(9), 0, Tag.RING, np.zeros(9), 0, Tag.RING)
            return comm.Wtime()

        return first_of_all(comm, call)

    first, *others = sim.run(program, 4, network=sim.Uniform(1.0, 0.0, 0.0))
    assert first > 0
    assert all(other > first for other in others)


def test_the_nth_calls_of_all_ranks_share_a_result():
    computed = []

    def program(comm):
        def call(value):
            computed.append(value)
            return [value]

        first = once_per_call(comm, "x", partial(call, 1))
        comm.Barrier()
        return first, once_per_call(Metered(comm), "x", partial(call, 2))

    results = sim.run(program, 4)
    assert computed == [1, 2]
    assert all(first is results[0][0] and second == [2] for first, second in results)


def test_trainings_on_one_communicator_do_not_share_their_optimizer():
    training, _ = digits()
    model = logistic(FEATURES, CLASSES)
    start, examples = model.init(jax.random.key(0)), len(training.targets)
    rows = partial(take, training)
    problem = model_problem(model, start, examples=examples, take=rows)

    def program(comm):
        comm, losses = Metered(comm), []
        for rate in (0.1, 0.0):
            batches = minibatches(examples, 64, 0)
            reducer = exact(ALLREDUCE["ring"])
            options = {"comm": comm, "timer": Timer(comm.Wtime), "reducer": reducer}
            steps = synchronous(problem, batches, make("sgd", rate), **options)
            losses.append([step.loss for step in islice(steps, 3)])
        return losses

    for moving, constant in sim.run(program, 2):
        assert moving[0] > moving[1] > moving[2]
        assert constant[1] == pytest.approx(constant[0], rel=0.05)
        assert constant != moving


def test_partitions_depend_on_the_problem_also_when_an_id_occurs_again():
    def problem(rows):
        return Problem(np.zeros((rows, 1)), 1, None, dict)

    def program(comm):
        for rows in (8, 20, 4, 8, 20):
            assert row_partition(comm, problem(rows), 2).edges[-1] == rows

    sim.run(program, 3)


def test_layouts_of_buckets_depend_on_all_arguments():
    params = {"a": np.zeros(3, np.float32), "b": np.zeros((2, 5), np.float32)}
    other = {"a": np.zeros(4, np.float32), "b": np.zeros((2, 5), np.float32)}

    def program(comm):
        for arguments, names, lengths in (
            ((params, ["a", "b"], 1.0), ["a", "b"], [3, 10]),
            ((other, ["a", "b"], 1.0), ["a", "b"], [4, 10]),
            ((other, ["b", "a"], 1.0), ["b", "a"], [10, 4]),
            ((other, ["b", "a"], 1.0, 2), ["b", "a"], [10, 6]),
            ((other, ["b", "a"], 1e6, 2), ["ba"], [16]),
        ):
            found = buckets(comm, *arguments)
            assert ["".join(bucket.names) for bucket in found] == names
            assert [len(bucket.buffer) for bucket in found] == lengths
            assert not any(address(bucket.buffer) % ALIGN for bucket in found)

    sim.run(program, 3)


def test_an_allreduce_that_splits_in_every_call_is_measured():
    def split(comm, buffer, op=np.add):
        ALLREDUCE["ring"](comm.Dup(), buffer, op)

    def program(comm):
        (row,) = benchmark(Metered(comm), {"split": split}, np.zeros(100), 1)
        return row["words_sent"]

    assert sim.run(program, 4) == [600] * 4
