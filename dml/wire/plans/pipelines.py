"""Pipeline schedules as arrays: the work of each stage in each tick.

    stage 0   0 1 2 3 . . . 3 3 2 2 1 1 0 0       gpipe: all forwards, then all
    stage 1   . 0 1 2 3 3 3 2 2 1 1 0 0 . .       backwards of two ticks each

    stage 0   0 1 . . 0 0 2 1 1 3 2 2 . 3 3       1f1b: backwards as early as possible,
    stage 1   . 0 0 0 1 1 1 2 2 2 3 3 3 . .       so fewer microbatches are in flight

A tick is the time of a forward. Digits are microbatches, dots are idle ticks. A
backward takes `pieces` ticks, here 2, so one stage takes M(1 + pieces) ticks for M
microbatches. With K stages, a fraction (K - 1)/(M + K - 1) of all ticks is idle: the
bubble.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dml.types import BadInput

NEVER = IDLE = -1
FORWARD = 0


class Schedule(NamedTuple):
    """The work of every stage in every tick: arrays ticks x stages, -1 for idle."""

    stages: int  # number of stages K
    microbatches: int  # number of microbatches M
    rounds: int  # number of parts on each stage; part p is on stage p % stages
    pieces: int  # ticks of a backward
    piece: np.ndarray  # 0: a forward; 1 ... pieces: the pieces of a backward in order
    microbatch: np.ndarray  # index of the microbatch
    round: np.ndarray  # index of the part on its stage

    @property
    def parts(self) -> int:
        """Number of parts of the model."""
        return self.stages * self.rounds

    @property
    def ticks(self) -> np.ndarray:
        """Tick of each piece: 1 + pieces x microbatches x parts, -1 for never."""
        ticks = np.full((1 + self.pieces, self.microbatches, self.parts), NEVER)
        tick, stage = np.nonzero(self.piece != IDLE)
        part = self.round[tick, stage] * self.stages + stage
        ticks[self.piece[tick, stage], self.microbatch[tick, stage], part] = tick
        return ticks


def gpipe(stages: int, microbatches: int, pieces: int = 2) -> Schedule:
    """GPipe (Huang 2019): all forwards, then all backwards, last microbatch first."""
    stage, microbatch = np.arange(stages), np.arange(microbatches)[:, None]
    forward = stage + microbatch
    first = microbatches + stages - 1  # tick of the first backward
    backward = first + pieces * (stages - 1 - stage + microbatches - 1 - microbatch)
    return from_ticks(forward, backward, pieces)


def one_forward_one_backward(
    stages: int, microbatches: int, pieces: int = 2
) -> Schedule:
    """PipeDream-flush (Narayanan 2021): stage k begins with K - k forwards."""
    stage, microbatch = np.arange(stages), np.arange(microbatches)[:, None]
    in_flight = stages - stage  # microbatches in flight at a stage
    period = 1 + pieces
    backward = stages + pieces * (stages - 1 - stage) + period * microbatch
    # in the steady phase a forward follows a backward
    steady = stages + pieces * (stages - stage) + period * (microbatch - in_flight)
    forward = np.where(microbatch < in_flight, stage + microbatch, steady)
    return from_ticks(forward, backward, pieces)


def interleaved(
    stages: int, microbatches: int, rounds: int = 2, pieces: int = 2
) -> Schedule:
    """Interleaved 1f1b (Narayanan 2021): v parts on each stage divide the bubble by v.

    v is `rounds`. Microbatches pass through all parts in groups of K, so that a group
    returns to stage 0 when its last microbatch has left: the bubble is
    (K - 1)/(vM + K - 1). An incomplete last group leaves ticks idle. Megatron begins
    stage k with 2(K - k - 1) + (v - 1)K + 1 forwards. In this module messages arrive
    within a tick, so vK - k forwards suffice, and the schedule of one round is 1f1b.

    Args:
      stages: Number of stages K.
      microbatches: Number of microbatches M.
      rounds: Number of parts v on each stage.
      pieces: Ticks of a backward.
    """
    groups = -(-microbatches // stages)
    work = groups * stages * rounds  # forwards of a stage
    microbatch, part = np.indices((microbatches, stages * rounds))
    stage, round_index = part % stages, part // stages
    # positions among the forwards, and among the backwards, of a stage
    first = microbatch // stages * stages * rounds + microbatch % stages  # in round 0
    position = first + stages * round_index
    back_position = first + stages * (rounds - 1 - round_index)
    in_flight, period = rounds * stages - stage, 1 + pieces

    def steady(position: np.ndarray) -> np.ndarray:
        """Return the ticks of backwards in the steady phase, as in 1f1b."""
        return rounds * stages + pieces * (stages - 1 - stage) + period * position

    # after the last forward, a stage has only backwards
    ending = work + period * (stages - 1) - pieces * (stage - back_position)
    backward = np.minimum(steady(back_position), ending)
    # a forward follows the backward that frees its slot
    follows = steady(position - in_flight) + pieces
    forward = np.where(position < in_flight, stage + position, follows)
    return from_ticks(forward, backward, pieces, rounds)


def pipedream(stages: int, minibatches: int, pieces: int = 2) -> Schedule:
    """PipeDream (Narayanan 2019): 1f1b over all minibatches of a run, without flushes.

    A stage updates its params after every backward. The backward uses the version of
    the params that its forward used; `staleness` returns the age of that version.
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
    """Return a schedule by name.

    Args:
      name: A name in SCHEDULES.
      stages: Number of stages K.
      microbatches: Number of microbatches M.
      rounds: Parts of the model on each stage; more than 1 for interleaved only.
      pieces: Ticks of a backward.
    """
    check_schedule(name, stages, microbatches, rounds, pieces)
    if SCHEDULES[name] is interleaved:
        return interleaved(stages, microbatches, rounds, pieces)
    return SCHEDULES[name](stages, microbatches, pieces)


def check_schedule(
    name: str, stages: int, microbatches: int, rounds: int = 1, pieces: int = 2
) -> None:
    """Raise BadInput unless a schedule has this name and these sizes; see `make`."""
    if name not in SCHEDULES:
        raise BadInput(
            f"expected a schedule, got {name!r}; pass one of {', '.join(SCHEDULES)}"
        )
    sizes = {"stages": stages, "microbatches": microbatches}
    for size_name, size in (sizes | {"rounds": rounds, "pieces": pieces}).items():
        if size < 1:
            raise BadInput(
                f"expected 1 or more {size_name}, got {size}; pass a larger number"
            )
    if rounds > 1 and SCHEDULES[name] is not interleaved:
        raise BadInput(
            f"expected rounds=1 for {name}, got {rounds=}; pass 1 or use interleaved"
        )


def from_ticks(
    forward: np.ndarray, backward: np.ndarray, pieces: int, rounds: int = 1
) -> Schedule:
    """Return the schedule in which forwards and backwards have these ticks.

    Args:
      forward: Tick of each forward: microbatches x parts.
      backward: Tick of the first piece of each backward: microbatches x parts.
      pieces: Ticks of a backward.
      rounds: Number of parts on each stage.
    """
    microbatches, stages = forward.shape[0], forward.shape[1] // rounds
    shape = int(backward.max()) + pieces, stages
    piece, microbatch, round_index = (np.full(shape, IDLE, np.int32) for _ in range(3))
    microbatch_of, part = np.indices(forward.shape)
    for number in range(1 + pieces):
        tick = forward if number == FORWARD else backward + number - 1
        cell = tick, part % stages
        piece[cell] = number
        microbatch[cell] = microbatch_of
        round_index[cell] = part // stages
    # an incomplete last group of interleaved may leave a tick without work on any stage
    busy = (piece != IDLE).any(axis=1)
    tables = (table[busy] for table in (piece, microbatch, round_index))
    return Schedule(stages, microbatches, rounds, pieces, *tables)
