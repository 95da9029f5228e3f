"""Properties of a pipeline schedule: bubble, microbatches in flight, staleness.

K is the number of stages, k the index of a stage, M the number of microbatches.
"""

import numpy as np

from dml.wire.plans.pipeline.schedules import FORWARD, IDLE, NEVER, Schedule


def bubble(schedule: Schedule) -> float:
    """Return the fraction of all ticks of all stages that are idle."""
    return float((schedule.piece == IDLE).mean())


def speed_up(schedule: Schedule) -> float:
    """Return the speed-up over one device: KM/(M + K - 1) for gpipe and 1f1b."""
    return schedule.stages * (1 - bubble(schedule))


def idle_ticks(schedule: Schedule) -> int:
    """Return the most idle ticks of a stage between its first and its last piece.

    It is the bubble of a run of minibatches in which no stage waits for the updates of
    others: 0 for zb_h2 and zb_v.
    """
    busy = schedule.piece != IDLE
    ticks = np.arange(len(busy))[:, None]
    first = np.where(busy, ticks, len(busy)).min(axis=0)
    last = np.where(busy, ticks, NEVER).max(axis=0)
    return int((last + 1 - first - busy.sum(axis=0)).max())


def in_flight(schedule: Schedule) -> np.ndarray:
    """Return the greatest number of microbatches with saved activations, by stage.

    It is M for gpipe, min(M, K - k) for 1f1b, and vK - k for interleaved with v rounds,
    where a microbatch counts once for each part of the model. Activations are saved
    until the last piece of the backward, the weight gradient if it is split: at most K
    for zb_h1, 2K - 1 for zb_h2, and 2K half stages for zb_v.
    """
    begun = (schedule.piece == FORWARD).cumsum(axis=0)
    done = (schedule.piece == schedule.pieces).cumsum(axis=0)
    done = np.concatenate([0 * done[:1], done[:-1]])  # the last piece still reads them
    return (begun - done).max(axis=0)


def staleness(schedule: Schedule) -> np.ndarray:
    """Return the staleness of each gradient: an array microbatches x parts.

    Staleness is the number of updates of a part between the forward and the end of the
    backward of a microbatch, if every backward ends with an update. For pipedream it is
    min(m, K - 1 - k) for minibatch m at stage k.
    """
    ticks = schedule.ticks
    age = np.empty(ticks.shape[1:], int)
    for part, (forward, end) in enumerate(
        zip(ticks[FORWARD].T, ticks[-1].T, strict=True)
    ):
        updates = np.sort(end)
        age[:, part] = np.searchsorted(updates, end) - np.searchsorted(updates, forward)
    return age
