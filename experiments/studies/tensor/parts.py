"""One layer, dense or cut over devices: its forward and backward pass, compiled.

`dense` and `cut` compile a layer for given operands and partition specs. A compiled
`Part` has outputs and gradients to compare and collectives to count; `raced` times it.
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
from dml.types import BadInput, Batch, Layer, Params
from dml.wire.mesh.traffic import Collective, collectives

REPLICATED = PartitionSpec()


class Operands(NamedTuple):
    """Inputs of a layer's forward and backward pass."""

    params: Params
    given: Any  # output of the layer before
    batch: Batch
    seen: Any  # weights of the squared outputs in the loss


class Specs(NamedTuple):
    """Partition specs of a layer that is cut."""

    params: Any
    given: Any
    out: Any
    partial: Any  # True where each device has a part of the gradient's sum


class Part(NamedTuple):
    """A compiled layer."""

    run: Callable[[], Any]  # -> output, gradients of params and of the input
    collectives: list[Collective]
    parts: Any  # True where each device has a part of the gradient's sum


def devices(count: int) -> None:
    """Make so many devices of this process, where they are CPUs."""
    from dml.wire.comm.mpi import world

    ranks = world().size
    if ranks > 1:
        raise BadInput(f"expected devices of one process, got {ranks}; drop mpirun")
    jax.config.update("jax_num_cpu_devices", count)
    if len(jax.devices()) < count:
        raise BadInput(
            f"expected {count} devices, got {len(jax.devices())}; pass a smaller "
            "--tensor, or set JAX_PLATFORMS=cpu"
        )


def forward_backward(layer: Layer, parts: Any, given: Operands) -> Any:
    """Run forward and backward; parts of a gradient get an axis for their devices."""
    out, pull = jax.vjp(
        lambda params, stream: layer.apply(params, stream, given.batch), *given[:2]
    )
    # of the loss seen · out² / 2: a gradient that did not depend on out would let XLA
    # make one all-reduce of the last one forward and the first one backward
    grads, back = pull(given.seen * out)
    grads = jax.tree.map(lambda leaf, part: leaf[None] if part else leaf, grads, parts)
    return out, grads, back


def dense(layer: Layer, given: Operands) -> Part:
    """Compile a layer for one device."""
    parts = jax.tree.map(lambda leaf: False, given.params)
    program = jax.jit(partial(forward_backward, layer, parts)).lower(given).compile()
    return Part(partial(program, jax.device_put(given)), [], parts)


def cut(layer: Layer, given: Operands, size: int, lies: Specs) -> Part:
    """Compile a layer that is cut over `size` devices."""
    stacked = jax.tree.map(
        lambda part, spec: PartitionSpec(AXIS) if part else spec,
        lies.partial,
        lies.params,
    )
    axes = jax.make_mesh(
        (size,), (AXIS,), devices=jax.devices()[:size], axis_types=(AxisType.Auto,)
    )
    specs = Operands(lies.params, lies.given, REPLICATED, lies.out)
    put = jax.tree.map(
        lambda spec, some: jax.device_put(some, NamedSharding(axes, spec)), specs, given
    )
    program = jax.shard_map(
        partial(forward_backward, layer, lies.partial),
        mesh=axes,
        in_specs=(specs,),
        out_specs=(lies.out, stacked, lies.given),
        check_vma=False,
    )
    found = jax.jit(program).lower(put).compile()
    return Part(partial(found, put), collectives(found.as_text()), lies.partial)


def gathered(part: Part) -> Any:
    """Return what a layer gives, and its gradients, put together."""
    out, grads, back = jax.device_get(part.run())
    added = jax.tree.map(
        lambda leaf, some: leaf.sum(axis=0) if some else leaf, grads, part.parts
    )
    return out, added, back


def largest_difference(part: Part, reference: Part) -> float:
    """Return the largest difference, as a share of the largest number of its array."""

    def share(found: np.ndarray, wanted: np.ndarray) -> float:
        return np.abs(found - wanted).max() / (np.abs(wanted).max() or 1)

    gaps = jax.tree.map(share, gathered(part), gathered(reference))
    return float(max(jax.tree.leaves(gaps)))


def race(
    calls: dict[str, tuple[int, Callable[[], Any]]], turns: int
) -> dict[str, list[float]]:
    """Return seconds of each call in each turn, on one core for each of its devices."""
    spent: dict[str, list[float]] = {name: [] for name in calls}
    with pinning() as pinned:
        for turn in range(1 + turns):  # the first one compiles
            for name, (cores, call) in calls.items():
                pinned(cores if turn else len(jax.devices()))
                begun = time.perf_counter()
                jax.block_until_ready(call())
                if turn:
                    spent[name].append(time.perf_counter() - begun)
    return spent


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
