"""Pipeline schedules as arrays: the work of each stage in each tick.

    stage 0   0 1 2 3 . . . 3 3 2 2 1 1 0 0       gpipe: all forwards, then all
    stage 1   . 0 1 2 3 3 3 2 2 1 1 0 0 . .       backwards of two ticks each

    stage 0   0 1 . . 0 0 2 1 1 3 2 2 . 3 3       1f1b: backwards as early as possible,
    stage 1   . 0 0 0 1 1 1 2 2 2 3 3 3 . .       so fewer microbatches are in flight

A tick is the time of a forward. Digits are microbatches, dots are idle ticks. A
backward takes `pieces` ticks, here 2, so one stage takes M(1 + pieces) ticks for M
microbatches. With K stages, a fraction (K - 1)/(M + K - 1) of all ticks is idle: the
bubble.

    stage 0   F0 F1 .  B0 W0 F2 B1 W1 B2 W2      zb_h1: a backward is an input gradient
    stage 1   .  F0 B0 F1 B1 W0 F2 B2 W1 W2      B and a weight gradient W, a tick each

The stage before waits for the input gradient only, so weight gradients fill idle ticks.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dml.types import BadInput
from dml.wire.plans.pipeline.zero_bubble import Limits, list_schedule

NEVER = IDLE = -1
FORWARD = 0


class Schedule(NamedTuple):
    """The work of every stage in every tick: arrays ticks x stages, -1 for idle."""

    stages: int  # number of stages K
    microbatches: int  # number of microbatches M
    rounds: int  # number of parts on each stage; see `stage_of`
    pieces: int  # ticks of a backward
    piece: np.ndarray  # 0: a forward; 1 ... pieces: the pieces of a backward in order
    microbatch: np.ndarray  # index of the microbatch
    round: np.ndarray  # index of the part on its stage
    split: bool = False  # whether piece 1 is an input, piece 2 a weight gradient
    folded: bool = False  # whether the parts form a V over the stages

    @property
    def parts(self) -> int:
        """Number of parts of the model."""
        return self.stages * self.rounds

    @property
    def sending_piece(self) -> int:
        """Piece of a backward after which the gradient is sent to the part before."""
        return FORWARD + 1 if self.split else self.pieces

    @property
    def stage_of(self) -> np.ndarray:
        """Stage of each part."""
        return stage_of(self.stages, self.rounds, self.folded)

    @property
    def hops(self) -> np.ndarray:
        """Stages from each part to the next: 1, or -1 or 0 in a V."""
        if self.folded:
            return np.diff(self.stage_of)
        return np.ones(self.parts - 1, int)

    @property
    def part(self) -> np.ndarray:
        """Index of the part: an array ticks x stages, of any value if idle."""
        stage = np.arange(self.stages)
        descending = (self.round % 2 == 1) & self.folded
        return self.round * self.stages + np.where(
            descending, self.stages - 1 - stage, stage
        )

    @property
    def ticks(self) -> np.ndarray:
        """Tick of each piece: 1 + pieces x microbatches x parts, -1 for never."""
        ticks = np.full((1 + self.pieces, self.microbatches, self.parts), NEVER)
        tick, stage = np.nonzero(self.piece != IDLE)
        cell = tick, stage
        ticks[self.piece[cell], self.microbatch[cell], self.part[cell]] = tick
        return ticks


def stage_of(stages: int, rounds: int, folded: bool) -> np.ndarray:
    """Return the stage of each part: 0 1 2 0 1 2 for two rounds, or folded 0 1 2 2 1 0.

    Args:
      stages: Number of stages K.
      rounds: Number of parts on each stage.
      folded: Whether every second round has the reverse order.
    """
    order = np.arange(stages)
    reverse = order[::-1] if folded else order
    return np.concatenate([reverse if n % 2 else order for n in range(rounds)])


def gpipe(stages: int, microbatches: int, pieces: int = 2) -> Schedule:
    """GPipe (Huang 2019): all forwards, then all backwards, last microbatch first."""
    stage, microbatch = np.arange(stages), np.arange(microbatches)[:, None]
    forward = stage + microbatch
    first = microbatches + stages - 1  # tick of the first backward
    backward = first + pieces * (stages - 1 - stage + microbatches - 1 - microbatch)
    return from_ticks(consecutive(forward, backward, pieces))


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
    return from_ticks(consecutive(forward, backward, pieces))


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
    return from_ticks(consecutive(forward, backward, pieces), rounds)


def pipedream(stages: int, minibatches: int, pieces: int = 2) -> Schedule:
    """PipeDream (Narayanan 2019): 1f1b over all minibatches of a run, without flushes.

    A stage updates its params after every backward. The backward uses the version of
    the params that its forward used; `staleness` returns the age of that version.
    """
    return one_forward_one_backward(stages, minibatches, pieces)


def zb_h1(stages: int, microbatches: int) -> Schedule:
    """ZB-H1 (Qi 2023): as many microbatches in flight as stage 0 of 1f1b, K.

    For pieces of F, B and W seconds the bubble is (K - 1)(F + B - W) if M >= K; that
    of 1f1b is (K - 1)(F + B + W).
    """
    limits = Limits(lambda stage: stages - stage, saved=stages)
    return zero_bubble(stages, microbatches, 1, limits)


def zb_h2(stages: int, microbatches: int) -> Schedule:
    """ZB-H2 (Qi 2023): 2K - 1 microbatches in flight.

    A stage is idle for (K - 1)(F + B - 2W) seconds between its first and last piece if
    M >= 2K - 1: never if F = B = W. Stage k begins and ends k ticks after stage 0, so
    the next minibatch must begin without waiting for all stages.
    """
    limits = Limits(lambda stage: 2 * (stages - stage) - 1, saved=2 * stages - 1)
    return zero_bubble(stages, microbatches, 1, limits)


def zb_v(stages: int, microbatches: int) -> Schedule:
    """ZB-V (Qi 2023): two parts per stage, placed as a V, and no bubble at K in flight.

    Stage k has the parts k and 2K - 1 - k. It saves activations of 2K half stages. If
    F = B = W and M >= 2K, a stage is never idle between its first and last piece.
    """
    limits = Limits(lambda stage: 2 * stages, saved=2 * stages)
    return zero_bubble(stages, microbatches, 2, limits)


def zero_bubble(
    stages: int, microbatches: int, rounds: int, limits: Limits
) -> Schedule:
    """Return the schedule of `list_schedule`; several rounds are folded."""
    folded = rounds > 1
    ticks = list_schedule(
        stage_of(stages, rounds, folded), stages, microbatches, limits
    )
    return from_ticks(ticks, rounds, split=True, folded=folded)


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
    "interleaved": interleaved,
    "pipedream": pipedream,
    "zb_h1": zb_h1,
    "zb_h2": zb_h2,
    "zb_v": zb_v,
}
# schedules with separate gradients of input and params, each of one tick
SPLIT = ("zb_h1", "zb_h2", "zb_v")


def make(
    name: str, stages: int, microbatches: int, rounds: int = 1, pieces: int = 2
) -> Schedule:
    """Return a schedule by name.

    Args:
      name: A name in SCHEDULES.
      stages: Number of stages K.
      microbatches: Number of microbatches M.
      rounds: Parts of the model on each stage; 2 for zb_v, more than 1 otherwise for
        interleaved only.
      pieces: Ticks of a backward; 2 for zero-bubble schedules.
    """
    check_schedule(name, stages, microbatches, rounds, pieces)
    if name in SPLIT:
        return SCHEDULES[name](stages, microbatches)
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
    if name in SPLIT and pieces != 2:
        raise BadInput(
            f"expected pieces=2 for {name}, whose backward has an input and a weight "
            f"gradient, got {pieces=}; pass 2"
        )
    if SCHEDULES[name] is zb_v:
        if rounds != 2:
            raise BadInput(f"expected rounds=2 for {name}, got {rounds=}; pass 2")
    elif rounds > 1 and SCHEDULES[name] is not interleaved:
        raise BadInput(
            f"expected rounds=1 for {name}, got {rounds=}; pass 1 or use interleaved"
        )


def from_ticks(
    ticks: np.ndarray, rounds: int = 1, *, split: bool = False, folded: bool = False
) -> Schedule:
    """Return the schedule in which pieces have these ticks.

    Args:
      ticks: Tick of each piece: 1 + pieces x microbatches x parts.
      rounds: Number of parts on each stage.
      split: Whether the pieces of a backward are an input and a weight gradient.
      folded: Whether the parts form a V over the stages.
    """
    pieces, microbatches, stages = (
        len(ticks) - 1,
        ticks.shape[1],
        ticks.shape[2] // rounds,
    )
    shape = int(ticks.max()) + 1, stages
    number, microbatch_of, part = np.indices(ticks.shape)
    cell = ticks, stage_of(stages, rounds, folded)[part]
    tables = []
    for values in (number, microbatch_of, part // stages):
        table = np.full(shape, IDLE, np.int32)
        table[cell] = values
        tables.append(table)
    # an incomplete last group of interleaved may leave a tick without work on any stage
    busy = (tables[0] != IDLE).any(axis=1)
    piece, microbatch, round_index = (table[busy] for table in tables)
    return Schedule(
        stages,
        microbatches,
        rounds,
        pieces,
        piece,
        microbatch,
        round_index,
        split=split,
        folded=folded,
    )


def consecutive(forward: np.ndarray, backward: np.ndarray, pieces: int) -> np.ndarray:
    """Return the ticks of all pieces if the pieces of a backward are consecutive.

    Args:
      forward: Tick of each forward: microbatches x parts.
      backward: Tick of the first piece of each backward: microbatches x parts.
      pieces: Ticks of a backward.
    """
    return np.stack([forward, *(backward + number for number in range(pieces))])
