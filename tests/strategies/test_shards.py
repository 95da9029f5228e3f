"""Logical shards: training has equal bits on any number of ranks."""

from functools import partial

import jax
import pytest

from dml import sim
from dml.metrics.timer import Timer
from dml.strategies.loops import term_gradients
from dml.strategies.serial import serial
from dml.strategies.synchronous import synchronous
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.reducers.exact import exact
from dml.wire.reducers.names import reducer
from tests.strategies import small
from tests.strategies.server import small as table

SHARDS, CLOCKS = 8, 6
ORDERED = {1: "star", 2: "ring", 3: "tree", 5: "shared", 8: "auto"}


def network(comm, name="order_free", **options):
    """Train the small network on logical shards."""
    own = {"reducer": reducer(name, ALLREDUCE[ORDERED[comm.size]])}
    return small.train(
        synchronous, comm=Metered(comm), **own, **({"shards": SHARDS} | options)
    )


def rows(comm, name="order_free", accumulate=1, shards=SHARDS):
    """Train the small table on logical shards; return losses and bits."""
    steps = synchronous(
        table.problem(),
        table.batches(CLOCKS),
        table.Descent,
        comm=Metered(comm),
        timer=Timer(),
        reducer=reducer(name, ALLREDUCE[ORDERED[comm.size]]),
        accumulate=accumulate,
        shards=shards,
    )
    return [(step.loss, step.params().tobytes()) for step in steps]


@pytest.mark.parametrize(
    "options", ({}, {"bucket_mb": 1e-9}, {"accumulate": 2}), ids=str
)
def test_a_network_has_equal_bits_on_any_number_of_ranks(options):
    """The last minibatch has 7 examples, fewer than shards."""
    (expected,) = sim.run(lambda comm: network(comm, **options), 1)
    for size in (3, 8):
        for found in sim.run(lambda comm: network(comm, **options), size):
            assert small.same_bits(found, expected), size
    # only rounding differs from serial training
    alone = small.train(serial)
    assert small.apart(expected[-1].params, alone[-1].params) < 1e-5
    assert expected[-1].loss == pytest.approx(alone[-1].loss, rel=1e-5)


@pytest.mark.parametrize("name", ("exact", "order_free"))
def test_a_table_has_equal_bits_on_any_number_of_ranks(name):
    """Exact sums add the rows of the shards in order; sums over ranks would not."""
    for accumulate in (1, 2):
        program = partial(rows, name=name, accumulate=accumulate)
        (expected,) = sim.run(program, 1)
        for size in ORDERED:
            found = sim.run(program, size)
            assert all(bits == expected for bits in found), size
    unsharded = [
        sim.run(lambda comm: rows(comm, "exact", shards=0), size)[0] for size in (2, 3)
    ]
    assert unsharded[0] != unsharded[1]


def test_noise_is_measured_between_logical_shards():
    (alone,) = sim.run(lambda comm: network(comm, noise=True), 1)
    found, *_ = sim.run(lambda comm: network(comm, noise=True), 3)
    assert [step.measures["noise_scale"] for step in found] == [
        step.measures["noise_scale"] for step in alone
    ]


def test_a_run_continues_on_another_number_of_ranks():
    (expected,) = sim.run(network, 1)
    drawn = {"drawn": 2 * small.BATCH}
    first = sim.run(lambda comm: network(comm, **drawn), 3)[0][-1]

    def resume(comm):
        own = {"state": first.state, "params": first.params, "memory": []}
        return network(comm, start=2 * small.BATCH, **own)

    rest = sim.run(resume, 5)[0]
    assert small.apart(rest[-1].params, expected[-1].params) == 0


@pytest.mark.parametrize(
    "name",
    (
        "top_k:0.1+feedback",
        "qsgd:4",
        "power_sgd:1+feedback",
        "power_sgd_alternating:1+feedback",
        "dgc:0.1",
        "one_bit_adam:1",
    ),
)
def test_the_memory_of_a_reducer_continues_after_a_checkpoint(name):
    def train(comm, **options):
        own = {"reducer": reducer(name, ALLREDUCE["ring"])}
        return small.train(synchronous, comm=Metered(comm), **own, **options)

    def resume(comm, forget):
        last = first[comm.rank][-1]
        saved = [jax.tree.leaves(steps[-1].memory) for steps in first]
        memory = None if forget else saved
        own = {"state": last.state, "params": last.params, "memory": memory}
        return train(comm, start=2 * small.BATCH, **own)

    expected = sim.run(train, 2)[0][-1].params
    first = sim.run(partial(train, drawn=2 * small.BATCH), 2)
    for forget in (False, True):
        rest = sim.run(partial(resume, forget=forget), 2)[0]
        assert (small.apart(rest[-1].params, expected) > 0) == forget


@pytest.mark.parametrize("name", ("top_k:0.1+feedback", "qsgd:4"))
def test_the_memory_of_a_reducer_of_rows_continues_after_a_checkpoint(name):
    def train(comm, first=0, last=CLOCKS, params=None, memory=None):
        task = table.problem()
        steps = synchronous(
            task if params is None else task._replace(params=params),
            table.batches(CLOCKS)[first:last],
            lambda values: table.Descent(values.copy()),
            comm=Metered(comm),
            timer=Timer(),
            reducer=reducer(name, ALLREDUCE["ring"]),
            memory=memory,
        )
        *_, end = steps
        return end.params(), jax.tree.leaves(end.memory())

    expected = sim.run(train, 2)[0][0]
    half = sim.run(partial(train, last=2), 2)
    saved = [leaves for _, leaves in half]
    for memory in (saved, None):
        rest = partial(train, first=2, params=half[0][0], memory=memory)
        params = sim.run(rest, 2)[0][0]
        assert (params.tobytes() == expected.tobytes()) == (memory is saved)


def test_shards_without_a_suitable_reducer_or_too_few_are_refused():
    def train(comm, make, shards):
        own = {"reducer": make(ALLREDUCE["star"]), "shards": shards}
        return small.train(synchronous, comm=Metered(comm), **own)

    with pytest.raises(BadInput, match="a reducer that sums several terms of a rank"):
        sim.run(lambda comm: train(comm, exact, 8), 2)
    with pytest.raises(BadInput, match="at least one logical shard for each of 3"):
        sim.run(lambda comm: network(comm, shards=2), 3)


def test_one_call_for_all_shards_has_the_bits_of_a_call_for_each(monkeypatch):
    """The last minibatch has fewer examples than shards."""
    (expected,) = sim.run(network, 1)
    monkeypatch.setattr(term_gradients, "MAX_LEAVES", 0)
    (found,) = sim.run(network, 1)
    assert small.same_bits(found, expected)
