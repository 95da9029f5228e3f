"""One program that plays any schedule of wire/pipelines.py, on every device at once.

    tick t    stage k: puts down what has come, looks up its row of the schedule, and
              ╭ a forward: reads a boundary, writes what the backward needs, gives on
              ╰ a piece of a backward: reads both, adds to the gradients, gives back
    then      boundaries travel to stage k + 1, cotangents to stage k - 1 (ppermute)

A loop over ticks, not unrolled: the program grows with the parts alone, not with the
microbatches. Parts of a model, a schedule, and (inside shard_map) a device's params and
microbatches in; the loss and the gradients out, means over the device's microbatches.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from dml.strategies.hybrid.parts import Held
from dml.strategies.hybrid.traced import Piece, Traced, trace
from dml.wire.mesh.packed import (
    Vectors,
    add,
    base,
    empty,
    named,
    packing,
    read,
    room,
    sums,
    write,
)
from dml.wire.mesh.when import when
from dml.wire.pipelines import FORWARD, Schedule
from dml.wire.slots import Places, places

# a part's params: in which vectors, from where on
Lying = tuple[Vectors, Mapping[str, Any]]
PART, TRAVEL = "part", "travel"  # in XLA's names of what it runs


class Alive(NamedTuple):
    """What a device holds beside its params while a schedule is played."""

    given: Vectors  # boundaries that have come, slot by slot
    towards: Vectors  # cotangents that have come
    kept: Vectors  # what backwards need
    out: Vectors  # a boundary on its way out
    back: Vectors  # a cotangent on its way back, or between two pieces
    loss: Any
    grads: Vectors


class Row(NamedTuple):
    """What one tick asks of a stage; what comes at its end included."""

    piece: Any
    microbatch: Any
    round: Any
    input: Any
    residual: Any
    cotangent: Any
    comes: Any  # into which slot of given
    returns: Any  # into which slot of towards
    travels: Any  # whether any stage gets a boundary
    travels_back: Any


def rows(schedule: Schedule, laid: Places) -> Row:
    """Return all ticks' rows, arrays ticks x stages."""
    nothing = np.full((1, schedule.stages), -1, np.int32)
    comes = np.concatenate([laid.arrives_forward[1:], nothing])
    returns = np.concatenate([laid.arrives_backward[1:], nothing])
    anywhere = [
        np.broadcast_to((table >= 0).any(axis=1, keepdims=True), table.shape)
        for table in (comes, returns)
    ]
    return Row(
        *(schedule.piece, schedule.microbatch, schedule.round, laid.input),
        *(laid.residual, laid.cotangent, comes, returns, *anywhere),
    )


def play(
    held: Held, schedule: Schedule, remat: bool
) -> Callable[[Vectors, Any], tuple[Any, Vectors]]:
    """Return what one device does with its params and microbatches."""
    laid = places(schedule)
    table = rows(schedule, laid)

    def run(params: Vectors, batches: Any) -> tuple[Any, Vectors]:
        one = jax.tree.map(lambda leaf: leaf[0], batches)
        program = Program(held, trace(held.parts, one, remat), schedule, laid)
        tick = partial(program.tick, params, batches)
        ticks = jax.tree.map(jnp.asarray, table)
        alive, _ = jax.lax.scan(tick, program.begin(params), ticks)
        return alive.loss, alive.grads

    return run


class Program(NamedTuple):
    """What a tick is made of."""

    held: Held
    parts: list[Traced]
    schedule: Schedule
    laid: Places

    @property
    def boundary(self) -> dict[str, int]:
        """The length of what travels: that of the largest."""
        return room(piece.gives.lengths for part in self.parts for piece in part.pieces)

    def keeps(self, stage: int) -> dict[str, int]:
        """Return what a slot must hold: what the stage's largest part keeps."""
        return room(one.keeps for one in self.parts if one.part.stage == stage)

    def begin(self, params: Vectors) -> Alive:
        """Return empty memory: as much as the stage that needs most."""
        stages, each = range(self.schedule.stages), self.boundary
        counts = self.laid.residual.max(axis=0) + 1
        kept = room(base(int(counts[stage]), self.keeps(stage)) for stage in stages)
        return Alive(
            empty(base(self.laid.inputs, each)),
            empty(base(self.laid.cotangents, each)),
            *(empty(kept), empty(each), empty(each), jnp.float32(0)),
            jax.tree.map(jnp.zeros_like, params),
        )

    def tick(
        self, params: Vectors, batches: Any, alive: Alive, row: Row
    ) -> tuple[Alive, None]:
        """Do what the schedule's row asks of this stage."""
        stage = jax.lax.axis_index("stage")
        mine = Row(*(column[stage] for column in row))

        def here(one: Traced, piece: int) -> Any:
            turn = (stage == one.part.stage) & (mine.round == one.part.round)
            return turn & (mine.piece == piece)

        # order matters: XLA would copy all that is kept, were it read before written
        with jax.named_scope(PART):
            for one in self.parts:
                lying = params, self.held.base(one.part)
                does = partial(self.forward, one, lying, batches, mine)
                alive = when(here(one, FORWARD), does, alive)
            for one in self.parts:
                lying = params, self.held.base(one.part)
                for number in range(self.schedule.pieces):
                    undoes = partial(self.backward, one, number, lying, mine)
                    alive = when(here(one, 1 + number), undoes, alive)
        with jax.named_scope(TRAVEL):
            return self.exchange(alive, mine), None

    def forward(
        self, one: Traced, params: Lying, batches: Any, row: Row, alive: Alive
    ) -> Alive:
        """Compute a part of a microbatch, and keep what its backward needs."""
        batch = jax.tree.map(lambda leaf: leaf[row.microbatch], batches)
        given: Any = None
        if one.number:
            came = self.parts[one.number - 1].gives
            given = read(alive.given, came, base(row.input, self.boundary))
        kept, at = alive.kept, base(row.residual, self.keeps(one.part.stage))
        for piece in one.pieces:
            weights = weighed(one, piece, params)
            given, leaves = piece.forward(weights, given, batch)
            kept = write(kept, piece.kept, leaves, at)
            at = sums([at, piece.kept.lengths])
        alive = alive._replace(kept=kept)
        if one.number == len(self.parts) - 1:
            return alive._replace(loss=alive.loss + given / self.schedule.microbatches)
        return alive._replace(out=write(alive.out, one.gives, given))

    def backward(
        self, one: Traced, number: int, params: Lying, row: Row, alive: Alive
    ) -> Alive:
        """Undo one of a part's pieces; the last comes first."""
        before, piece = one.pieces[: -1 - number], one.pieces[-1 - number]
        towards: Any = jnp.float32(1 / self.schedule.microbatches)  # of the loss
        if number:
            towards = read(alive.back, piece.gives)
        elif one.number < len(self.parts) - 1:
            slot = base(row.cotangent, self.boundary)
            towards = read(alive.towards, piece.gives, slot)
        slot = base(row.residual, self.keeps(one.part.stage))
        at = sums([slot, *(other.kept.lengths for other in before)])
        weights = weighed(one, piece, params)
        kept = read(alive.kept, piece.kept, at)
        grads, towards = piece.backward(weights, kept, towards)
        mine = named(one.part.params, piece.names)
        return alive._replace(
            grads=add(alive.grads, mine, grads, self.held.base(one.part)),
            back=write(alive.back, packing(towards), towards),
        )

    def exchange(self, alive: Alive, row: Row) -> Alive:
        """Let boundaries and cotangents travel, and put down what has come."""
        stages = self.schedule.stages
        if len(self.parts) == 1:
            return alive
        onward = [(stage, (stage + 1) % stages) for stage in range(stages)]

        def forth(alive: Alive) -> Alive:
            put = partial(_put, sent(alive.out, onward), row.comes)
            return alive._replace(given=when(row.comes >= 0, put, alive.given))

        def back(alive: Alive) -> Alive:
            came = sent(alive.back, [(there, here) for here, there in onward])
            put = partial(_put, came, row.returns)
            return alive._replace(towards=when(row.returns >= 0, put, alive.towards))

        return when(row.travels_back, back, when(row.travels, forth, alive))


def weighed(one: Traced, piece: Piece, params: Lying) -> Any:
    """Return the params that a piece reads."""
    vectors, at = params
    return read(vectors, named(one.part.params, piece.names), at)


def sent(vectors: Vectors, way: list[tuple[int, int]]) -> Vectors:
    """Give every stage the vectors of the one from which the way leads to it."""
    return jax.tree.map(lambda one: jax.lax.ppermute(one, "stage", way), vectors)


def _put(vectors: Vectors, slot: Any, into: Vectors) -> Vectors:
    return {
        kind: jax.lax.dynamic_update_slice(into[kind], one, (slot * one.size,))
        for kind, one in vectors.items()
    }
