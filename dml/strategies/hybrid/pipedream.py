"""PipeDream (Narayanan 2019): a pipeline without flush; a stage updates immediately.

    stage 0   0 1 . . 0 0 2 1 1 3 2 2 4 3 3 ...    A digit is a minibatch: one tick of
    stage 1   . 0 0 0 1 1 1 2 2 2 3 3 3 4 4 ...    its forward, then two ticks of its
    window      0     1     2     3     4          backward, which end with an update.

A backward uses the params that its forward used. With K stages, stage k stores K - k
versions, of which the oldest is K - 1 - k updates old (its staleness). There is no
bubble except at the start and the end of a run. The program executes a window: as many
ticks as the forward and backward of one minibatch. After the first windows, windows
differ only in the indices of their minibatches, so the schedule needs no end.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from dml.metrics.timer import Timer
from dml.strategies.hybrid import instructions
from dml.strategies.hybrid.gradients import sum_part_over_tensor
from dml.strategies.hybrid.instructions import InFlight, Program
from dml.strategies.hybrid.layout import place
from dml.strategies.hybrid.parts import Pipeline, StagePart, shared_names
from dml.strategies.hybrid.pieces import trace_pieces
from dml.strategies.hybrid.pipeline import tick
from dml.strategies.hybrid.programs import Learner, optimizer_step
from dml.strategies.mesh import local, nbytes
from dml.types import BadInput, Batch, Step
from dml.wire.mesh.axes import EXAMPLES, PER_DEVICE, REPLICATED, SHARDED
from dml.wire.mesh.packed import Vectors, put, slot, zeros
from dml.wire.plans.pipeline import schedules as pipelines
from dml.wire.plans.pipeline import slots
from dml.wire.plans.pipeline.schedules import FORWARD, IDLE
from dml.wire.plans.pipeline.slots import Instructions


def pipedream(
    learner: Learner,
    pipeline: Pipeline,
    params: Vectors,
    state: Vectors,
    *,
    minibatches: Iterator[Any],
    timer: Timer,
    work: Callable[[float], object],
) -> Iterator[Step]:
    """Train as `hybrid` does, without waiting for updates.

    A Step is yielded after the window that computes the loss of its minibatch. Its
    params are those of the stages at that time; the last Step has the final params.

    Args:
      learner: The model, the layouts and the optimizer.
      pipeline: Division of the layers among stages, and the schedule of the stages.
      params: Start value of the params.
      state: Start value of the optimizer's state.
      minibatches: Result of `data.feed.feed`, with undivided minibatches.
      timer: Measures the phases.
      work: Adds the virtual time of a share of an update; see `Platform.work`.
    """
    layout, states = learner.layout, learner.states
    stages = layout.axes.shape["stage"]
    windows = Windows(stages, pipeline.pieces)
    allocate_memory, execute_window = compile_window(learner, pipeline.remat, windows)
    queue = Queue(timer.waits("input", minibatches), layout.axes)
    memory: Any = None
    step: Step | None = None  # yielded after the next Step, or as the last Step
    index = 0  # of the window
    number = 0  # of the Step
    while queue.total is None or index < queue.total + stages - 1:
        queue.fetch(max(windows.window(index, None).minibatches))
        window = windows.window(index, queue.total)
        batches = queue.batches(window.minibatches)
        with timer("gradient"):
            if memory is None:
                memory = allocate_memory(params, state, batches)
            table = jax.tree.map(
                lambda column: place(column, layout.axes, REPLICATED), window.table
            )
            memory, params, state, loss = execute_window(memory, table, batches)
            jax.block_until_ready((memory, params, state, loss))
            work(1)
        index += 1
        if window.has_loss:
            if step:
                yield step
            number += 1
            step = Step(
                number,
                float(jax.device_get(local(loss))),
                partial(layout.collect, params),
                queue.examples,
                timer.lap(),
                0,
                measures={"bytes_held": nbytes((memory, params, state))},
                state=partial(states.collect, state),
            )
    if step:
        yield step._replace(
            params=partial(layout.collect, params), state=partial(states.collect, state)
        )


def check_pipedream(
    parts: Sequence[StagePart], pipeline: Pipeline, clip: float
) -> None:
    """Raise BadInput if the stages cannot be updated independently."""
    names = shared_names(parts)
    if names:
        raise BadInput(
            "expected params that only one part reads with pipedream, got "
            f"{', '.join(names)}, which several parts read; pass --pipeline=1f1b"
        )
    if clip:
        raise BadInput(
            f"expected no clipping with pipedream, whose stages never have all "
            f"gradients of a minibatch at once, got --clip={clip}; pass --clip=0"
        )
    if pipeline.microbatches > 1:
        raise BadInput(
            "expected 1 microbatch per minibatch with pipedream, got "
            f"{pipeline.microbatches}; pass --microbatches=1 and a smaller --batch"
        )


class Window(NamedTuple):
    """Consecutive ticks, as many as a forward and a backward of one minibatch take."""

    table: Instructions  # its `microbatch` is an index of the batches of the window
    minibatches: list[int]  # indices of the minibatches of which a stage has a forward
    has_loss: bool  # whether the last stage has a forward


class Windows:
    """An endless schedule, divided into windows."""

    def __init__(self, stages: int, pieces: int) -> None:
        self.ticks = 1 + pieces  # number of ticks in a window
        # from this window on, windows differ only in the indices of minibatches
        self.periodic = 2 * stages
        self.batches = batch_count(stages)
        schedule = pipelines.pipedream(stages, 2 * self.periodic, pieces)
        self.table = slots.instructions(schedule)

    def window(self, index: int, total: int | None) -> Window:
        """Return a window.

        Args:
          index: Index of the window.
          total: Number of minibatches, after which stages are idle; None: no limit.
        """
        stored = min(index, self.periodic)
        shift = index - stored
        rows = slice(stored * self.ticks, (stored + 1) * self.ticks)

        def shift_slots(table: np.ndarray) -> np.ndarray:
            # first in, first out: minibatch m is in slot m % count
            count = np.maximum(table.max(axis=0) + 1, 1)
            return np.where(table[rows] < 0, table[rows], (table[rows] + shift) % count)

        piece = self.table.piece[rows]
        minibatch = np.where(piece == IDLE, IDLE, self.table.microbatch[rows] + shift)
        if total is not None:
            piece = np.where(minibatch >= total, IDLE, piece)
        table = Instructions(
            piece,
            minibatch % self.batches,
            self.table.round[rows],
            *map(shift_slots, self.table[3:]),
        )
        forwards = piece == FORWARD
        minibatches = np.unique(minibatch[forwards]).tolist()
        return Window(table, minibatches, bool(forwards[:, -1].any()))


def batch_count(stages: int) -> int:
    """Return the number of minibatches that a window may read."""
    return stages + 1


def compile_window(
    learner: Learner, remat: bool, windows: Windows
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return compiled functions that allocate the memory and execute a window.

    Returns:
      (params, state, batches) -> memory.
      (memory, instructions of the window, batches) -> memory, params, state, loss.
    """
    layout = learner.layout

    def program(batches: Any) -> Program:
        first = jax.tree.map(lambda leaf: leaf[0], batches)
        pieces = trace_pieces(layout.parts, first, remat)
        # an update uses one minibatch, so means are over one
        return Program(layout, pieces, windows.table, batches, microbatches=1)

    def allocate_memory(params: Vectors, state: Vectors, batches: Any) -> Any:
        versions = zeros(layout.lengths, slots.slot_count(windows.table.saved))
        memory = instructions.zero_grad(program(batches), params)
        return memory._replace(params=params, state=state, versions=versions)

    def execute_window(memory: InFlight, table: Instructions, batches: Any) -> Any:
        window_program = program(batches)
        execute_tick = partial(
            tick,
            layout.parts,
            partial(versioned_forward, window_program),
            partial(backward_and_step, window_program, learner),
            windows.table,
        )
        start = memory._replace(loss=jnp.zeros(1))
        memory, _ = jax.lax.scan(execute_tick, start, table)
        loss = jax.lax.psum(memory.loss[0], ("data", "stage"))
        loss = loss / layout.axes.shape["data"]
        return memory, memory.params, memory.state, loss

    sharded = partial(jax.shard_map, mesh=layout.axes, check_vma=False)
    allocate = sharded(
        allocate_memory, in_specs=(SHARDED, SHARDED, EXAMPLES), out_specs=PER_DEVICE
    )
    execute = sharded(
        execute_window,
        in_specs=(PER_DEVICE, REPLICATED, EXAMPLES),
        out_specs=(PER_DEVICE, SHARDED, SHARDED, REPLICATED),
    )
    return jax.jit(allocate), jax.jit(execute, donate_argnums=0)


def versioned_forward(
    program: Program, part: StagePart, now: Instructions, memory: InFlight
) -> InFlight:
    """Forward with the newest params, which are stored for the backward.

    For the arguments see `instructions.forward`.
    """
    weights = memory.params, program.layout.start(part)
    memory = instructions.forward(program, part, weights, now, memory)
    return memory._replace(versions=put(now.saved, memory.params, memory.versions))


def backward_and_step(
    program: Program,
    learner: Learner,
    part: StagePart,
    piece: int,
    now: Instructions,
    memory: InFlight,
) -> InFlight:
    """BackwardGradAcc with stored params, then OptimizerStep after piece 0, the last.

    For the arguments see `instructions.backward_grad_acc`. The learner has the
    optimizer.
    """
    index = len(part.pieces) - piece  # from the last to 0
    weights = memory.versions, slot(now.saved, program.layout.lengths)
    memory = instructions.backward_grad_acc(program, part, index, weights, now, memory)
    if index:
        return memory
    grads = jax.tree.map(lambda leaf: jax.lax.pmean(leaf, "data"), memory.grads)
    grads = sum_part_over_tensor(program.layout, learner.model, part, grads)
    state, params = optimizer_step(learner, grads, part, (memory.state, memory.params))
    grads = jax.tree.map(jnp.zeros_like, grads)
    return memory._replace(grads=grads, params=params, state=state)


class Queue:
    """The minibatches that stages may still read."""

    def __init__(self, minibatches: Iterator[Any], axes: Mesh) -> None:
        self.minibatches, self.axes = minibatches, axes
        self.stored: dict[int, Batch] = {}  # by index of the minibatch
        self.fetched = 0  # number of fetched minibatches
        self.examples = 0  # number of examples in a minibatch
        self.total: int | None = None  # number of all minibatches; None: not yet known

    def fetch(self, last: int) -> None:
        """Fetch minibatches up to this index; set `total` if there are fewer."""
        while self.total is None and self.fetched <= last:
            count, parts = next(self.minibatches, (0, None))
            if parts is None:
                self.total = self.fetched
                return
            replicas = self.axes.shape["data"]
            if count % replicas or self.examples not in (0, count):
                raise BadInput(
                    f"expected minibatches of equal size, a multiple of the {replicas} "
                    f"replicas, got {count} examples after minibatches of "
                    f"{self.examples}; pass another --batch, and --steps in place of "
                    "--epochs"
                )
            self.stored[self.fetched] = parts[0].batch
            self.examples = count
            self.fetched += 1

    def batches(self, minibatches: Sequence[int]) -> Batch:
        """Return minibatches on the devices; minibatch n is at index n % batch_count.

        Args:
          minibatches: Indices of the minibatches that the window reads.
        """
        count = batch_count(self.axes.shape["stage"])
        for old in [n for n in self.stored if n < self.fetched - count]:
            del self.stored[old]
        required = {n % count: self.stored[n] for n in minibatches}
        unused = next(iter(self.stored.values()))  # for an index that is not read
        row = [required.get(index, unused) for index in range(count)]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *row)
        return jax.tree.map(lambda leaf: place(leaf, self.axes, EXAMPLES), stacked)
