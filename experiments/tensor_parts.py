"""A transformer's layers one by one, dense and cut: forward and backward, compiled.

What a layer gets (params, a stream, a loss) comes in; what XLA made of it, with its
outputs to compare, its collectives to count and its seconds, goes out.
"""

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from dml.models.cut import AXIS
from dml.models.layers import read
from dml.models.tensor import tensor_transformer
from dml.models.transformer import Shape, transformer
from dml.types import BadInput, Batch, Layer, Params
from dml.wire.mesh.traffic import Collective, collectives

PARTS = {"embed": 0, "block": 1, "head": -1}  # by their places among the layers
WHOLE = PartitionSpec()


class Operands(NamedTuple):
    """What goes into a layer's forward and backward."""

    params: Params
    given: Any  # by the layer before it
    batch: Batch
    seen: Any  # the weights of its outputs' squares in a loss


class Part(NamedTuple):
    """A compiled layer."""

    run: Callable[[], Any]  # -> what it gives, grads of params, and of what it got
    collectives: list[Collective]
    parts: Any  # of its grads: those of which each device has a part


def devices(count: int) -> None:
    """Make so many devices of this process, where they are CPUs."""
    from dml.wire.messages.comm import world

    ranks = world().size
    if ranks > 1:
        raise BadInput(f"expected devices of one process, got {ranks}; drop mpirun")
    jax.config.update("jax_num_cpu_devices", count)
    if len(jax.devices()) < count:
        raise BadInput(
            f"expected {count} devices, got {len(jax.devices())}; pass a smaller "
            "--tensor, or set JAX_PLATFORMS=cpu"
        )


def problem(shape: Shape, batch: int, seed: int) -> tuple[Params, Batch, Any, Any]:
    """Draw params none of which is 0, tokens, a stream and weights of its numbers."""
    rng = np.random.default_rng(seed)
    params = jax.tree.map(
        lambda leaf: leaf + rng.normal(0, 0.02, leaf.shape).astype("f4"),
        jax.device_get(transformer(shape, True).init(jax.random.key(seed))),
    )
    wide = batch, shape.length
    inputs, targets = rng.integers(shape.vocabulary, size=(2, *wide), dtype=np.int32)
    stream, seen = rng.standard_normal((2, *wide, shape.width), np.float32)
    return params, Batch(inputs, targets), stream, seen


def operands(name: str, layer: Layer, given: tuple[Params, Batch, Any, Any]) -> Any:
    """Return what goes into the layer: the first gets none, the last gives a loss."""
    params, batch, stream, seen = given
    return Operands(
        read(layer, params),
        None if name == "embed" else stream,
        batch,
        np.float32(1) if name == "head" else seen,
    )


def both(layer: Layer, parts: Any, given: Operands) -> Any:
    """Run forward and backward; parts of a gradient get an axis for their devices."""
    out, pull = jax.vjp(
        lambda params, stream: layer.apply(params, stream, given.batch), *given[:2]
    )
    # of the loss seen · out² / 2: a gradient that did not depend on out would let XLA
    # make one all-reduce of the last one forward and the first one backward
    grads, back = pull(given.seen * out)
    grads = jax.tree.map(lambda leaf, part: leaf[None] if part else leaf, grads, parts)
    return out, grads, back


def dense(shape: Shape, name: str, given: Any) -> Part:
    """Compile a layer of the dense network, for one device."""
    layer = transformer(shape, True).layers[PARTS[name]]
    whole = operands(name, layer, given)
    parts = jax.tree.map(lambda leaf: False, whole.params)
    program = jax.jit(partial(both, layer, parts)).lower(whole).compile()
    return Part(partial(program, jax.device_put(whole)), [], parts)


def cut(shape: Shape, name: str, given: Any, size: int, sequence: bool) -> Part:
    """Compile a layer that is cut over so many devices."""
    tensor = tensor_transformer(shape, True, size, sequence=sequence)
    layer = tensor.layers[PARTS[name]]
    specs, parts = read(layer, tensor.specs), read(layer, tensor.partial)
    places = PartitionSpec(None, AXIS) if sequence and size > 1 else WHOLE
    gives = WHOLE if name == "head" else places
    stacked = jax.tree.map(
        lambda part, spec: PartitionSpec(AXIS) if part else spec, parts, specs
    )
    axes = jax.make_mesh(
        (size,), (AXIS,), devices=jax.devices()[:size], axis_types=(AxisType.Auto,)
    )
    lie = Operands(specs, places, WHOLE, gives)
    whole = operands(name, layer, given)
    put = jax.tree.map(
        lambda spec, some: jax.device_put(some, NamedSharding(axes, spec)), lie, whole
    )
    program = jax.shard_map(
        partial(both, layer, parts),
        mesh=axes,
        in_specs=(lie,),
        out_specs=(gives, stacked, places),
        check_vma=False,
    )
    found = jax.jit(program).lower(put).compile()
    return Part(partial(found, put), collectives(found.as_text()), parts)


def whole(part: Part) -> Any:
    """Return what a layer gives, and its gradients, put together."""
    out, grads, back = jax.device_get(part.run())
    added = jax.tree.map(
        lambda leaf, some: leaf.sum(axis=0) if some else leaf, grads, part.parts
    )
    return out, added, back


def gap(part: Part, reference: Part) -> float:
    """Return the largest difference, as a share of the largest number of its array."""

    def share(found: np.ndarray, wanted: np.ndarray) -> float:
        return np.abs(found - wanted).max() / (np.abs(wanted).max() or 1)

    gaps = jax.tree.map(share, whole(part), whole(reference))
    return float(max(jax.tree.leaves(gaps)))


def race(one: Part, other: Part, size: int, repeats: int) -> tuple[float, float]:
    """Return the median seconds of a dense part and of one cut over size devices.

    They take turns, after one to warm up. CPU devices have a core each: the dense one
    would else be computed by all of them.
    """
    times = np.zeros((1 + repeats, 2))
    with pinning() as pinned:
        for turn, column in np.ndindex(times.shape):
            pinned((1, size)[column])
            begun = time.perf_counter()
            jax.block_until_ready((one, other)[column].run())
            times[turn, column] = time.perf_counter() - begun
    first, second = np.median(times[1:], axis=0)
    return float(first), float(second)


@contextmanager
def pinning() -> Iterator[Callable[[int], None]]:
    """Give a call that leaves all threads so many cores; they get theirs back."""
    allowed = sorted(os.sched_getaffinity(0))

    def pinned(count: int) -> None:
        if jax.default_backend() == "cpu":
            for thread in Path("/proc/self/task").iterdir():
                with suppress(ProcessLookupError):  # it has ended
                    os.sched_setaffinity(int(thread.name), allowed[:count])

    try:
        yield pinned
    finally:
        pinned(len(allowed))
