"""Buckets, microbatches, local updates and compiled loops, beside serial."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.tree_util import Partial

from dml import sim
from dml.data.minibatches import draws
from dml.data.shards import shards
from dml.metrics.noise import Noise
from dml.models.layered import compose
from dml.strategies.local import local
from dml.strategies.loops import bucket_sums as module
from dml.strategies.loops.parameters import restore_memory
from dml.strategies.scan import scan
from dml.strategies.serial import serial
from dml.strategies.synchronous import synchronous
from dml.types import BadInput, Memory, Reducer
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.reducers.buckets import buckets
from dml.wire.reducers.exact import exact
from tests.strategies.small import (
    BATCH,
    CLOSE,
    COUNT,
    MODEL,
    apart,
    close,
    optimizer,
    same_bits,
    square,
    start_params,
    train,
)


def on_ranks(size, strategy=synchronous, allreduce="star", **options):
    """Return the steps of all ranks, which are equal to the last bit."""

    def program(comm):
        wire = {"comm": Metered(comm), "reducer": exact(ALLREDUCE[allreduce])}
        return train(strategy, **wire, **options)

    first, *others = sim.run(program, size)
    assert all(same_bits(first, other) for other in others)
    return first


def test_buckets_of_any_size_give_equal_bits():
    one, *rest = (on_ranks(3, bucket_mb=mb) for mb in (1e-9, 1e-3, 1e3))
    for other in rest:
        assert same_bits(one, other)
    close(one, on_ranks(3))


@pytest.mark.parametrize("size", [1, 2, 3])
def test_ranks_in_a_star_are_one_that_accumulates_in_their_order(size):
    # also where 7 examples, the last minibatch, are shared by 3 ranks
    assert same_bits(on_ranks(size), train(serial, accumulate=size))


@pytest.mark.parametrize("bucket_mb", [0, 1e-9])
def test_microbatches_and_ranks_without_examples_change_only_rounding(bucket_mb):
    close(on_ranks(2, bucket_mb=bucket_mb, accumulate=3), train(serial))
    # four ranks have none of the last seven
    few = {"drawn": BATCH + 7}
    close(on_ranks(11, bucket_mb=bucket_mb, **few), train(serial, **few))


def test_steps_count_examples_words_and_phases():
    words = sum(leaf.size for leaf in jax.tree.leaves(start_params()))
    plain, phases = train(serial), {"input", "gradient", "update"}
    assert all(one.words_sent == 0 and set(one.seconds) == phases for one in plain)
    counts = [(1, BATCH), (2, BATCH), (3, BATCH), (4, 7)]
    assert [(step.number, step.examples) for step in plain] == counts
    for bucket_mb in (0, 1e-9):
        found = on_ranks(2, allreduce="ring", bucket_mb=bucket_mb)
        assert [(step.number, step.examples) for step in found] == counts
        for step in found:
            assert step.words_sent == words + 1
            assert set(step.seconds) == phases | {"wire"}
            assert step.measures["host_copies"] >= 4 * words


def test_buckets_close_when_they_are_full():
    params = {name: np.zeros(256, np.float32) for name in "abcde"}  # 1 KB each

    def cut(nbytes):
        return sim.run(lambda comm: buckets(comm, params, "edcba", nbytes, 1), 1)[0]

    assert ["".join(one.names) for one in cut(2048)] == ["ed", "cb", "a"]
    assert [len(one.buffer) for one in cut(2048)] == [512, 512, 257]
    assert ["".join(one.names) for one in cut(1 << 30)] == ["edcba"]


def halving(comm):
    """Return a reducer that sends half of its buffer and remembers the other half."""
    star = ALLREDUCE["star"]

    def init(lies):
        return np.zeros(lies.length, np.float32)

    def reduce(comm, buffer, memory):
        gradient = buffer[: len(memory)]
        gradient += memory
        memory = gradient / 2 * np.float32(comm.rank + 1) / comm.size
        gradient -= memory
        star(comm, buffer)
        return memory

    return Reducer(init, reduce)


STRATEGIES = synchronous, partial(synchronous, bucket_mb=1e-9), partial(local, every=1)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_reducer_s_memory_is_part_of_what_a_run_resumes_from(strategy):
    def trained(comm, **start):
        steps = partial(strategy, reducer=halving(comm))
        return train(steps, comm=Metered(comm), **start)

    whole = sim.run(trained, 2)
    halves = [steps[1] for steps in whole]
    one, other = (jax.tree.leaves(half.memory) for half in halves)
    assert all((a != b).any() for a, b in zip(one, other, strict=True))

    def rest(comm, remembers=True):
        half = halves[comm.rank]
        start = {"params": half.params, "state": half.state, "start": 2 * BATCH}
        if remembers:
            start["memory"] = [jax.tree.leaves(each.memory) for each in halves]
        return trained(comm, **start)

    resumed, forgotten = sim.run(rest, 2), sim.run(partial(rest, remembers=False), 2)
    assert all(map(same_bits, resumed, [steps[2:] for steps in whole]))
    assert not same_bits(forgotten[0], whole[0][2:])


@pytest.mark.parametrize("ranks", (1, 2, 3, 5))
def test_memory_of_three_ranks_is_added_up_on_any_number_of_ranks(ranks):
    def initial(count):
        return [{4: Memory(np.zeros(count, np.float32), [np.zeros(1, np.int64)])}]

    saved = [[np.full(4, 10.0**rank, np.float32), np.array([7])] for rank in range(3)]

    def restored(comm):
        return restore_memory(comm, initial(4), saved)

    parts = [memory[4] for (memory,) in sim.run(restored, ranks)]
    assert sum(part.own for part in parts).tolist() == [111.0] * 4
    assert {tuple(part.common[0]) for part in parts} == {(7,)}
    if ranks == 2:
        assert [part.own[0] for part in parts] == [101.0, 10.0]

    def other_buckets(comm):
        return restore_memory(comm, initial(5), saved)

    with pytest.raises(BadInput, match="expected the memory of the reducer"):
        sim.run(other_buckets, ranks)


def test_local_updates_averaged_each_time_are_synchronous_for_sgd():
    for after, every in ((0, 1), (100, 7)):
        found = on_ranks(3, local, name="sgd", every=every, after=after)
        close(found, on_ranks(3, name="sgd"))


def test_local_updates_meet_after_so_many_and_send_as_many_words():
    found = on_ranks(2, local, allreduce="ring", every=3, after=1)
    assert [step.number for step in found] == [1, 4]  # 4 minibatches
    assert [step.examples for step in found] == [BATCH, 2 * BATCH + 7]
    words = sum(leaf.size for leaf in jax.tree.leaves(found[0].params))
    assert {step.words_sent for step in found} == {3 * words + 1}  # adam has 2 moments


@pytest.mark.parametrize("accumulate", [1, 2])  # of 7 examples: 4 and 3
def test_local_updates_of_one_rank_are_serial(accumulate):
    plain = train(serial, accumulate=accumulate)
    found = on_ranks(1, local, every=2, accumulate=accumulate)
    for one, other in zip(found, plain[1::2], strict=True):
        assert apart(one.params, other.params) == 0


def skipped_leaf(bucket, grads, weight):
    copied = fill(bucket, grads, weight)
    bucket.buffer[: len(bucket.buffer) // 2] = 0
    return copied


def stale_bucket(bucket, grads, weight):
    if bucket.names == ("b1",) and bucket.buffer.any():
        return 0  # what was sent in the step before is sent again
    return fill(bucket, grads, weight)


fill = module.fill


@pytest.mark.parametrize("mutant", [skipped_leaf, stale_bucket])
def test_the_comparison_with_one_rank_catches(mutant, monkeypatch):
    monkeypatch.setattr(module, "fill", mutant)
    found, plain = on_ranks(2, bucket_mb=1e-9), train(serial)
    assert apart(found[-1].params, plain[-1].params) > 100 * CLOSE


def test_noise_is_estimated_from_a_rank_s_gradient_and_that_of_all():
    size = 3
    step = on_ranks(size, noise=True)[0]
    index = next(draws(COUNT, BATCH, 0, BATCH))
    # E |g|^2 of n examples has a term in 1 / n: shares make it that of their mean size
    small = sum(len(part) / BATCH * square(part) for part in shards(index, size))
    want = Noise().add(small, square(index), BATCH / size, BATCH)
    assert step.measures["noise_scale"] == pytest.approx(want, rel=1e-3)


@pytest.mark.parametrize(
    "strategy, options",
    [
        (serial, {}),
        (on_ranks, {}),
        (on_ranks, {"bucket_mb": 1e-9}),
        (on_ranks, {"strategy": local, "every": 2}),
    ],
)
def test_all_is_traced_and_compiled_once(strategy, options, monkeypatch, caplog):
    traced = []

    def counted(layer):
        def apply(*args):
            traced.append(layer.names)
            return layer.apply(*args)

        return layer._replace(apply=apply)

    layers = [counted(layer) for layer in MODEL.layers]  # known to nobody
    model = MODEL._replace(layers=layers, loss=compose(layers))
    monkeypatch.setattr("tests.strategies.small.MODEL", model)
    optimizer.cache_clear()
    options = options | {"name": "nadam", "drawn": 4 * BATCH}
    with jax.log_compiles():
        train(serial, **options) if strategy is serial else on_ranks(2, **options)
    assert len(traced) == len(layers)
    if "bucket_mb" not in options:  # else one program a layer
        for name in ("gradient", "apply"):
            assert caplog.text.count(f"Compiling jit({name})") == 1


def product(weights, params):
    return {"product": jnp.vdot(weights, params["embed"][0])}


def test_a_program_of_all_updates_is_serial():
    plain = train(serial, drawn=4 * BATCH)
    for workers in (1, 4):
        found = train(scan, drawn=4 * BATCH, every=2, workers=workers)
        assert [step.number for step in found] == [2, 4]
        for step, (one, two) in zip(found, (plain[:2], plain[2:]), strict=True):
            assert step.loss == pytest.approx((one.loss + two.loss) / 2, rel=1e-5)
            assert apart(step.params, two.params) < CLOSE


def test_measures_are_of_the_params_of_their_step():
    weights = np.arange(12, dtype=np.float32)
    found = train(scan, drawn=3 * BATCH, measure=Partial(product, weights))
    values = [step.measures["product"] for step in found]
    wanted = [float(weights @ step.params["embed"][0]) for step in found]
    assert values == pytest.approx(wanted, rel=1e-5) and len(set(values)) == 3


@pytest.mark.parametrize("drawn, every", [(3 * BATCH + 1, 1), (3 * BATCH, 2)])
def test_minibatches_that_no_loop_can_take_are_refused(drawn, every):
    with pytest.raises(BadInput, match="expected minibatches of one length"):
        train(scan, drawn=drawn, every=every)
    with pytest.raises(BadInput, match="a multiple of 3 examples.*, got 16"):
        train(scan, drawn=3 * BATCH, workers=3)
