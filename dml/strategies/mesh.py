"""Data parallel on a mesh of JAX devices: XLA moves the gradients.

       global minibatch
    ┌─────────┼─────────┐
  device 0  device 1  device 2    of one process, or of many (mpirun)
  gradient  gradient  gradient    of the mean loss of a device's shard
    └─────── psum ──────┘         over the axis `data`, one vector per layer
  update    update    update      the same on all devices: replicas stay equal

    backward  layer 3 │ layer 2 │ layer 1     the sum of a layer depends on the
    psum              └ vector 3 ┴ vector 2   gradients of this layer only

XLA's scheduler may sum a layer while it computes the next gradients; on CPUs a
collective blocks the program. Between processes one vector per layer is summed faster
than the arrays of the layer, because each array needs separate messages.

Examples that cannot be divided equally among the devices are computed by every device:
no example is padded or left out. XLA sends the elements of the psum, 2(k-1)/k·n per
device for n parameters on k devices in a ring; Steps do not count them.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from dml.data.feed import feed
from dml.metrics.noise import Noise
from dml.metrics.timer import Timer
from dml.models.gradient import add_scaled, gradient
from dml.strategies.zero import ZERO, Level, Placement, placement
from dml.types import BadInput, Batch, Comm, Grads, Params, Problem, Step
from dml.types.ranges import Count, OneOf, Size, checked
from dml.update.dense import Optimizer
from dml.wire.mesh.axes import DATA_SHARDED, EXAMPLES, REPLICATED
from dml.wire.mesh.packed import sum_layers
from dml.wire.mesh.slices import sum_into_slices

CALL_NAMES = ("shard_map", "pmap")

# (params, examples of this process) -> mean loss, the mean over devices of the squared
# norm of a device's gradient, mean gradient
Means = Callable[[Params, Batch], tuple[Any, Any, Grads]]


@checked
def mesh(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Optimizer,
    *,
    comm: Comm,
    timer: Timer,
    axes: Mesh,
    call: Annotated[str, OneOf(CALL_NAMES)] = "shard_map",
    zero: Annotated[int, OneOf(tuple(ZERO))] = 0,
    accumulate: Count = 1,
    noise: bool = False,
    prefetch: Size = 2,
    state: Any = None,
) -> Iterator[Step]:
    """Train on the devices of a mesh; yield a Step after every update.

    Args:
      problem: The problem; its `model` is compiled for the mesh.
      batches: Indices of each global minibatch, equal in all processes.
      update: An optax optimizer; with zero >= 1, an optimizer of slices over `data`.
      comm: The ranks, one JAX process each.
      timer: Measures the phases.
      axes: The mesh, with the axis `data`.
      call: Key in CALLS: how the devices' program is compiled.
      zero: Level of ZeRO, a key of ZERO: which arrays are stored in slices.
      accumulate: Number of microbatches of a device's shard.
      noise: Whether the gradient noise scale is measured.
      prefetch: Number of minibatches prepared in the background.
      state: Optimizer state of an earlier Step; None starts anew.
    """
    model, params = problem.model, problem.params
    assert model
    size, level = axes.shape["data"], ZERO[zero]
    layout = placement(level, model, params, update, axes)
    means = CALLS[call](layout, level, axes, accumulate, noise)
    scale = Noise() if noise else None
    state = layout.place_state(update.init(params) if state is None else state)
    params = layout.place(params)
    split = partial(device_shards, axes=axes, accumulate=accumulate)
    minibatches = feed(problem.take, batches, split, prefetch=prefetch)
    for number, (count, parts) in enumerate(timer.waits("input", minibatches), 1):
        even, rest = parts
        with timer("gradient"):
            total, remaining = None, rest.examples if rest else 0
            if even:
                loss, square, grads = means(params, even.batch)
                total = add_scaled(None, (loss, grads), 1 - remaining / count)
            if rest:
                batch = replicated(rest.batch, axes)
                loss, grads = gradient(model.loss, layout.replicate(params), batch)
                rest_total = loss, layout.place_grads(grads)
                total = add_scaled(total, rest_total, remaining / count)
            loss, grads = jax.block_until_ready(total)
            comm.platform.work(1)
        measures: dict[str, float] = {"bytes_held": nbytes((params, state))}
        if scale:
            if even:
                small, large = jax.device_get((local(square), local(_square(grads))))
                shard = (count - remaining) / size
                scale.add(float(small), float(large), shard, count)
            measures["noise_scale"] = scale.scale
        with timer("update"):
            params, state = jax.block_until_ready(layout.update(grads, state, params))
        yield Step(
            number=number,
            loss=float(jax.device_get(local(loss))),
            params=partial(layout.replicate, params),
            examples=count,
            seconds=timer.lap(),
            words_sent=0,
            measures=measures,
            state=partial(layout.collect_state, state),
            replicas=level.params == REPLICATED,
        )


def device_shards(index: np.ndarray, axes: Mesh, accumulate: int) -> list[np.ndarray]:
    """Return the examples of this process's devices, and those that are left over.

    The first are ordered by microbatch, then by device; those of a device are
    contiguous. Fewer are left over than devices times microbatches.
    """
    devices = list(axes.devices.flat)
    even = len(index) - len(index) % (len(devices) * accumulate)
    process = jax.process_index()
    local_devices = [
        n for n, device in enumerate(devices) if device.process_index == process
    ]
    per_device = index[:even].reshape(len(devices), accumulate, -1)
    return [per_device[local_devices].swapaxes(0, 1).reshape(-1), index[even:]]


def replicated(tree: Any, axes: Mesh) -> Any:
    """Copy a tree, equal in all processes, to every device of the mesh."""
    sharding, count = NamedSharding(axes, REPLICATED), axes.local_mesh.size
    return jax.tree.map(
        lambda leaf: from_parts([np.asarray(leaf)] * count, leaf.shape, sharding), tree
    )


def from_parts(
    parts: list[np.ndarray], shape: tuple[int, ...], sharding: NamedSharding
) -> jax.Array:
    """Return the global array; `parts` are those of this process's devices."""
    devices = sharding.mesh.local_mesh.devices.flat
    arrays = list(map(jax.device_put, parts, devices))
    return jax.make_array_from_single_device_arrays(shape, sharding, arrays)


def program(
    layout: Placement, level: Level, size: int, noise: bool
) -> Callable[..., Any]:
    """Return the program of one device: (params, its microbatches) -> global means.

    Args:
      layout: Where params and gradients are stored, and the loss of a device.
      level: Level of ZeRO.
      size: Number of devices of `data`.
      noise: Whether the squared norms of the devices' gradients are computed.
    """

    def means(params: Params, batches: Batch) -> tuple[Any, Any, Grads]:
        def add(total: Any, batch: Batch) -> tuple[Any, None]:
            loss_and_grads = jax.value_and_grad(layout.loss)(params, batch)
            return jax.tree.map(jnp.add, total, loss_and_grads), None

        first = jax.tree.map(lambda leaf: leaf[0], batches)
        total = jax.value_and_grad(layout.loss)(params, first)
        count = len(jax.tree.leaves(batches)[0])
        if count > 1:
            others = jax.tree.map(lambda leaf: leaf[1:], batches)
            total, _ = jax.lax.scan(add, total, others)
        loss, grads = jax.tree.map(lambda leaf: leaf / (count * size), total)
        square = _square(grads) * size if noise else loss
        loss, square = jax.lax.psum((loss, square), "data")
        if level.params == REPLICATED:  # otherwise each layer's gathering sums them
            grads = (
                sum_into_slices(grads, size)
                if level.grads == DATA_SHARDED
                else sum_layers(grads)
            )
        return loss, square, grads

    return means


def compile_shard_map(
    layout: Placement, level: Level, axes: Mesh, accumulate: int, noise: bool
) -> Means:
    """Compile the program of a device with jax.shard_map.

    Args:
      layout: Where params and gradients are stored, and the loss of a device.
      level: Level of ZeRO.
      axes: The mesh.
      accumulate: Number of microbatches of a device's shard.
      noise: Whether the squared norms of the devices' gradients are computed.
    """
    means = program(layout, level, axes.shape["data"], noise)

    def varying(params: Params, batches: Batch) -> tuple[Any, Any, Grads]:
        # Otherwise JAX itself sums gradients of replicated params, before our psum.
        if level.params == REPLICATED:
            params = jax.lax.pcast(params, "data", to="varying")
        return means(params, batches)

    call = jax.jit(
        jax.shard_map(
            varying,
            mesh=axes,
            in_specs=(level.params, EXAMPLES),
            out_specs=(REPLICATED, REPLICATED, level.grads),
        )
    )

    count = axes.local_mesh.size

    def placed(leaf: np.ndarray) -> jax.Array:
        parts = leaf.reshape(accumulate, count, -1, *leaf.shape[1:])
        shape = (accumulate, parts.shape[2] * axes.size, *leaf.shape[1:])
        return from_parts(
            list(parts.swapaxes(0, 1)), shape, NamedSharding(axes, EXAMPLES)
        )

    return lambda params, batch: call(params, jax.tree.map(placed, batch))


def compile_pmap(
    layout: Placement, level: Level, axes: Mesh, accumulate: int, noise: bool
) -> Means:
    """Compile the program with jax.pmap: an axis of devices in place of shards.

    The arguments are those of `compile_shard_map`.
    """
    if level.grads == DATA_SHARDED:
        raise BadInput(
            "expected replicated gradients with pmap, got slices; pass --zero=0 or "
            "--zero=1"
        )
    devices = list(axes.local_mesh.devices.flat)
    call = jax.pmap(
        program(layout, level, axes.shape["data"], noise),
        axis_name="data",
        in_axes=(None, 1),
        devices=devices if jax.process_count() == 1 else None,
    )

    @jax.transfer_guard("allow")  # pmap moves its arguments itself
    def means(params: Params, batch: Batch) -> tuple[Any, Any, Grads]:
        stacked = call(
            jax.tree.map(local, params),
            jax.tree.map(
                lambda leaf: leaf.reshape(
                    accumulate, len(devices), -1, *leaf.shape[1:]
                ),
                batch,
            ),
        )
        first = jax.tree.map(lambda leaf: np.asarray(local(leaf))[0], stacked)
        return replicated(first, axes)

    return means


CALLS = dict(zip(CALL_NAMES, (compile_shard_map, compile_pmap), strict=True))


def local(leaf: jax.Array) -> jax.Array:
    """Return the part of a global array on the first device of this process."""
    return leaf.addressable_data(0)


def nbytes(tree: Any) -> int:
    """Return the bytes of a tree that one device stores."""
    return sum(local(leaf).nbytes for leaf in jax.tree.leaves(tree))


@jax.jit
def _square(tree: Any) -> Any:
    return sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(tree))
