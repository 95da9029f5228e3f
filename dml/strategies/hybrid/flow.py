"""One program that plays a schedule without an end, a window of one minibatch a time.

    window      0     1     2     3     4          rows of wire/pipelines.py, shifted
    stage 0   0 1 . . 0 0 2 1 1 3 2 2 4 3 3        by a minibatch a window once they
    stage 1   . 0 0 0 1 1 1 2 2 2 3 3 3 4 4        repeat; what is alive stays on the
                                                   devices from window to window
A model's parts and its optimizer in, compiled calls and their rows out.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dml.strategies.hybrid.parts import Held, Part
from dml.strategies.hybrid.pipeline import Alive, Program, Row, rows
from dml.strategies.hybrid.programs import Pipeline, boxed, flat, updated
from dml.strategies.hybrid.sums import part_over_tensor
from dml.strategies.hybrid.traced import Traced, trace
from dml.types import Tensor
from dml.update.dense import Optimizer
from dml.wire.mesh.axes import FED, HELD, OWN, WHOLE
from dml.wire.mesh.packed import Vectors, base, empty
from dml.wire.mesh.when import when
from dml.wire.pipelines import FORWARD, IDLE, pipedream
from dml.wire.slots import places


class Flow(NamedTuple):
    """What a device holds while minibatches flow."""

    alive: Alive
    params: Vectors
    state: Vectors
    versions: Vectors  # params that forwards have used, slot by slot


class Windows:
    """The endless schedule, by windows of one minibatch each: rows that repeat."""

    def __init__(self, stages: int, pieces: int) -> None:
        self.ticks = 1 + pieces
        self.settled = 2 * stages  # windows, after which each is as the one before
        self.schedule = pipedream(stages, 2 * self.settled, pieces)
        laid = places(self.schedule)
        self.rows = rows(self.schedule, laid)
        self.counts = Row(*(table.max(axis=0) + 1 for table in self.rows))
        self.laid = laid

    def row(self, window: int, total: int | None) -> Row:
        """Return a window's rows; after so many minibatches in all, none begins."""
        known = min(window, self.settled)
        span = slice(known * self.ticks, (known + 1) * self.ticks)
        found = Row(*(table[span].copy() for table in self.rows))
        later = window - known

        def slots(table: np.ndarray, count: np.ndarray) -> np.ndarray:
            # first in, first out: minibatch m lies in slot m % count
            return np.where(table < 0, table, (table + later) % np.maximum(count, 1))

        names = ("input", "residual", "cotangent", "comes", "returns")
        moved = {n: slots(getattr(found, n), getattr(self.counts, n)) for n in names}
        number = np.where(found.piece == IDLE, IDLE, found.microbatch + later)
        over = total is not None and number >= total
        piece = np.where(over, IDLE, found.piece)
        return found._replace(piece=piece, microbatch=number, **moved)

    def ends(self, row: Row) -> bool:
        """Say whether the last stage computes a minibatch's loss in this window."""
        return bool((row.piece[:, -1] == FORWARD).any())

    def touched(self, row: Row) -> np.ndarray:
        """Return the minibatches of which a window computes a forward."""
        return np.unique(row.microbatch[row.piece == FORWARD])


def flowing(
    model: Tensor, held: Held, kept: Held, pipeline: Pipeline, optimizer: Optimizer
) -> tuple[Callable[..., Any], Callable[..., Any], Windows]:
    """Compile what begins a flow, and what plays a window of it."""
    axes = held.axes
    windows = Windows(axes.shape["stage"], pipeline.pieces)
    alone = windows.schedule._replace(microbatches=1)  # each has an update of its own

    def program(batches: Any) -> Program:
        one = jax.tree.map(lambda leaf: leaf[0], batches)
        traced = trace(held.parts, one, pipeline.remat)
        return Program(held, traced, alone, windows.laid)

    def begin(params: Vectors, state: Vectors, batches: Any) -> Any:
        now = flat(params)
        count = int(windows.counts.residual.max())
        versions = empty(base(count, held.lengths))
        flow = Flow(program(batches).begin(now), now, flat(state), versions)
        return own(flow)

    def window(flow: Any, row: Row, batches: Any) -> Any:
        renews = partial(renewed, model, held, kept, optimizer)
        tick = partial(ticked, program(batches), renews, batches)
        flow = theirs(flow)
        flow = flow._replace(alive=flow.alive._replace(loss=jnp.float32(0)))
        flow, _ = jax.lax.scan(tick, flow, row)
        loss = jax.lax.psum(flow.alive.loss, ("data", "stage")) / axes.shape["data"]
        return own(flow), boxed(flow.params), boxed(flow.state), loss

    over = partial(jax.shard_map, mesh=axes, check_vma=False)
    start = over(begin, in_specs=(HELD, HELD, FED), out_specs=OWN)
    play = over(window, in_specs=(OWN, WHOLE, FED), out_specs=(OWN, HELD, HELD, WHOLE))
    return jax.jit(start), jax.jit(play, donate_argnums=0), windows


def ticked(
    program: Program,
    renews: Callable[[Part, Flow], Flow],
    batches: Any,
    flow: Flow,
    row: Row,
) -> tuple[Flow, None]:
    """Do what a row asks of this stage: as Program.tick, with versions and updates."""
    held, last = program.held, program.schedule.pieces - 1
    stage = jax.lax.axis_index("stage")
    mine = Row(*(column[stage] for column in row))
    count = jax.tree.leaves(batches)[0].shape[0]
    here = mine._replace(microbatch=mine.microbatch % count)
    slot = base(mine.residual, held.lengths)

    def forward(one: Traced, flow: Flow) -> Flow:
        lying = flow.params, held.base(one.part)
        alive = program.forward(one, lying, batches, here, flow.alive)
        versions = {
            kind: jax.lax.dynamic_update_slice(old, flow.params[kind], (slot[kind],))
            for kind, old in flow.versions.items()
        }
        return flow._replace(alive=alive, versions=versions)

    def backward(one: Traced, number: int, flow: Flow) -> Flow:
        lying = flow.versions, slot
        alive = program.backward(one, number, lying, here, flow.alive)
        flow = flow._replace(alive=alive)
        return renews(one.part, flow) if number == last else flow

    # order matters: see Program.tick
    for one in program.parts:
        begins = (stage == one.part.stage) & (mine.piece == FORWARD)
        flow = when(begins, partial(forward, one), flow)
    for one in program.parts:
        for number in range(program.schedule.pieces):
            turn = (stage == one.part.stage) & (mine.piece == 1 + number)
            flow = when(turn, partial(backward, one, number), flow)
    return flow._replace(alive=program.exchange(flow.alive, mine)), None


def renewed(
    model: Tensor, held: Held, kept: Held, optimizer: Optimizer, part: Part, flow: Flow
) -> Flow:
    """Update a part by the gradients of one minibatch, and begin those of the next."""
    grads = jax.tree.map(lambda one: jax.lax.pmean(one, "data"), flow.alive.grads)
    grads = part_over_tensor(held, model, part, grads)
    both = flow.state, flow.params
    state, params = updated(held, kept, part, optimizer, grads, both)
    alive = flow.alive._replace(grads=jax.tree.map(jnp.zeros_like, grads))
    return flow._replace(alive=alive, params=params, state=state)


def own(tree: Any) -> Any:
    """Give what each device has for itself the axes of the mesh."""
    return jax.tree.map(lambda leaf: leaf[None, None, None], tree)


def theirs(tree: Any) -> Any:
    """Undo own."""
    return jax.tree.map(lambda leaf: leaf[0, 0, 0], tree)
