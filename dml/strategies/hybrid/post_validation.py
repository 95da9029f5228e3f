"""Clipping by the global norm without a barrier: post-validation (Qi 2023).

    stage 0   sum of squares ─→ update, next forwards ········ validate
    stage 1            sum ─→ update, next forwards ··· validate ↑
    stage 2                  sum, which is the total ───────→ ↑

A stage adds its squares to the sum of the stages before it, sends the sum on, and
updates its params as if the norm did not exceed the limit. The total comes back from
the last stage while the next minibatch is computed. If the gradients had to be clipped,
the stage restores its old params and updates them by clipped gradients. The bits are
those of `clip_after_all`, as both add the squares in the order of the stages. Old
params and state are stored until then; the paper inverts the update, up to rounding.

In a program in lockstep, as in `hybrid/pipeline.py`, no stage is ahead of another, so
post-validation would save no time; these functions run on ranks.

Cost: 2(K - 1) messages of a word.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dml.types import Comm

SUM_TAG, TOTAL_TAG = 1, 2


class Learned(NamedTuple):
    """Params of a stage, and the state of its optimizer."""

    params: np.ndarray
    state: tuple[np.ndarray, ...]


Update = Callable[[np.ndarray, Learned], Learned]  # does not change its arguments


class Pending(NamedTuple):
    """An update that is not yet validated."""

    before: Learned
    grads: np.ndarray
    earlier: np.ndarray  # sum of squares of the stages before this one
    squares: np.ndarray  # the same with this stage
    optimistic: Learned | None  # None: these squares already exceed the limit


def begin_update(
    comm: Comm, learned: Learned, grads: np.ndarray, update: Update, clip: float
) -> Pending:
    """Update the params of a stage before the norm of all stages is known.

    Args:
      comm: Ranks, one stage each.
      learned: Params and state of the stage.
      grads: Gradients of the params.
      update: The optimizer's update.
      clip: Largest norm of the gradients of all stages.
    """
    earlier = np.zeros(1)
    if comm.rank:
        comm.Recv(earlier, comm.rank - 1, SUM_TAG)
    squares = earlier + np.square(grads, dtype=np.float64).sum()
    if comm.rank < comm.size - 1:
        comm.Send(squares, comm.rank + 1, SUM_TAG)
    optimistic = update(grads, learned) if within(squares, clip) else None
    return Pending(learned, grads, earlier, squares, optimistic)


def validate_update(
    comm: Comm, pending: Pending, update: Update, clip: float
) -> tuple[Learned, bool]:
    """Return params and state after the update, and whether no gradient was clipped.

    All stages return the same bool. Arguments are those of `begin_update`.
    """
    total = pending.squares
    if comm.rank < comm.size - 1:
        total = np.empty(1)
        comm.Recv(total, comm.rank + 1, TOTAL_TAG)
    if comm.rank:
        comm.Send(total, comm.rank - 1, TOTAL_TAG)
    if within(total, clip):
        assert pending.optimistic  # a partial sum does not exceed the total
        return pending.optimistic, True
    grads = clipped(pending.grads, math.sqrt(total[0]), clip)
    return update(grads, pending.before), False


def clip_after_all(
    comm: Comm, learned: Learned, grads: np.ndarray, update: Update, clip: float
) -> tuple[Learned, bool]:
    """Update after the norm of all stages is known; see `validate_update`."""
    pending = begin_update(comm, learned, grads, lambda _, learned: learned, clip)
    after, fits = validate_update(comm, pending, update, clip)
    return (update(grads, learned) if fits else after), fits


def within(squares: np.ndarray, clip: float) -> bool:
    """Return whether the norm of this sum of squares is less than the limit."""
    return math.sqrt(squares[0]) < clip


def clipped(grads: np.ndarray, norm: float, clip: float) -> np.ndarray:
    """Return gradients of a norm, scaled to the norm `clip`."""
    return grads / grads.dtype.type(norm) * grads.dtype.type(clip)
