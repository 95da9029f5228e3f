"""Training divided three ways at once: examples, layers, and matrices over a mesh.

    data 0   stage 0 → stage 1 → stage 2     microbatches travel along stages, gradients
    data 1   stage 0 → stage 1 → stage 2     of replicas meet over data; every stage is
             └ tensor 0, 1: slices ┘         some devices that share its matrices

Params and the global minibatches in, a Step after every update out. What replicas and
microbatches cannot share equally is one microbatch more, that all replicas compute.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import numpy as np
import optax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from dml.data.feed import feed
from dml.metrics.timer import Timer
from dml.models.gradient import plus
from dml.strategies.hybrid.parts import Held, Part, holding, parts
from dml.strategies.hybrid.pipeline import play
from dml.strategies.hybrid.sent import bytes_sent
from dml.strategies.hybrid.sums import clipped, summed
from dml.strategies.hybrid.transposed import transposed
from dml.strategies.serial import examples
from dml.types import BadInput, Batch, Examples, Model, Params, Step, Tensor
from dml.update.dense import Optimizer
from dml.wire.mesh.axes import FED, HELD, WHOLE
from dml.wire.mesh.packed import Vectors, read, write
from dml.wire.mesh.when import when
from dml.wire.pipelines import Schedule, make
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

    def ticks(self, axes: Mesh, microbatches: int) -> Schedule:
        """Return the schedule of so many microbatches."""
        stages = axes.shape["stage"]
        return make(self.schedule, stages, microbatches, self.rounds, self.pieces)

    def sent(self, call: jax.stages.Compiled, axes: Mesh) -> dict[str, float]:
        """Return the bytes that a device sends in a step, by axis."""
        if self.schedule == TRANSPOSED:  # not known: JAX has made half of it
            return {}
        return bytes_sent(call, self.ticks(axes, self.microbatches))


def hybrid(
    model: Tensor,
    params: Params,
    data: Batch | Examples,
    batches: Iterable[np.ndarray],
    optimizer: Optimizer,
    timer: Timer,
    *,
    axes: Mesh,
    pipeline: Pipeline,
    clip: float = 0.0,
    state: Any = None,
    ahead: int = 2,
) -> Iterator[Step]:
    """Train as serial does, on axes' devices; params, data, batches are equal on all.

    The optimizer must not clip: gradients are, by their whole norm, before it.
    """
    mine = divided(model, params, axes, pipeline)
    held = holding(mine, params, axes, lambda tree: tree)
    kept = holding(mine, params, axes, optimizer.init)
    gradients = Gradients(model, held, pipeline)
    update = updating(held, kept, optimizer, clip)
    now = held.hold(params)
    state = kept.hold(optimizer.init(params) if state is None else state)
    split = partial(shares, axes.shape["data"], pipeline.microbatches)
    fed = feed(data, batches, split, ahead=ahead)
    for number, (count, (even, rest)) in enumerate(timer.waits("input", fed), 1):
        with timer("gradient", work=1):
            found, left = None, 0 if rest is None else examples(rest)
            if even is not None:
                equal = gradients(now, even, pipeline.microbatches)
                found = plus(None, equal, 1 - left / count)
            if rest is not None:
                found = plus(found, gradients(now, rest, 0), left / count)
            loss, grads = jax.block_until_ready(found)
        with timer("update"):
            now, state = jax.block_until_ready(update(grads, state, now))
        yield Step(
            *(number, float(jax.device_get(loss.addressable_data(0)))),
            partial(held.collect, now),
            count,
            timer.lap(),
            0,
            measures={
                "bytes_held": nbytes((now, state)),
                "bytes_temporary": gradients.temporary,
                **{f"{axis}_bytes": sent for axis, sent in gradients.sent.items()},
            },
            state=partial(kept.collect, state),
        )


def divided(
    model: Tensor, params: Params, axes: Mesh, pipeline: Pipeline
) -> list[Part]:
    """Return the parts of a model; refuse what cannot be divided."""
    seconds = pipeline.seconds or [1.0] * len(model.layers)
    ranges = pipeline.ranges(len(model.layers), axes.shape["stage"])
    return parts(model, params, axes, ranges, seconds, pipeline.pieces)


def dense(model: Model, params: Params) -> Tensor:
    """Return a model that is whole on every device."""
    if not model.layers:
        raise BadInput(
            "expected a model of layers, got one whose loss is whole; pass a network"
        )
    specs = jax.tree.map(lambda _: WHOLE, params)
    return Tensor(model.layers, specs, jax.tree.map(lambda _: False, params))


def shares(replicas: int, microbatches: int, index: np.ndarray) -> list[np.ndarray]:
    """Return the examples that all share equally, and the rest.

    The first are ordered by microbatch, then by replica.
    """
    even = len(index) - len(index) % (replicas * microbatches)
    mine = index[:even].reshape(replicas, microbatches, -1)
    return [mine.swapaxes(0, 1).reshape(-1), index[even:]]


class Gradients:
    """The compiled programs of a schedule, by how a minibatch is shared."""

    def __init__(self, model: Tensor, held: Held, pipeline: Pipeline) -> None:
        self.model, self.held, self.pipeline = model, held, pipeline
        self.calls: dict[int, jax.stages.Compiled] = {}
        self.sent: dict[str, float] = {}  # bytes a device and step, by axis

    def __call__(self, params: Vectors, batch: Batch, microbatches: int) -> Any:
        """Return the mean loss and the gradients; 0 microbatches: all compute one."""
        spec = FED if microbatches else WHOLE
        lies = NamedSharding(self.held.axes, spec)

        def laid(leaf: np.ndarray) -> jax.Array:
            leaf = leaf.reshape(max(1, microbatches), -1, *leaf.shape[1:])
            return jax.make_array_from_callback(leaf.shape, lies, lambda at: leaf[at])

        given = params, jax.tree.map(laid, batch)
        if microbatches not in self.calls:
            count = max(1, microbatches)
            call = self.program(count, spec).lower(*given).compile()
            self.calls[microbatches] = call
            if microbatches == self.pipeline.microbatches:
                self.sent = self.pipeline.sent(call, self.held.axes)
        return self.calls[microbatches](*given)

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
            loss, grads = alone(_flat(params), batches)
            # every device of tensor has the loss, of stage the last alone
            loss = jax.lax.psum(loss, ("data", "stage")) / axes.shape["data"]
            return loss, _boxed(summed(self.held, self.model, grads))

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
        grads, state, params = _flat(grads), _flat(state), _flat(params)
        if clip:
            grads = clipped(held, grads, clip)
        stage = jax.lax.axis_index("stage")
        for part, packed in zip(held.parts, kept.packed, strict=True):
            does = partial(updated, held, kept, part, packed, optimizer, grads)
            state, params = when(stage == part.stage, does, (state, params))
        return _boxed(params), _boxed(state)

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
    packed: Any,
    optimizer: Optimizer,
    grads: Vectors,
    both: tuple[Vectors, Vectors],
) -> tuple[Vectors, Vectors]:
    """Update one part's params, and the state that belongs to them."""
    state, params = both
    at, there = held.base(part), kept.base(part)
    mine = read(params, part.params, at)
    updates, after = optimizer.update(
        read(grads, part.params, at), read(state, packed, there), mine
    )
    params = write(params, part.params, optax.apply_updates(mine, updates), at)
    return write(state, packed, after, there), params


def nbytes(tree: Any) -> int:
    """Return the bytes that one device holds of a tree."""
    return sum(leaf.addressable_data(0).nbytes for leaf in jax.tree.leaves(tree))


def _flat(vectors: Vectors) -> Vectors:
    return {kind: one.reshape(-1) for kind, one in vectors.items()}


def _boxed(vectors: Vectors) -> Vectors:
    return {kind: one[None, None] for kind, one in vectors.items()}
