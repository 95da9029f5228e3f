"""Pipelines as data: which stage works on which microbatch in every tick; pure numpy.

    stage 0   0 1 2 3 . . . 3 3 2 2 1 1 0 0       gpipe: all forwards, then all
    stage 1   . 0 1 2 3 3 3 2 2 1 1 0 0 . .       backwards, two ticks each

    stage 0   0 1 . . 0 0 2 1 1 3 2 2 . 3 3       1f1b: a backward as soon as its
    stage 1   . 0 0 0 1 1 1 2 2 2 3 3 3 . .       turn has come: fewer are alive

The number of stages and of microbatches in, a Schedule out. A tick is the time of a
forward. Without stages to wait for, M microbatches take M(1 + pieces) ticks; K - 1 more
are the bubble: (K - 1)/(M + K - 1) of all.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dml.types import BadInput

NOTHING = IDLE = -1
FORWARD = 0


class Schedule(NamedTuple):
    """What every stage does in every tick: arrays ticks x stages, -1 for nothing."""

    stages: int
    microbatches: int
    rounds: int  # parts of the model on each stage; part p lies on stage p % stages
    pieces: int  # ticks of a backward
    piece: np.ndarray  # 0: a forward; 1 ... pieces: those of a backward, one by one
    microbatch: np.ndarray
    round: np.ndarray  # which of the stage's parts: 0 ... rounds - 1


def gpipe(stages: int, microbatches: int, pieces: int = 2) -> Schedule:
    """Huang 2019: the last microbatch's backward comes first."""
    stage, number = np.arange(stages), np.arange(microbatches)[:, None]
    forward = stage + number
    begun = microbatches + stages - 1
    backward = begun + pieces * (stages - 1 - stage + microbatches - 1 - number)
    return filled(forward, backward, pieces)


def one_forward_one_backward(
    stages: int, microbatches: int, pieces: int = 2
) -> Schedule:
    """PipeDream-flush (Narayanan 2021): stage k begins with K - k forwards."""
    stage, number = np.arange(stages), np.arange(microbatches)[:, None]
    ahead = stages - stage  # microbatches alive at a stage
    period = 1 + pieces
    backward = stages + pieces * (stages - 1 - stage) + period * number
    before = stages + pieces * (stages - stage) + period * (number - ahead)
    forward = np.where(number < ahead, stage + number, before)
    return filled(forward, backward, pieces)


def interleaved(
    stages: int, microbatches: int, rounds: int = 2, pieces: int = 2
) -> Schedule:
    """Narayanan 2021: a stage has several parts, and the bubble shrinks by as many.

    Microbatches go in groups of K through all parts, so that a group comes back to
    stage 0 just as its last one has left it: (K - 1)/(vM + K - 1) is bubble. A last
    group of fewer leaves the places of those that lack idle. Megatron begins stage k
    with 2(K - k - 1) + (v - 1)K + 1 forwards; where a message takes no time of its own
    vK - k suffice, and one round is 1f1b.
    """
    groups = -(-microbatches // stages)
    work = groups * stages * rounds  # forwards of a stage, and places in its order
    number, part = np.indices((microbatches, stages * rounds))
    stage, turn = part % stages, part // stages
    first = number // stages * stages * rounds + number % stages  # its place in round 0
    place, back = first + stages * turn, first + stages * (rounds - 1 - turn)
    ahead, period = rounds * stages - stage, 1 + pieces

    def settled(place: np.ndarray) -> np.ndarray:
        """Begin backwards as 1f1b does, each with a forward after it."""
        return rounds * stages + pieces * (stages - 1 - stage) + period * place

    ending = work + period * (stages - 1) - pieces * (stage - back)  # no forwards left
    backward = np.minimum(settled(back), ending)
    forward = np.where(
        place < ahead, stage + place, settled(place - ahead) + pieces
    )  # after the backward that makes room for it
    return filled(forward, backward, pieces, rounds)


def pipedream(stages: int, minibatches: int, pieces: int = 2) -> Schedule:
    """PipeDream (Narayanan 2019): 1f1b over all minibatches of a run, never flushed.

    A stage updates its parameters after every backward, which uses the version that
    its forward had: `staleness` says how old that is.
    """
    return one_forward_one_backward(stages, minibatches, pieces)


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "interleaved": interleaved,
    "pipedream": pipedream,
}


def make(
    name: str, stages: int, microbatches: int, rounds: int = 1, pieces: int = 2
) -> Schedule:
    """Return the schedule of that name."""
    possible(name, stages, microbatches, rounds, pieces)
    if SCHEDULES[name] is interleaved:
        return interleaved(stages, microbatches, rounds, pieces)
    return SCHEDULES[name](stages, microbatches, pieces)


def possible(
    name: str, stages: int, microbatches: int, rounds: int = 1, pieces: int = 2
) -> None:
    """Refuse a name and sizes that make no schedule."""
    if name not in SCHEDULES:
        raise BadInput(
            f"expected a schedule, got {name!r}; pass one of {', '.join(SCHEDULES)}"
        )
    sizes = {"stages": stages, "microbatches": microbatches}
    for what, size in (sizes | {"rounds": rounds, "pieces": pieces}).items():
        if size < 1:
            raise BadInput(f"expected 1 or more {what}, got {size}; pass more")
    if rounds > 1 and SCHEDULES[name] is not interleaved:
        raise BadInput(
            f"expected one round of {name}, got {rounds=}; pass 1 or take interleaved"
        )


def filled(
    forward: np.ndarray, backward: np.ndarray, pieces: int, rounds: int = 1
) -> Schedule:
    """Return the schedule in which these begin: microbatches x parts."""
    microbatches, stages = forward.shape[0], forward.shape[1] // rounds
    ticks = int(backward.max()) + pieces
    piece = np.full((ticks, stages), IDLE, np.int8)
    microbatch = np.full((ticks, stages), IDLE, np.int32)
    turn = np.full((ticks, stages), IDLE, np.int32)
    number, part = np.indices(forward.shape)
    for what in range(1 + pieces):
        at = forward if what == FORWARD else backward + what - 1, part % stages
        piece[at], microbatch[at], turn[at] = what, number, part // stages
    # a last group of fewer may leave ticks to nobody
    tables = (table[(piece != IDLE).any(axis=1)] for table in (piece, microbatch, turn))
    return Schedule(stages, microbatches, rounds, pieces, *tables)


def parts(schedule: Schedule) -> int:
    """Return into how many parts the model is cut."""
    return schedule.stages * schedule.rounds


def when(schedule: Schedule) -> np.ndarray:
    """Return the tick of each: 1 + pieces x microbatches x parts, -1 for never."""
    shape = (1 + schedule.pieces, schedule.microbatches, parts(schedule))
    ticks = np.full(shape, NOTHING, np.int32)
    tick, stage = np.nonzero(schedule.piece != IDLE)
    part = schedule.round[tick, stage] * schedule.stages + stage
    ticks[schedule.piece[tick, stage], schedule.microbatch[tick, stage], part] = tick
    return ticks
