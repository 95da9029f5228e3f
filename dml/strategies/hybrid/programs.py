"""The compiled programs of hybrid: the gradients of a minibatch, and their update.

    gradients   params, microbatches → a schedule played → sums over the axes
    update      gradients, state, params → norm → every device's own parts

How a model is divided and what its stages do when come in, compiled calls go out.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dml.strategies.hybrid.parts import Held, Part, parts
from dml.strategies.hybrid.pipeline import play
from dml.strategies.hybrid.sent import bytes_sent
from dml.strategies.hybrid.sums import clipped, summed
from dml.strategies.hybrid.transposed import transposed
from dml.strategies.serial import examples
from dml.types import Batch, Params, Tensor
from dml.update.dense import Optimizer
from dml.wire.mesh.axes import FED, HELD, WHOLE
from dml.wire.mesh.packed import Vectors, read, write
from dml.wire.mesh.when import when
from dml.wire.pipelines import Schedule, make, possible
from dml.wire.stages import stages as balanced

TRANSPOSED = "transposed"  # gpipe, whose backward JAX makes


class Pipeline(NamedTuple):
    """How a model is divided among the stages, and what they do when."""

    schedule: str = "1f1b"  # of SCHEDULES, or TRANSPOSED
    microbatches: int = 1
    rounds: int = 1  # parts on each stage
    remat: bool = False
    seconds: Sequence[float] = ()  # of each layer; alike where there are none
    pieces: int = 2  # ticks of a backward

    def ranges(self, layers: int, stages: int) -> list[range]:
        """Return the layers of each part."""
        return balanced(self.seconds or [1.0] * layers, stages * self.rounds)

    def program(self, held: Held, microbatches: int) -> Callable[..., Any]:
        """Return what one device does with its params and so many microbatches."""
        if self.schedule == TRANSPOSED:
            return transposed(held, microbatches, self.remat)
        return play(held, self.ticks(held.axes, microbatches), self.remat)

    @property
    def name(self) -> str:
        return "gpipe" if self.schedule == TRANSPOSED else self.schedule

    def ticks(self, axes: Mesh, microbatches: int) -> Schedule:
        """Return the schedule of so many microbatches."""
        stages = axes.shape["stage"]
        return make(self.name, stages, microbatches, self.rounds, self.pieces)

    def sent(self, call: jax.stages.Compiled, axes: Mesh) -> dict[str, float]:
        """Return the bytes that a device sends in a step, by axis."""
        if self.schedule == TRANSPOSED:  # not known: JAX has made half of it
            return {}
        return bytes_sent(call, self.ticks(axes, self.microbatches))


def divided(
    model: Tensor, params: Params, axes: Mesh, pipeline: Pipeline
) -> list[Part]:
    """Return the parts of a model; refuse what cannot be divided."""
    stages, layers = axes.shape["stage"], len(model.layers)
    possible(pipeline.name, stages, pipeline.microbatches, pipeline.rounds)
    seconds, ranges = (
        pipeline.seconds or [1.0] * layers,
        pipeline.ranges(layers, stages),
    )
    return parts(model, params, axes, ranges, seconds, pipeline.pieces)


class Gradients:
    """The compiled programs of a schedule, by how a minibatch is shared."""

    def __init__(self, model: Tensor, held: Held, pipeline: Pipeline) -> None:
        self.model, self.held, self.pipeline = model, held, pipeline
        self.calls: dict[tuple[int, int], jax.stages.Compiled] = {}
        self.sent: dict[str, float] = {}  # bytes a device and step, by axis

    def __call__(self, params: Vectors, batch: Batch, microbatches: int) -> Any:
        """Return the mean loss and the gradients; 0 microbatches: all compute one."""
        spec = FED if microbatches else WHOLE

        def laid(leaf: np.ndarray) -> jax.Array:
            leaf = leaf.reshape(max(1, microbatches), -1, *leaf.shape[1:])
            return everywhere(leaf, self.held.axes, spec)

        given = params, jax.tree.map(laid, batch)
        shared = microbatches, examples(batch)
        if shared not in self.calls:
            count = max(1, microbatches)
            call = self.program(count, spec).lower(*given).compile()
            self.calls[shared] = call
            if microbatches and not self.sent:
                self.sent = self.pipeline.sent(call, self.held.axes)
        return self.calls[shared](*given)

    @property
    def temporary(self) -> int:
        """The bytes that a device needs beside what it is given and gives."""
        known = [call.memory_analysis() for call in self.calls.values()]
        return max((one.temp_size_in_bytes for one in known if one), default=0)

    def program(self, microbatches: int, spec: PartitionSpec) -> Any:
        """Return the program of so many microbatches a replica, not yet compiled."""
        axes = self.held.axes
        alone = self.pipeline.program(self.held, microbatches)

        def means(params: Vectors, batches: Batch) -> tuple[Any, Vectors]:
            loss, grads = alone(flat(params), batches)
            # every device of tensor has the loss, of stage the last alone
            loss = jax.lax.psum(loss, ("data", "stage")) / axes.shape["data"]
            return loss, boxed(summed(self.held, self.model, grads))

        return jax.jit(
            jax.shard_map(
                means,
                mesh=axes,
                in_specs=(HELD, spec),
                out_specs=(WHOLE, HELD),
                check_vma=False,  # the sums are ours, written out
            )
        )


def updating(
    held: Held, kept: Held, optimizer: Optimizer, clip: float
) -> Callable[[Vectors, Vectors, Vectors], tuple[Vectors, Vectors]]:
    """Compile the update: every device of its own parts."""

    def alone(grads: Vectors, state: Vectors, params: Vectors) -> tuple[Any, Any]:
        grads, state, params = flat(grads), flat(state), flat(params)
        if clip:
            grads = clipped(held, grads, clip)
        stage = jax.lax.axis_index("stage")
        for part in held.parts:
            does = partial(updated, held, kept, part, optimizer, grads)
            state, params = when(stage == part.stage, does, (state, params))
        return boxed(params), boxed(state)

    return jax.jit(
        jax.shard_map(
            alone,
            mesh=held.axes,
            in_specs=(HELD, HELD, HELD),
            out_specs=(HELD, HELD),
            check_vma=False,
        ),
        donate_argnums=(0, 1),  # not params: whoever took the last Step holds them
    )


def updated(
    held: Held,
    kept: Held,
    part: Part,
    optimizer: Optimizer,
    grads: Vectors,
    both: tuple[Vectors, Vectors],
) -> tuple[Vectors, Vectors]:
    """Update one part's params, and the state that belongs to them."""
    state, params = both
    at, there = held.base(part), kept.base(part)
    packed = kept.packed[kept.parts.index(part)]
    mine = read(params, part.params, at)
    updates, after = optimizer.update(
        read(grads, part.params, at), read(state, packed, there), mine
    )
    params = write(params, part.params, optax.apply_updates(mine, updates), at)
    return write(state, packed, after, there), params


def flat(vectors: Vectors) -> Vectors:
    """Return a device's vectors, of arrays stages x tensor x length."""
    return {kind: one.reshape(-1) for kind, one in vectors.items()}


def boxed(vectors: Vectors) -> Vectors:
    """Undo flat."""
    return {kind: one[None, None] for kind, one in vectors.items()}


def nbytes(tree: Any) -> int:
    """Return the bytes that one device holds of a tree."""
    return sum(leaf.addressable_data(0).nbytes for leaf in jax.tree.leaves(tree))


def everywhere(leaf: np.ndarray, axes: Mesh, spec: PartitionSpec) -> jax.Array:
    """Give every device its part of an array that all processes have."""
    lies = NamedSharding(axes, spec)
    places = lies.addressable_devices_indices_map(leaf.shape)
    # not make_array_from_callback: a guard against transfers takes it for one unasked
    parts = [jax.device_put(leaf[at], device) for device, at in places.items()]
    return jax.make_array_from_single_device_arrays(leaf.shape, lies, parts)
