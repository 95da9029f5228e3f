"""Single files against JAX programs on devices; prints the name of each check.

The numbers are small integers, so that sums are exact, and NumPy and XLA have equal
bits whatever order they add in.
"""

import inspect
from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.sharding import AxisType, Mesh

from dml.models.layered import layered
from dml.strategies.hybrid.hybrid import replicate_layers
from dml.strategies.hybrid.layout import layout_of
from dml.strategies.hybrid.parts import Pipeline, divide
from dml.strategies.hybrid.programs import GradientPrograms
from dml.strategies.mesh import compile_shard_map
from dml.strategies.zero import ZERO, placement
from dml.types import Batch, Layer, Tensor, identity
from dml.wire.mesh.axes import COLUMNS, REPLICATED, ROWS
from dml.wire.mesh.conjugate import copy_to_devices, sum_over_devices
from dml.wire.mesh.traffic import collectives, ring_bytes
from experiments.single import pipeline, tensor_parallel, zero
from tests.checks import run
from tests.experiments.single.proof import ran

DEVICES = 4
LAYERS, MICROBATCHES, EXAMPLES, WIDTH = 4, 4, 2, 4
BLOCKS, HIDDEN = 2, 8


def integers(*shape):
    return np.random.default_rng(sum(shape)).integers(-1, 2, shape).astype(np.float32)


def grid(**sizes):
    """Return a mesh of some of the devices, with the axes data, stage and tensor."""
    shape = {"data": 1, "stage": 1, "tensor": 1} | sizes
    some = np.array(jax.devices()[: max(shape.values())]).reshape(*shape.values())
    return Mesh(some, tuple(shape), axis_types=(AxisType.Auto,) * 3)


def chain(count=LAYERS):
    """Return the network of pipeline.py: layers of one matrix each."""

    def layer(n):
        def apply(params, given, batch):
            given = batch.inputs if given is None else given
            output = jax.nn.relu(given @ params[f"w{n}"])
            last = n == count - 1
            return jnp.mean((output - batch.targets) ** 2) if last else output

        return Layer((f"w{n}",), apply)

    return layered([layer(n) for n in range(count)], None, None, None)


def check_pipelines_have_the_bits_and_words_of_hybrid():
    layers = integers(LAYERS, WIDTH, WIDTH)
    inputs, targets = integers(2, MICROBATCHES, EXAMPLES, WIDTH)
    params = {f"w{n}": w for n, w in enumerate(layers)}
    model = replicate_layers(chain(), params)
    examples = Batch(inputs.reshape(-1, WIDTH), targets.reshape(-1, WIDTH))
    for name, schedule, stages in [
        ("gpipe", pipeline.gpipe, 2),
        ("1f1b", pipeline.one_forward_one_backward, 3),
    ]:

        def program(comm, schedule=schedule):
            own = np.array_split(layers, comm.size)[comm.rank]
            return pipeline.pipeline(comm, schedule, own, inputs, targets)

        axes, how = grid(stage=stages), Pipeline(name, MICROBATCHES)
        layout = layout_of(divide(model, params, axes, how), params, axes, identity)
        call = GradientPrograms(model, layout, how)
        loss, grads = call(layout.scatter(params), examples, MICROBATCHES)
        expected = np.stack([*layout.collect(grads).values()])
        results, nbytes = zip(*ran(program, stages), strict=True)
        losses, found, _ = zip(*results, strict=True)
        assert np.count_nonzero(expected) > expected.size / 4
        assert np.array_equal(np.concatenate(found), expected), (name, stages)
        assert losses[-1] == float(loss.addressable_data(0)) > 0
        if stages == 2:  # more devices also send in ticks in which they have no message
            assert {*nbytes} == {call.bytes_sent["stage"] / 2}


def blocks():
    """Return the network of tensor_parallel.py on one of several devices."""

    def embed(params, given, batch):
        return batch.inputs @ params["embedding"]

    def block(n):
        def apply(params, given, batch):
            up, down = params[f"b{n}"]
            hidden = jax.nn.relu(copy_to_devices(given, "tensor") @ up)
            output = given + sum_over_devices(hidden @ down, "tensor")
            last = n == BLOCKS - 1
            return jnp.mean((output - batch.targets) ** 2) if last else output

        return Layer((f"b{n}",), apply)

    specs = {f"b{n}": (COLUMNS, ROWS) for n in range(BLOCKS)}
    specs = {"embedding": REPLICATED} | specs
    not_partial = jax.tree.map(lambda _: False, specs)
    layers = [Layer(("embedding",), embed), *map(block, range(BLOCKS))]
    return Tensor(layers, specs, not_partial)


def check_tensor_parallel_has_the_bits_and_words_of_hybrid():
    shapes = (WIDTH, WIDTH), (BLOCKS, WIDTH, HIDDEN), (BLOCKS, HIDDEN, WIDTH)
    whole = [integers(*shape) for shape in shapes]
    inputs, targets = integers(2, EXAMPLES, WIDTH)
    embedding, ups, downs = whole
    pairs = zip(ups, downs, strict=True)
    params = {"embedding": embedding} | {f"b{n}": two for n, two in enumerate(pairs)}
    for size in (2, 4):

        def program(comm, dtype=np.float32):
            own = tensor_parallel.slices(whole, comm.rank, comm.size)
            own, batch = [w.astype(dtype) for w in own], (inputs.astype(dtype), targets)
            return tensor_parallel.gradient(comm, own, *batch)

        axes, how = grid(tensor=size), Pipeline("gpipe")
        model = blocks()
        layout = layout_of(divide(model, params, axes, how), params, axes, identity)
        call = GradientPrograms(model, layout, how)
        loss, grads = call(layout.scatter(params), Batch(inputs, targets), 1)
        grads = layout.collect(grads)
        stacked = (
            np.stack([grads[f"b{n}"][side] for n in range(BLOCKS)]) for side in (0, 1)
        )
        expected = grads["embedding"], *stacked
        assert all(np.count_nonzero(leaf) > leaf.size / 4 for leaf in expected)
        for rank, ((found_loss, found), nbytes) in enumerate(ran(program, size)):
            own = tensor_parallel.slices(expected, rank, size)
            assert [*map(np.ndarray.tolist, found)] == [*map(np.ndarray.tolist, own)]
            assert found_loss == float(loss.addressable_data(0)) > 0
            assert nbytes == call.bytes_sent["tensor"] > 0
        exact = ran(partial(program, dtype=np.float64), size)[-1][0][1]
        assert [*map(np.ndarray.tolist, found)] == [*map(np.ndarray.tolist, exact)]


def sent_bytes(call, *arguments):
    """Return the bytes that a device sends by rings in a program, by kind.

    The loss is left out: it has 4 bytes, params and gradients have a multiple of 8.
    """
    found = collectives(call.lower(*arguments).compile().as_text())
    nbytes = Counter()
    for each in found:
        whole = each._replace(nbytes=each.nbytes - each.nbytes % 8)
        nbytes[each.kind] += ring_bytes(whole) * each.times
    return nbytes


def check_zero_has_the_bits_and_words_of_the_mesh():
    size, shapes = DEVICES, [(WIDTH, HIDDEN), (HIDDEN, WIDTH)]
    start = [integers(*shape) for shape in shapes]
    moments = [integers(*shape)[::-1] for shape in shapes]
    inputs, targets = integers(2, size * EXAMPLES, WIDTH)
    optimizer, axes = optax.sgd(0.125, momentum=0.5), grid(data=size)
    params = {f"w{n}": w for n, w in enumerate(start)}
    trace = {f"w{n}": m for n, m in enumerate(moments)}
    state = optax.tree.set(optimizer.init(params), trace=trace)

    def momentum(w, grad, state):
        state = grad + state / 2
        return w - state / 8, state

    def slices(comm, arrays, sliced):
        return [
            zero.own_slice(comm, array.reshape(-1)) if sliced else array.reshape(-1)
            for array in arrays
        ]

    def program(comm, level):
        own = slices(comm, start, level > 2), slices(comm, moments, level > 0)
        x, y = (np.array_split(array, size)[comm.rank] for array in (inputs, targets))
        zero.zero(comm, level, shapes, *own, x, y, momentum)
        return own

    for level, placing in ZERO.items():
        place = placement(placing, chain(2), params, optimizer, axes)
        means = compile_shard_map(place, placing, axes, 1, False)
        parts = inspect.getclosurevars(means).nonlocals
        batch = jax.tree.map(parts["placed"], Batch(inputs, targets))
        placed, placed_state = place.place(params), place.place_state(state)
        nbytes = sent_bytes(parts["call"], placed, batch)
        if level == 3:  # XLA keeps what a layer gathered, or not, by version
            once = nbytes["reduce-scatter"]
            assert once <= nbytes["all-gather"] <= 2 * once
            nbytes["all-gather"] = 2 * once
        _, _, grads = parts["call"](placed, batch)
        if level:
            nbytes += sent_bytes(place.update, grads, placed_state, placed)
        new, new_state = place.update(grads, placed_state, placed)
        new = [*jax.device_get(place.replicate(new)).values()]
        trace = [*optax.tree.get(place.collect_state(new_state), "trace").values()]

        def expected(comm, level=level, new=new, trace=trace):
            return slices(comm, new, level > 2), slices(comm, trace, level > 0)

        found = ran(partial(program, level=level), size)
        for (own, sent), (wanted, _) in zip(found, ran(expected, size), strict=True):
            for one, other in zip(sum(own, []), sum(wanted, []), strict=True):
                assert one.tobytes() == other.tobytes()
            assert sent == nbytes.total() > 0, level


CHECKS = [each for name, each in [*globals().items()] if name.startswith("check_")]


def named(text):
    """Return the names of the checks with a text in their name."""
    return [check.__name__ for check in CHECKS if text in check.__name__]


if __name__ == "__main__":
    run(CHECKS, DEVICES)
