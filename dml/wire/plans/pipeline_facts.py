"""Properties of a pipeline schedule: bubble, microbatches in flight, staleness."""

import numpy as np

from dml.wire.plans.pipelines import FORWARD, IDLE, Schedule


def bubble(schedule: Schedule) -> float:
    """Return the fraction of all stages' ticks that are idle."""
    return float((schedule.piece == IDLE).mean())


def speed_up(schedule: Schedule) -> float:
    """Return the time of one device over that of the stages: KM/(M + K - 1)."""
    return schedule.stages * (1 - bubble(schedule))


def in_flight(schedule: Schedule) -> np.ndarray:
    """Return each stage's greatest number of microbatches with saved activations.

    One round of gpipe has M, of 1f1b min(M, K - k). v rounds have vK - k, where a
    microbatch counts once for each part.
    """
    begun = (schedule.piece == FORWARD).cumsum(axis=0)
    done = (schedule.piece == schedule.pieces).cumsum(axis=0)
    done = np.concatenate([0 * done[:1], done[:-1]])  # the last piece reads them too
    return (begun - done).max(axis=0)


def staleness(schedule: Schedule) -> np.ndarray:
    """Return the age of the params of each gradient: microbatches x parts.

    The age is the number of a part's updates between the forward and the end of the
    backward, where every backward ends with an update: min(m, K - 1 - k) of pipedream.
    """
    ticks = schedule.ticks
    age = np.empty(ticks.shape[1:], int)
    for part, (forward, end) in enumerate(
        zip(ticks[FORWARD].T, ticks[-1].T, strict=True)
    ):
        updates = np.sort(end)
        age[:, part] = np.searchsorted(updates, end) - np.searchsorted(updates, forward)
    return age
