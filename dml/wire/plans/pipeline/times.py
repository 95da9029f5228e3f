"""Seconds of a pipeline schedule for any durations of its pieces.

F  F  F .  .  B   W F      A stage executes its pieces in the order of the schedule,
   F .  B W  F .           each as soon as its input has arrived, and does not wait
                           for a tick. Messages take no time.
"""

from collections.abc import Sequence

import numpy as np

from dml.wire.plans.pipeline.schedules import FORWARD, IDLE, Schedule


def input_of(
    schedule: Schedule, piece: int, microbatch: int, part: int
) -> tuple[int, int, int] | None:
    """Return the piece of another part whose message a piece needs.

    None: the input is from the same part, or an example.
    """
    if piece == FORWARD and part > 0:
        return FORWARD, microbatch, part - 1
    if piece == FORWARD + 1 and part < schedule.parts - 1:
        return schedule.sending_piece, microbatch, part + 1
    return None


def output_of(
    schedule: Schedule, piece: int, microbatch: int, part: int
) -> tuple[int, int, int] | None:
    """Return the piece of another part that needs the message of a piece, or None."""
    if piece == FORWARD and part < schedule.parts - 1:
        return FORWARD, microbatch, part + 1
    if piece == schedule.sending_piece and part > 0:
        return FORWARD + 1, microbatch, part - 1
    return None


def stage_work(schedule: Schedule, stage: int) -> list[tuple[int, int, int]]:
    """Return the (piece, microbatch, part) of a stage, in the order of execution."""
    active = schedule.piece[:, stage] != IDLE
    columns = (schedule.piece, schedule.microbatch, schedule.part)
    work = np.stack([column[active, stage] for column in columns], axis=1)
    return [tuple(row) for row in work.tolist()]


def end_times(
    schedule: Schedule, durations: Sequence[float], minibatches: int = 1
) -> list[list[float]]:
    """Return the end of every minibatch on every stage.

    A stage begins the next minibatch without waiting for other stages.

    Args:
      schedule: The schedule of a minibatch.
      durations: Seconds of the pieces: of F, and of the pieces of a backward.
      minibatches: Number of minibatches.
    """
    work = [stage_work(schedule, stage) for stage in range(schedule.stages)]
    order = np.argwhere(schedule.piece != IDLE)  # by tick: an order of dependencies
    clock, ends = [0.0] * schedule.stages, []
    for _ in range(minibatches):
        done: dict[tuple[int, int, int], float] = {}
        position = [0] * schedule.stages
        for stage in order[:, 1].tolist():
            key = work[stage][position[stage]]
            position[stage] += 1
            needed = input_of(schedule, *key)
            begin = max(clock[stage], done[needed] if needed else 0.0)
            clock[stage] = done[key] = begin + durations[key[0]]
        ends.append(list(clock))
    return ends


def bubble_seconds(
    schedule: Schedule, durations: Sequence[float], minibatches: int = 1
) -> float:
    """Return the seconds of a minibatch in which a stage is idle.

    For one minibatch, the time until the last stage ends, less the work of a stage. For
    more, the mean increase of that time per minibatch, less the work of a stage. For F,
    B and W seconds it is (K - 1)(F + B + W) for 1f1b, of which the pieces of a backward
    take B + W; (K - 1)(F + B - W) for zb_h1; (K - 1)(F + B - 2W) for zb_h2 with several
    minibatches.

    Args:
      schedule: The schedule of a minibatch.
      durations: Seconds of the pieces: of F, and of the pieces of a backward.
      minibatches: Number of minibatches.
    """
    ends = [max(end) for end in end_times(schedule, durations, minibatches)]
    period = ends[0] if minibatches == 1 else (ends[-1] - ends[0]) / (minibatches - 1)
    return period - schedule.rounds * schedule.microbatches * sum(durations)
