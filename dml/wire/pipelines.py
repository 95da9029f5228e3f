"""Pipelines as data: which stage works on which microbatch in every tick; pure numpy.

    stage 0   0 1 2 3 . . . 3 3 2 2 1 1 0 0       gpipe: all forwards, then all
    stage 1   . 0 1 2 3 3 3 2 2 1 1 0 0 . .       backwards, two ticks each

    stage 0   0 1 . . 0 0 2 1 1 3 2 2 . 3 3       1f1b: a backward as soon as its
    stage 1   . 0 0 0 1 1 1 2 2 2 3 3 3 . .       turn has come: fewer are alive

The number of stages and of microbatches in, a Schedule out. A tick is the time of a
forward. Without stages to wait for, M microbatches take M(1 + pieces) ticks; K - 1 more
are the bubble: (K - 1)/(M + K - 1) of all.
"""

from typing import NamedTuple

import numpy as np

IDLE, FORWARD = -1, 0


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


def filled(forward: np.ndarray, backward: np.ndarray, pieces: int) -> Schedule:
    """Return the schedule in which these begin: microbatches x stages (one round)."""
    microbatches, stages = forward.shape
    ticks = int(backward.max()) + pieces
    piece = np.full((ticks, stages), IDLE, np.int8)
    microbatch = np.full((ticks, stages), IDLE, np.int32)
    number, stage = np.indices(forward.shape)
    for what in range(1 + pieces):
        at = forward if what == FORWARD else backward + what - 1
        piece[at, stage], microbatch[at, stage] = what, number
    part = np.where(piece == IDLE, IDLE, 0).astype(np.int32)
    return Schedule(stages, microbatches, 1, pieces, piece, microbatch, part)
