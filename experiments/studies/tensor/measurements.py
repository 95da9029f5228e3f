"""One layer, dense or divided over devices: its compiled forward and backward pass.

`dense` and `cut` compile a layer for given operands and partition specs. A compiled
`CompiledLayer` has outputs and gradients to compare and collectives to count.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from dml.metrics.alternate import alternate
from dml.models.layers.partition import AXIS
from dml.types import BadInput, Batch, Layer, Params
from dml.wire.mesh.traffic import Collective, collectives

REPLICATED = PartitionSpec()


class Operands(NamedTuple):
    """Inputs of a layer's forward and backward pass.

    params: parameters of the layer.
    inputs: output of the previous layer.
    batch: minibatch.
    weights: weights of the squared outputs in the loss.
    """

    params: Params
    inputs: Any
    batch: Batch
    weights: Any


class Specs(NamedTuple):
    """Partition specs of a layer that is divided over devices.

    params: specs of the parameters.
    inputs: spec of the input.
    out: spec of the output.
    partial: for each param, whether its gradient is a sum of one term per device.
    """

    params: Any
    inputs: Any
    out: Any
    partial: Any


class CompiledLayer(NamedTuple):
    """A compiled layer.

    run: function that returns the output, and the gradients of params and of the input.
    collectives: collectives of the compiled program.
    partial: for each param, whether its gradient is a sum of one term per device.
    """

    run: Callable[[], Any]
    collectives: list[Collective]
    partial: Any


def devices(count: int) -> None:
    """Create `count` CPU devices in this process; raise where there are fewer."""
    from dml.wire.comm.mpi import world

    ranks = world().size
    if ranks > 1:
        raise BadInput(f"expected one process, got {ranks}; start without mpirun")
    jax.config.update("jax_num_cpu_devices", count)
    if len(jax.devices()) < count:
        raise BadInput(
            f"expected {count} devices, got {len(jax.devices())}; pass fewer, or set "
            "JAX_PLATFORMS=cpu"
        )


def forward_backward(layer: Layer, partial_grads: Any, operands: Operands) -> Any:
    """Run forward and backward; partial gradients get a leading axis for devices."""
    out, vjp = jax.vjp(
        lambda params, stream: layer.apply(params, stream, operands.batch),
        *operands[:2],
    )
    # The loss is weights · out² / 2. If the gradient did not depend on out, XLA could
    # merge the last all-reduce of the forward pass with the first of the backward pass.
    grads, input_grads = vjp(operands.weights * out)
    grads = jax.tree.map(
        lambda leaf, term: leaf[None] if term else leaf, grads, partial_grads
    )
    return out, grads, input_grads


def dense(layer: Layer, operands: Operands) -> CompiledLayer:
    """Compile a layer for one device."""
    complete = jax.tree.map(lambda leaf: False, operands.params)  # no partial gradients
    program = jax.jit(partial(forward_backward, layer, complete))
    compiled = program.lower(operands).compile()
    return CompiledLayer(partial(compiled, jax.device_put(operands)), [], complete)


def cut(layer: Layer, operands: Operands, size: int, specs: Specs) -> CompiledLayer:
    """Compile a layer that is divided over `size` devices."""
    stacked = jax.tree.map(
        lambda is_partial, spec: PartitionSpec(AXIS) if is_partial else spec,
        specs.partial,
        specs.params,
    )
    axes = jax.make_mesh(
        (size,), (AXIS,), devices=jax.devices()[:size], axis_types=(AxisType.Auto,)
    )
    in_specs = Operands(specs.params, specs.inputs, REPLICATED, specs.out)
    placed = jax.tree.map(
        lambda spec, array: jax.device_put(array, NamedSharding(axes, spec)),
        in_specs,
        operands,
    )
    program = jax.shard_map(
        partial(forward_backward, layer, specs.partial),
        mesh=axes,
        in_specs=(in_specs,),
        out_specs=(specs.out, stacked, specs.inputs),
        check_vma=False,
    )
    compiled = jax.jit(program).lower(placed).compile()
    return CompiledLayer(
        partial(compiled, placed), collectives(compiled.as_text()), specs.partial
    )


def run_and_sum(part: CompiledLayer) -> Any:
    """Return a layer's output and gradients, with partial gradients summed."""
    out, grads, input_grads = jax.device_get(part.run())
    summed = jax.tree.map(
        lambda leaf, is_partial: leaf.sum(axis=0) if is_partial else leaf,
        grads,
        part.partial,
    )
    return out, summed, input_grads


def largest_difference(part: CompiledLayer, reference: CompiledLayer) -> float:
    """Return the largest difference relative to the maximum of its array."""

    def relative(actual: np.ndarray, expected: np.ndarray) -> float:
        return np.abs(actual - expected).max() / (np.abs(expected).max() or 1)

    differences = jax.tree.map(relative, run_and_sum(part), run_and_sum(reference))
    return float(max(jax.tree.leaves(differences)))


def time_alternately(
    calls: dict[str, tuple[int, Callable[[], Any]]], repeats: int
) -> dict[str, list[float]]:
    """Time functions alternately, each on as many cores as it has devices.

    Args:
        calls: number of devices and function, by name.
        repeats: timed calls of each function, after one call that compiles it.

    Returns:
        Seconds of each timed call, by name.
    """

    def blocking(call: Callable[[], Any]) -> Callable[[], Any]:
        return lambda: jax.block_until_ready(call())

    with pinning() as pin:

        def before(name: str, timed: bool) -> None:
            pin(calls[name][0] if timed else len(jax.devices()))

        functions = {name: blocking(call) for name, (_, call) in calls.items()}
        return alternate(functions, repeats, before=before)


@contextmanager
def pinning() -> Iterator[Callable[[int], None]]:
    """Yield a function that pins all threads to `count` cores; undo it at the end."""
    allowed = sorted(os.sched_getaffinity(0))

    def pin(count: int) -> None:
        if jax.default_backend() == "cpu":
            for thread in Path("/proc/self/task").iterdir():
                with suppress(ProcessLookupError):  # the thread has ended
                    os.sched_setaffinity(int(thread.name), allowed[:count])

    try:
        yield pin
    finally:
        pin(len(allowed))
