"""Properties of a pipeline schedule: bubble, microbatches in flight, staleness.

K is the number of stages, k the index of a stage, M the number of microbatches.
"""

import numpy as np

from dml.wire.plans.pipelines import FORWARD, IDLE, Schedule


def bubble(schedule: Schedule) -> float:
    """Return the fraction of all ticks of all stages that are idle."""
    return float((schedule.piece == IDLE).mean())


def speed_up(schedule: Schedule) -> float:
    """Return the speed-up over one device: KM/(M + K - 1) for gpipe and 1f1b."""
    return schedule.stages * (1 - bubble(schedule))


def in_flight(schedule: Schedule) -> np.ndarray:
    """Return the greatest number of microbatches with saved activations, by stage.

    It is M for gpipe, min(M, K - k) for 1f1b, and vK - k for interleaved with v rounds,
    where a microbatch counts once for each part of the model.
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
