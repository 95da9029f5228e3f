"""Data parallel on a mesh: one program, and XLA moves the gradients between devices.

       global minibatch
    ┌─────────┼─────────┐
  device 0  device 1  device 2    of one process, or of many (mpirun)
  gradient  gradient  gradient    each a mean, over its size
    └─────── psum ──────┘         over the axis `data`
  update    update    update      of equal params by equal grads: replicas stay equal

What the devices cannot share equally, every one of them computes alike: no example is
padded or left out. Words: what XLA moves is neither sent nor counted by us.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding

from dml.data.feed import feed
from dml.metrics.noise import Noise
from dml.metrics.timer import Timer
from dml.models.gradient import gradient, plus
from dml.strategies.zero import ZERO, Held, Level, holding
from dml.types import BadInput, Batch, Comm, Grads, Params, Problem, Step
from dml.update.dense import Optimizer
from dml.wire.mesh.axes import FED, SLICED, WHOLE
from dml.wire.mesh.slices import scattered

# held params, this process's examples -> mean loss, a device's mean square, mean grads
Means = Callable[[Params, Batch], tuple[Any, Any, Grads]]


def mesh(
    problem: Problem,
    batches: Iterable[np.ndarray],
    update: Optimizer,
    *,
    comm: Comm,
    timer: Timer,
    axes: Mesh,
    call: str = "shard_map",
    zero: int = 0,
    accumulate: int = 1,
    noise: bool = False,
    ahead: int = 2,
    state: Any = None,
) -> Iterator[Step]:
    """Train on the devices of a mesh; yield a Step after every update.

    problem: what is learned; `model` is compiled for the mesh.
    batches: the indices of each global minibatch, equal in all processes.
    update: an optax optimizer; from zero=1 on, one made for slices over `data`.
    comm: the ranks, one JAX process each.
    timer: measures the phases.
    axes: the mesh, with the axis `data`.
    call: name in CALLS of what makes the devices' program.
    zero: level in ZERO, which says what is stored in slices.
    accumulate: microbatches of a device's shard.
    noise: whether the gradient noise scale is measured.
    ahead: minibatches made in the background.
    state: the optimizer's state in an earlier Step.
    """
    model, params = problem.model, problem.params
    assert model
    size, level = axes.shape["data"], ZERO[zero]
    held = holding(level, model, params, update, axes)
    means = CALLS[call](held, level, axes, accumulate, noise)
    scale = Noise() if noise else None
    state = held.begin(update.init(params) if state is None else state)
    now = held.hold(params)
    split = partial(divided, axes=axes, accumulate=accumulate)
    fed = feed(problem.take, batches, split, ahead=ahead)
    for number, (count, (even, rest)) in enumerate(timer.waits("input", fed), 1):
        with timer("gradient"):
            found, left = None, rest.examples if rest else 0
            if even:
                loss, square, grads = means(now, even.batch)
                found = plus(None, (loss, grads), 1 - left / count)
            if rest:
                batch = everywhere(rest.batch, axes)
                lost = gradient(model.loss, held.whole(now), batch)
                lost = lost[0], held.slice(lost[1])
                found = plus(found, lost, left / count)
            loss, grads = jax.block_until_ready(found)
            comm.platform.work(1)
        measures: dict[str, float] = {"bytes_held": nbytes((now, state))}
        if scale:
            if even:
                small, large = jax.device_get((local(square), local(_square(grads))))
                scale.add(float(small), float(large), (count - left) / size, count)
            measures["noise_scale"] = scale.scale
        with timer("update"):
            now, state = jax.block_until_ready(held.update(grads, state, now))
        yield Step(
            number=number,
            loss=float(jax.device_get(local(loss))),
            params=partial(held.whole, now),
            examples=count,
            seconds=timer.lap(),
            words_sent=0,
            measures=measures,
            state=partial(held.collect, state),
            replicas=level.params == WHOLE,
        )


def divided(index: np.ndarray, axes: Mesh, accumulate: int) -> list[np.ndarray]:
    """Return this process's examples, and those that devices can't share equally.

    The first are ordered by microbatch, then by device; a device's are contiguous.
    """
    devices = list(axes.devices.flat)
    even = len(index) - len(index) % (len(devices) * accumulate)
    here = [
        n for n, one in enumerate(devices) if one.process_index == jax.process_index()
    ]
    per_device = index[:even].reshape(len(devices), accumulate, -1)
    return [per_device[here].swapaxes(0, 1).reshape(-1), index[even:]]


def everywhere(tree: Any, axes: Mesh) -> Any:
    """Give every device the whole of a tree that all processes have."""
    lies, count = NamedSharding(axes, WHOLE), axes.local_mesh.size
    return jax.tree.map(
        lambda leaf: on_each([np.asarray(leaf)] * count, leaf.shape, lies), tree
    )


def on_each(
    parts: list[np.ndarray], whole: tuple[int, ...], lies: NamedSharding
) -> jax.Array:
    """Return the array whose parts these are, one for each device of this process."""
    devices = lies.mesh.local_mesh.devices.flat
    arrays = list(map(jax.device_put, parts, devices))
    return jax.make_array_from_single_device_arrays(whole, lies, arrays)


def program(held: Held, level: Level, size: int, noise: bool) -> Callable[..., Any]:
    """Return what one device does: params and its microbatches in, global means out."""

    def means(params: Params, batches: Batch) -> tuple[Any, Any, Grads]:
        def add(total: Any, batch: Batch) -> tuple[Any, None]:
            found = jax.value_and_grad(held.loss)(params, batch)
            return jax.tree.map(jnp.add, total, found), None

        first = jax.tree.map(lambda leaf: leaf[0], batches)
        found = jax.value_and_grad(held.loss)(params, first)
        count = len(jax.tree.leaves(batches)[0])
        if count > 1:
            others = jax.tree.map(lambda leaf: leaf[1:], batches)
            found, _ = jax.lax.scan(add, found, others)
        loss, grads = jax.tree.map(lambda leaf: leaf / (count * size), found)
        square = _square(grads) * size if noise else loss
        loss, square = jax.lax.psum((loss, square), "data")
        if level.params == WHOLE:  # else each layer's gathering has summed them
            grads = (
                scattered(grads, size)
                if level.grads == SLICED
                else jax.lax.psum(grads, "data")
            )
        return loss, square, grads

    return means


def by_shard_map(
    held: Held, level: Level, axes: Mesh, accumulate: int, noise: bool
) -> Means:
    """Compile a device's program by shard_map."""
    means = program(held, level, axes.shape["data"], noise)

    def varying(params: Params, batches: Batch) -> tuple[Any, Any, Grads]:
        # Else JAX sums the gradient of what all devices share: twice, with our psum.
        if level.params == WHOLE:
            params = jax.lax.pcast(params, "data", to="varying")
        return means(params, batches)

    call = jax.jit(
        jax.shard_map(
            varying,
            mesh=axes,
            in_specs=(level.params, FED),
            out_specs=(WHOLE, WHOLE, level.grads),
        )
    )

    here = list(axes.local_mesh.devices.flat)

    def laid(leaf: np.ndarray) -> jax.Array:
        parts = leaf.reshape(accumulate, len(here), -1, *leaf.shape[1:])
        whole = (accumulate, parts.shape[2] * axes.size, *leaf.shape[1:])
        return on_each(list(parts.swapaxes(0, 1)), whole, NamedSharding(axes, FED))

    return lambda params, batch: call(params, jax.tree.map(laid, batch))


def by_pmap(
    held: Held, level: Level, axes: Mesh, accumulate: int, noise: bool
) -> Means:
    """Compile it by pmap, which has an axis of devices in place of shards."""
    if level.grads == SLICED:
        raise BadInput(
            "expected whole gradients with pmap, got slices; pass --zero=0 or --zero=1"
        )
    here = list(axes.local_mesh.devices.flat)
    call = jax.pmap(
        program(held, level, axes.shape["data"], noise),
        axis_name="data",
        in_axes=(None, 1),
        devices=here if jax.process_count() == 1 else None,
    )

    @jax.transfer_guard("allow")  # pmap itself moves what it is given
    def means(params: Params, batch: Batch) -> tuple[Any, Any, Grads]:
        found = call(
            jax.tree.map(local, params),
            jax.tree.map(
                lambda leaf: leaf.reshape(accumulate, len(here), -1, *leaf.shape[1:]),
                batch,
            ),
        )
        one = jax.tree.map(lambda leaf: np.asarray(local(leaf))[0], found)
        return everywhere(one, axes)

    return means


CALLS = {"shard_map": by_shard_map, "pmap": by_pmap}


def local(leaf: jax.Array) -> jax.Array:
    """Return this process's first copy, or slice, of an array on many devices."""
    return leaf.addressable_data(0)


def nbytes(tree: Any) -> int:
    """Return the bytes that one device holds of a tree."""
    return sum(local(leaf).nbytes for leaf in jax.tree.leaves(tree))


@jax.jit
def _square(tree: Any) -> Any:
    return sum(jnp.vdot(leaf, leaf) for leaf in jax.tree.leaves(tree))
