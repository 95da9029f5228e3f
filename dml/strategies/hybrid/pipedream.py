"""PipeDream (Narayanan 2019): a pipeline without flush; a stage updates immediately.

    stage 0   0 1 . . 0 0 2 1 1 3 2 2 4 3 3 ...    once: a minibatch's forward; twice:
    stage 1   . 0 0 0 1 1 1 2 2 2 3 3 3 4 4 ...    its backward, followed by an update
    window      0     1     2     3     4

A backward uses the params that its forward used: stage k stores K - k versions, and the
oldest is K - 1 - k updates old (its staleness). There is no bubble except at the start
and the end of a run. The program executes a window, the ticks of one minibatch. Later
windows differ in the numbers of minibatches only, so the schedule needs no end.
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
from dml.strategies.hybrid.gradients import part_over_tensor
from dml.strategies.hybrid.instructions import InFlight, Program
from dml.strategies.hybrid.layout import place
from dml.strategies.hybrid.parts import Part, Pipeline, shared
from dml.strategies.hybrid.pieces import traced
from dml.strategies.hybrid.pipeline import tick
from dml.strategies.hybrid.programs import Learner, optimizer_step
from dml.strategies.mesh import local, nbytes
from dml.types import BadInput, Batch, Step
from dml.wire.mesh.axes import EXAMPLES, PER_DEVICE, REPLICATED, SHARDED
from dml.wire.mesh.packed import Vectors, put, slot, zeros
from dml.wire.plans import pipelines, slots
from dml.wire.plans.pipelines import FORWARD, IDLE
from dml.wire.plans.slots import Instructions


def pipedream(
    learner: Learner,
    pipeline: Pipeline,
    start: tuple[Vectors, Vectors],
    *,
    fed: Iterator[Any],
    timer: Timer,
    work: Callable[[float], object],
) -> Iterator[Step]:
    """Train as `hybrid` does, without waiting for updates.

    A Step is yielded when the loss of its minibatch is known. Its params are those that
    the stages have at that time; the last Step has the final params.

    Args:
      learner: The model, the layouts and the optimizer.
      pipeline: Division among stages, and their schedule.
      start: Params and optimizer state.
      fed: Minibatches; see `data.feed.feed`.
      timer: Measures the phases.
      work: Virtual computation time of a share of an update; see `Platform.work`.
    """
    layout, states, (params, state) = learner.layout, learner.states, start
    stages = layout.axes.shape["stage"]
    windows = Windows(stages, pipeline.pieces)
    begin, play = compiled(learner, pipeline.remat, windows)
    queue = Queue(timer.waits("input", fed), layout.axes)
    memory, window, number, step = None, 0, 0, None
    while queue.total is None or window < queue.total + stages - 1:
        queue.fetch(max(windows.window(window, None).minibatches))
        now = windows.window(window, queue.total)
        batches = queue.batches(now.minibatches)
        with timer("gradient"):
            if memory is None:
                memory = begin(params, state, batches)
            table = jax.tree.map(
                lambda column: place(column, layout.axes, REPLICATED), now.table
            )
            memory, params, state, loss = play(memory, table, batches)
            jax.block_until_ready((memory, params, state, loss))
            work(1)
        window += 1
        if now.has_loss:
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
        last = partial(layout.collect, params), partial(states.collect, state)
        yield step._replace(params=last[0], state=last[1])


def check_pipedream(parts: Sequence[Part], pipeline: Pipeline, clip: float) -> None:
    """Raise BadInput if the stages cannot be updated independently."""
    both = shared(parts)
    if both:
        raise BadInput(
            "expected stages with params of their own for pipedream, got "
            f"{', '.join(both)} on two of them; pass --pipeline=1f1b"
        )
    if clip:
        raise BadInput(
            f"expected no clip with pipedream, whose stages never have all gradients "
            f"at once, got {clip}; pass --clip=0"
        )
    if pipeline.microbatches > 1:
        raise BadInput(
            "expected whole minibatches with pipedream, got microbatches="
            f"{pipeline.microbatches}; pass --microbatches=1 and a smaller --batch"
        )


class Window(NamedTuple):
    """The ticks of one minibatch."""

    table: Instructions  # microbatch: index into the batches of the window
    minibatches: list[int]  # of the forwards
    has_loss: bool  # the last stage computes a forward


class Windows:
    """An endless schedule, divided into windows."""

    def __init__(self, stages: int, pieces: int) -> None:
        self.ticks = 1 + pieces
        self.settled = 2 * stages  # windows; later ones are equal to this one
        self.batches = stages + 1  # minibatches that a window may read
        schedule = pipelines.pipedream(stages, 2 * self.settled, pieces)
        self.table = slots.instructions(schedule)

    def window(self, number: int, total: int | None) -> Window:
        """Return a window; a minibatch of number `total` or more is left out."""
        known = min(number, self.settled)
        later = number - known
        span = slice(known * self.ticks, (known + 1) * self.ticks)

        def moved(table: np.ndarray) -> np.ndarray:
            # first in, first out: minibatch m is in slot m % count
            slots = np.maximum(table.max(axis=0) + 1, 1)
            return np.where(table[span] < 0, table[span], (table[span] + later) % slots)

        piece = self.table.piece[span]
        minibatch = np.where(piece == IDLE, IDLE, self.table.microbatch[span] + later)
        if total is not None:
            piece = np.where(minibatch >= total, IDLE, piece)
        table = Instructions(
            piece,
            minibatch % self.batches,
            self.table.round[span],
            *map(moved, self.table[3:]),
        )
        forwards = piece == FORWARD
        minibatches = np.unique(minibatch[forwards]).tolist()
        return Window(table, minibatches, bool(forwards[:, -1].any()))


def compiled(
    learner: Learner, remat: bool, windows: Windows
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return compiled functions: initial memory, and execution of a window."""
    layout = learner.layout

    def program(batches: Any) -> Program:
        first = jax.tree.map(lambda leaf: leaf[0], batches)
        pieces = traced(layout.parts, first, remat)
        # each minibatch has an update: a gradient is a mean over one
        return Program(layout, pieces, windows.table, batches, microbatches=1)

    def begin(params: Vectors, state: Vectors, batches: Any) -> Any:
        versions = zeros(layout.lengths, slots.slot_count(windows.table.saved))
        memory = instructions.zero_grad(program(batches), params)
        return memory._replace(params=params, state=state, versions=versions)

    def play(memory: InFlight, table: Instructions, batches: Any) -> Any:
        executed = program(batches)
        step = partial(
            tick,
            layout.parts,
            partial(versioned_forward, executed),
            partial(backward_and_step, executed, learner),
        )
        start = memory._replace(loss=jnp.zeros(1))
        memory, _ = jax.lax.scan(step, start, table)
        loss = jax.lax.psum(memory.loss[0], ("data", "stage"))
        loss = loss / layout.axes.shape["data"]
        return memory, memory.params, memory.state, loss

    sharded = partial(jax.shard_map, mesh=layout.axes, check_vma=False)
    begin = sharded(begin, in_specs=(SHARDED, SHARDED, EXAMPLES), out_specs=PER_DEVICE)
    play = sharded(
        play,
        in_specs=(PER_DEVICE, REPLICATED, EXAMPLES),
        out_specs=(PER_DEVICE, SHARDED, SHARDED, REPLICATED),
    )
    return jax.jit(begin), jax.jit(play, donate_argnums=0)


def versioned_forward(
    program: Program, part: Part, now: Instructions, memory: InFlight
) -> InFlight:
    """Forward with the newest params, which are stored for the backward.

    The arguments are those of `instructions.forward`.
    """
    weights = memory.params, program.layout.start(part)
    memory = instructions.forward(program, part, weights, now, memory)
    return memory._replace(versions=put(now.saved, memory.params, memory.versions))


def backward_and_step(
    program: Program,
    learner: Learner,
    part: Part,
    number: int,
    now: Instructions,
    memory: InFlight,
) -> InFlight:
    """BackwardGradAcc with stored params, then OptimizerStep after the last piece.

    The arguments are those of `instructions.backward_grad_acc`, and the learner.
    """
    weights = memory.versions, slot(now.saved, program.layout.lengths)
    memory = instructions.backward_grad_acc(program, part, number, weights, now, memory)
    if number:
        return memory
    grads = jax.tree.map(lambda leaf: jax.lax.pmean(leaf, "data"), memory.grads)
    grads = part_over_tensor(program.layout, learner.model, part, grads)
    both = memory.state, memory.params
    state, params = optimizer_step(learner, grads, part, both)
    grads = jax.tree.map(jnp.zeros_like, grads)
    return memory._replace(grads=grads, params=params, state=state)


class Queue:
    """The minibatches in flight."""

    def __init__(self, fed: Iterator[Any], axes: Mesh) -> None:
        self.fed, self.axes = fed, axes
        self.known: dict[int, Batch] = {}
        self.fetched, self.examples = 0, 0
        self.total: int | None = None  # number of all minibatches; None: not yet known

    def fetch(self, number: int) -> None:
        """Fetch minibatches up to this number; set `total` if there are fewer."""
        while self.total is None and self.fetched <= number:
            count, parts = next(self.fed, (0, None))
            if parts is None:
                self.total = self.fetched
                return
            replicas = self.axes.shape["data"]
            if count % replicas or self.examples not in (0, count):
                raise BadInput(
                    f"expected minibatches of one size that {replicas} replicas share "
                    f"equally, got {count} examples after {self.examples}; pass another"
                    " --batch, and --steps in place of --epochs"
                )
            self.known[self.fetched], self.examples = parts[0].batch, count
            self.fetched += 1

    def batches(self, minibatches: Sequence[int]) -> Batch:
        """Return minibatches on the devices; number n is at index n % (stages + 1)."""
        count = self.axes.shape["stage"] + 1
        for old in [n for n in self.known if n < self.fetched - count]:
            del self.known[old]
        at = {n % count: self.known[n] for n in minibatches}
        unused = next(iter(self.known.values()))  # for an index that is not read
        row = [at.get(index, unused) for index in range(count)]
        stacked = jax.tree.map(lambda *leaves: np.stack(leaves), *row)
        return jax.tree.map(lambda leaf: place(leaf, self.axes, EXAMPLES), stacked)
