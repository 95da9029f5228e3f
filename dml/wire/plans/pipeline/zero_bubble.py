"""Ticks of the pieces of zero-bubble schedules (Qi 2023), by a list scheduler.

    stage 0   F0 F1 F2 .  .  B0 W0 F3 B1 W1 B2 W2 B3 W3      zb_h1, K = 3, M = 4
    stage 1   .  F0 F1 .  B0 F2 B1 W0 F3 B2 W1 B3 W2 W3
    stage 2   .  .  F0 B0 F1 B1 F2 B2 W0 F3 B3 W1 W2 W3

F is a forward, B the gradient of a part's input, W the gradient of its params. Only B
is on the path between stages; W may follow its B at any later tick of the stage.

A stage saves the activations of a microbatch from F to W. In each tick of each stage
the scheduler executes the first piece, in an order of preference, that is ready and
whose activations fit.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

F, B, W = range(3)  # a forward, an input gradient, a weight gradient
# (piece, round) in order of preference: forwards of the second round of parts begin the
# backwards, and in the second round W may wait, as B of the first round may not
STEADY = ((F, 1), (F, 0), (B, 0), (W, 0), (B, 1), (W, 1))
# after the last forward of a stage no W must be executed to free memory
ENDING = ((B, 0), (B, 1), (W, 0), (W, 1))


class Limits(NamedTuple):
    """Bounds of the number of microbatches of a stage, counted once for each part."""

    warm_up: Callable[[int], int]  # by stage: after F, before B, in one part
    saved: int  # after F, before W, in all parts


def list_schedule(
    stage_of: np.ndarray, stages: int, microbatches: int, limits: Limits
) -> np.ndarray:
    """Return the tick of every piece: F, B and W x microbatches x parts.

    Each piece takes a tick. Microbatches are in order in each piece of each part, so
    that weight gradients are summed from the first microbatch to the last.

    Args:
      stage_of: Stage of each part.
      stages: Number of stages K.
      microbatches: Number of microbatches M.
      limits: Bounds of saved activations.
    """
    parts = len(stage_of)
    ticks = np.full((3, microbatches, parts), -1)
    done = np.zeros((3, parts), int)  # number of executed pieces
    own = [np.flatnonzero(stage_of == stage) for stage in range(stages)]

    def is_ready(stage: int, piece: int, part: int) -> bool:
        """Return whether the next microbatch of a piece can be executed now."""
        microbatch = done[piece, part]
        if microbatch == microbatches:
            return False
        if piece == W:
            return bool(microbatch < done[B, part])
        if piece == B:
            last = part == parts - 1
            arrived = last or microbatch < done[B, part + 1]
            return bool(microbatch < done[F, part] and arrived)
        saved = (done[F] - done[W])[own[stage]].sum()
        fits = saved < limits.saved
        fits &= done[F, part] - done[B, part] < limits.warm_up(stage)
        return bool(fits and (part == 0 or microbatch < done[F, part - 1]))

    tick = 0
    while (done[W] < microbatches).any():
        chosen = []
        for stage in range(stages):
            forwards = (done[F, own[stage]] < microbatches).any()
            for piece, round_index in STEADY if forwards else ENDING:
                if round_index < len(own[stage]):
                    part = own[stage][round_index]
                    if is_ready(stage, piece, part):
                        chosen.append((piece, part))
                        break
        for piece, part in chosen:  # after all stages: messages arrive at the end
            ticks[piece, done[piece, part], part] = tick
            done[piece, part] += 1
        tick += 1
    return ticks
