"""Checks of hybrid training on eight devices of one process; prints their names."""

import re
from functools import cache, partial
from unittest import mock

import jax
import numpy as np
import optax
import pytest

from dml.data.minibatches import draws, take
from dml.metrics.timer import Timer
from dml.models.gradient import gradient
from dml.models.layered import layered
from dml.models.model_problem import model_problem
from dml.strategies.hybrid import gradients as sums
from dml.strategies.hybrid import instructions, programs
from dml.strategies.hybrid.hybrid import divide_examples, hybrid
from dml.strategies.hybrid.layout import layout_of
from dml.strategies.hybrid.parts import Pipeline, divide
from dml.strategies.hybrid.programs import GradientPrograms
from dml.strategies.serial import serial
from dml.types import STATISTICS, BadInput, Layer
from dml.update.dense import make
from dml.wire.mesh import axes, devices
from tests.checks import run
from tests.strategies import small_tensor as small
from tests.strategies.small import alone, apart

DEVICES, BATCH = 8, 24
# tolerance of sums of 24 examples in other orders, relative to the largest gradient:
# 30 units in the last place of float32
CLOSE = 4e-6
FOUR = {"data": 2, "stage": 4, "tensor": 1}
TWO = {"data": 4, "stage": 2, "tensor": 1}
HALVES = Pipeline("1f1b", 2)
WAYS = {  # for 4 stages, with fewer, equally many or more microbatches
    "1f1b": Pipeline("1f1b", 4),
    "fewer": Pipeline("1f1b", 2),
    "gpipe": Pipeline("gpipe", 12),
    "more": Pipeline("1f1b", 12),
    "interleaved": Pipeline("interleaved", 4, rounds=2),
    "transposed": Pipeline("transposed", 3, remat=True),
    "zb_h1": Pipeline("zb_h1", 12),
    "zb_h2": Pipeline("zb_h2", 12),
    "recomputed": Pipeline("zb_h2", 4, remat=True),
    "zb_v": Pipeline("zb_v", 4, rounds=2),
}


@cache
def mesh(data, stage, tensor):
    return devices.mesh(data=data, stage=stage, tensor=tensor)


@cache
def reference(blocks):
    batch, params = jax.device_put(small.data(BATCH)), small.init(blocks=blocks)
    return jax.device_get(gradient(small.model(blocks).loss, params, batch))


def blocks(sizes, pipeline):
    """Return the least number of blocks for a mesh, as each takes time to compile."""
    return max(2, sizes["stage"] * pipeline.rounds - 2)


@cache  # a program compiles for a second
def gradients(pipeline, **sizes):
    """Return loss and gradients of a minibatch, and the program that computed them."""
    grid, count = mesh(**sizes), blocks(sizes, pipeline)
    network, params = small.cut(sizes["tensor"], count), small.init(blocks=count)
    parts = divide(network, params, grid, pipeline)
    layout = layout_of(parts, params, grid, lambda tree: tree)
    call = GradientPrograms(network, layout, pipeline)
    index, rest = divide_examples(
        sizes["data"], pipeline.microbatches, np.arange(BATCH)
    )
    assert not len(rest)
    batch = take(small.data(BATCH), index)
    loss, grads = call(layout.scatter(params), batch, pipeline.microbatches)
    return float(loss.addressable_data(0)), layout.collect(grads), call


def wrong(sizes, pipeline, find=gradients):
    """Return the largest relative difference of loss and gradients to one device."""
    loss, grads = reference(blocks(sizes, pipeline))
    largest = max(abs(leaf).max() for leaf in jax.tree.leaves(grads))
    found, other, _ = find(pipeline, **sizes)
    return max(abs(found - loss) / loss, apart(other, grads) / largest)


def check_meshes_of_eight_devices_have_the_gradients_of_one():
    assert len(axes.mesh_shapes(DEVICES)) == 10
    for shape, microbatches in ((8, 1, 1), 3), ((1, 1, 8), 4), ((2, 2, 2), 4):
        sizes = dict(zip(FOUR, shape, strict=True))
        assert wrong(sizes, Pipeline("1f1b", microbatches)) < CLOSE, sizes


def check_every_schedule_has_the_gradients_of_one_device():
    for name, pipeline in WAYS.items():
        assert wrong(FOUR, pipeline) < CLOSE, name


def check_only_the_order_of_sums_changes_bits():
    loss, grads, _ = gradients(WAYS["1f1b"], **FOUR)
    other, found, _ = gradients(HALVES, **TWO)
    again, same, _ = gradients(HALVES._replace(schedule="interleaved", rounds=2), **TWO)
    assert (other, apart(found, same)) == (again, 0)  # microbatch after microbatch
    other, found, _ = gradients(WAYS["1f1b"]._replace(pieces=1), **FOUR)
    assert (other, apart(found, grads)) == (loss, 0)
    assert apart(gradients(WAYS["fewer"], **FOUR)[1], grads) > 0


def check_zero_bubble_gradients_have_the_bits_of_1f1b_and_of_reversed_gpipe():
    for name, other in ("zb_h1", "more"), ("zb_h2", "more"), ("zb_v", "interleaved"):
        (loss, grads, _), (want, expected, _) = (
            gradients(WAYS[each], **FOUR) for each in (name, other)
        )
        assert (loss, apart(grads, expected)) == (want, 0), name
    # this holds without XLA's optimizations, which fuse two programs otherwise than
    # one; gpipe sums the last microbatch first, so it has these bits if their order is
    # reversed
    _, expected, call = gradients(WAYS["gpipe"], **FOUR)
    _, found, _ = gradients(WAYS["zb_h1"], **FOUR)
    assert 0 < apart(found, expected) < CLOSE * 10
    index, _ = divide_examples(2, 12, np.arange(BATCH))
    index = index.reshape(12, -1)[::-1].reshape(-1)
    params = call.layout.scatter(small.init(blocks=2))
    _, grads = call(params, take(small.data(BATCH), index), 12)
    assert apart(call.layout.collect(grads), found) == 0


def problem(model, params, examples):
    some = partial(take, small.data(examples))
    return model_problem(model, params, examples=examples, take=some)


def train(
    strategy, *, start=0, drawn=3 * BATCH + 7, params=None, name="adam", **options
):
    """Return the Steps of an optimizer; the last minibatch is smaller."""
    few, clip, axis = 2, 0.1, None
    if strategy is hybrid:
        sizes, clip = options.pop("sizes"), np.inf
        cut = small.cut(sizes["tensor"], few)
        options |= {"axes": mesh(**sizes), "clip": 0.1, "tensor": cut}
        axis = ("tensor", "data") if options.get("zero") else "tensor"
    params = small.init(blocks=few) if params is None else params
    steps = strategy(
        problem(small.model(few), params, 50),
        draws(50, BATCH, 0, drawn, start),
        make(name, 0.01, clip=clip, decay=0.1, axis=axis, like=params),
        comm=alone(),
        timer=Timer(),
        **options,
    )

    def kept(step):
        collected = jax.device_get(step.params())
        return step._replace(state=step.state(), params=collected)

    return list(map(kept, guarded(steps)))


def guarded(steps):
    """Yield Steps; after the first, implicit transfers raise, as in experiments."""
    yield next(steps)
    while True:
        with jax.transfer_guard("disallow"):
            step = next(steps, None)
        if step is None:
            return
        yield step


def check_a_run_moves_to_other_meshes_and_schedules_with_sliced_states_and_without():
    plain = train(serial, name="lamb")
    begun = train(
        hybrid,
        name="lamb",
        sizes={"data": 2, "stage": 2, "tensor": 2},
        pipeline=Pipeline("1f1b", 3),
        zero=1,
        drawn=2 * BATCH,
    )
    on = train(
        hybrid,
        name="lamb",
        sizes={"data": 1, "stage": 4, "tensor": 2},
        pipeline=Pipeline("gpipe", 2),
        start=2 * BATCH,
        params=begun[-1].params,
        state=begun[-1].state,
    )
    back = train(
        hybrid,
        name="lamb",
        sizes=TWO,
        pipeline=HALVES,
        zero=1,
        start=2 * BATCH,
        drawn=3 * BATCH,
        params=plain[1].params,
        state=plain[1].state,
    )
    assert [step.examples for step in [*begun, *on]] == [s.examples for s in plain]
    for found, wanted in zip([*begun, *on, *back], [*plain, plain[2]], strict=True):
        assert found.loss == pytest.approx(wanted.loss, rel=1e-5)
        # up to four updates by 0.01
        assert apart(found.params, wanted.params) < 3e-6
        assert apart(found.state, wanted.state) < 3e-6


def check_sliced_states_have_the_bits_of_replicated_states():
    plain, sliced = (
        train(hybrid, sizes=TWO, pipeline=HALVES, zero=zero, drawn=2 * BATCH)
        for zero in (0, 1)
    )
    for step, other in zip(plain, sliced, strict=True):
        assert apart(step.params, other.params) == apart(step.state, other.state) == 0
    before, after = (steps[-1].measures for steps in (plain, sliced))
    # of params and two moments, the moments are divided by 4, with padding
    assert 0.5 < after["bytes_held"] / before["bytes_held"] < 0.55
    leaves = jax.tree.leaves(small.init(blocks=2))
    gathered = sum(3 * -(-leaf.size // 4) * leaf.itemsize for leaf in leaves)
    table = small.WIDTH**2 * 4  # both stages have it
    gathered = (gathered + 3 * table / 4) / 2
    assert after["data_bytes"] - before["data_bytes"] == gathered


def check_running_statistics_are_neither_clipped_nor_counted():
    def layer(name):
        def apply(params, given, batch):
            return (batch.inputs if given is None else given) @ params[name]

        return Layer((name,), apply)

    def last(params, given, batch):  # a gradient far longer than the limit
        return (given**2).mean() + 100 * params["end"][STATISTICS].sum()

    model = layered([layer("a"), layer("b"), Layer(("end",), last)], None, None, None)
    weights = np.random.default_rng(1).normal(size=(2, small.WIDTH, small.WIDTH))
    params = dict(zip("ab", weights.astype(np.float32), strict=True))
    params["end"] = {STATISTICS: np.ones(3, np.float32)}

    def after(strategy, limit, **options):
        arguments = problem(model, params, 8), draws(8, 8, 0, 8)
        how = {"comm": alone(), "timer": Timer(), **options}
        (step,) = strategy(*arguments, make("sgd", 0.1, clip=limit), **how)
        return step.params()

    options = {"axes": mesh(**TWO), "pipeline": Pipeline("1f1b"), "clip": 0.1}
    assert apart(after(hybrid, np.inf, **options), after(serial, 0.1)) < 1e-6


def check_bytes_on_the_wire_are_those_of_the_formula():
    sizes = {"data": 2, "stage": 2, "tensor": 2}
    _, _, call = gradients(Pipeline("1f1b", 4), **sizes)
    stream = BATCH // 2 * small.WIDTH * 4  # a replica's, of all its microbatches
    # 2 all-reduces of each of 2 blocks, 2 (t - 1)/t of the stream; a stage has one
    assert call.bytes_sent["tensor"] == 2 * 2 * stream / 2
    # activations forwards, gradients back; both stages send in a ring
    assert call.bytes_sent["stage"] == 2 * stream
    leaves = jax.tree.leaves(call.layout.lengths)
    table = small.WIDTH**2 * 4  # that both stages hold: summed, as the loss is
    summed = 4 * sum(leaves) + table
    assert summed <= call.bytes_sent["data"] < summed + 99


def check_messages_of_a_tick_are_in_one_loop_that_needs_all_of_its_computation():
    _, _, call = gradients(Pipeline("1f1b", 4), data=2, stage=2, tensor=2)
    (text,) = (compiled.as_text() for compiled in call.calls.values())
    paths = re.findall(r'op_name="[^"]*pipeline_send/([^"]*ppermute)"', text)
    assert set(paths) == {"while/body/while/body/ppermute"}


def check_fewer_activations_are_in_flight_by_1f1b():
    nbytes = {name: gradients(WAYS[name], **FOUR)[2].temporary_bytes for name in WAYS}
    # K - k of 12 microbatches on stage k; saved activations are more than a message
    assert nbytes["more"] < nbytes["gpipe"] / 2
    # the microbatches of 1f1b are three times as large
    assert nbytes["more"] < 1.2 * nbytes["1f1b"]


def check_pipedream_is_descent_along_gradients_of_old_weights():
    stages, count = 4, 7

    def enter(params, given, batch):
        return batch.inputs @ params["in"]

    def leave(params, given, batch):
        return ((given @ params["out"] - batch.targets) ** 2).mean()

    body = small.layers(blocks=2)[1:-1]
    layers = [Layer(("in",), enter), *body, Layer(("out",), leave)]
    model, weights = layered(layers, None, None, None), small.init(blocks=2)
    table = weights.pop("table")
    params = {"in": table, **weights, "out": table.T}
    pipeline, optimizer = Pipeline("pipedream"), make("adam", 0.01)
    order = list(draws(50, BATCH, 0, count * BATCH))
    arguments = problem(model, params, 50), order, optimizer
    axes = mesh(data=2, stage=stages, tensor=1)
    how = {"axes": axes, "pipeline": pipeline, "comm": alone(), "timer": Timer()}
    steps = list(guarded(hybrid(*arguments, **how)))
    ranges = pipeline.ranges(len(model.layers), stages)
    names = [[model.layers[n].names[0] for n in span] for span in ranges]
    versions = [[{name: params[name] for name in some}] for some in names]
    states = [optimizer.init(own[0]) for own in versions]
    for number, index in enumerate(order):
        # stage k has made all updates but the last K - 1 - k
        mixed = {}
        for stage, own in enumerate(versions):
            mixed |= own[max(0, number - (stages - 1 - stage))]
        batch = jax.device_put(take(small.data(50), index))
        loss, grads = gradient(model.loss, mixed, batch)
        assert steps[number].loss == pytest.approx(float(loss), rel=1e-5)
        for stage, own in enumerate(versions):
            mine = {name: grads[name] for name in names[stage]}
            updates, states[stage] = optimizer.update(mine, states[stage], own[-1])
            own.append(optax.apply_updates(own[-1], updates))
    last = {name: leaf for own in versions for name, leaf in own[-1].items()}
    assert len(steps) == count
    assert apart(steps[-1].params(), {name: last[name] for name in params}) < 3e-6


def check_mutants_are_seen():
    shift, summed = instructions.shift, sums.all_reduce_grads

    def doubled(*arguments):
        found = summed(*arguments)
        return jax.tree.map(lambda one: jax.lax.psum(one, "data"), found)

    for module, name, mutant, sizes in [
        # a ring of two stages is equal in both directions
        (instructions, "shift", lambda one, by: shift(one, -by), FOUR),
        (programs, "all_reduce_grads", doubled, TWO),
    ]:
        with mock.patch.object(module, name, mutant):
            found = wrong(sizes, Pipeline("1f1b", 2), gradients.__wrapped__)
        assert found > 1000 * CLOSE, name


def check_what_cannot_be_divided_is_refused():
    many = {"data": 1, "stage": 8, "tensor": 1}
    for error, sizes, pipeline in [
        ("4 layers and 16 parts", many, Pipeline("interleaved", 1, rounds=2)),
        ("rounds=1 for gpipe", FOUR, Pipeline("transposed", 1, rounds=2)),
        ("from 1 to .* for microbatches", FOUR, Pipeline("1f1b", 0)),
        ("a schedule, got 'zb'", FOUR, Pipeline("zb", 1)),
        ("table, which several parts read", FOUR, Pipeline("pipedream", 1)),
    ]:
        with pytest.raises(BadInput, match=error):
            train(hybrid, sizes=sizes, pipeline=pipeline)
    for error, zero, pipeline in [
        ("--zero=0 or 1", 2, HALVES),
        ("--zero=0 with --pipeline=pipedream", 1, Pipeline("pipedream", 1)),
    ]:
        with pytest.raises(BadInput, match=error):
            train(hybrid, sizes=FOUR, pipeline=pipeline, zero=zero)


CHECKS = [each for name, each in [*globals().items()] if name.startswith("check_")]


if __name__ == "__main__":
    run(CHECKS, DEVICES)
