"""What a Schedule is worth, and whether it is one: bubble, alive, violations.

A Schedule in; shares of time, counts by stage, lines of complaint out; pure numpy.
"""

from collections.abc import Iterator

import numpy as np

from dml.wire.pipelines import FORWARD, IDLE, NOTHING, Schedule, parts, when


def bubble(schedule: Schedule) -> float:
    """Return the share of all stages' ticks in which nothing is done."""
    return float((schedule.piece == IDLE).mean())


def speed_up(schedule: Schedule) -> float:
    """Return the time of one device over that of the stages: KM/(M + K - 1)."""
    return schedule.stages * (1 - bubble(schedule))


def alive(schedule: Schedule) -> np.ndarray:
    """Return what each stage keeps at most: microbatches between their two passes.

    One round of gpipe M, of 1f1b min(M, K - k); v rounds, each counted, vK - k.
    """
    begun = (schedule.piece == FORWARD).cumsum(axis=0)
    done = (schedule.piece == schedule.pieces).cumsum(axis=0)
    done = np.concatenate([0 * done[:1], done[:-1]])  # its last piece still needs it
    return (begun - done).max(axis=0)


def versions(schedule: Schedule) -> np.ndarray:
    """Return how often a part was updated before a forward: microbatches x parts.

    As without flush, where every backward ends with an update.
    """
    ticks = when(schedule)
    return _done(ticks[-1], ticks[FORWARD])


def staleness(schedule: Schedule) -> np.ndarray:
    """Count a part's updates between a microbatch's forward and its backward's end.

    Of pipedream min(m, K - 1 - k): microbatches x parts.
    """
    ticks = when(schedule)
    return _done(ticks[-1], ticks[-1]) - _done(ticks[-1], ticks[FORWARD])


def _done(ends: np.ndarray, ticks: np.ndarray) -> np.ndarray:
    """Count those of ends, part by part, that come before each of ticks."""
    return np.stack(
        [
            np.searchsorted(np.sort(end), tick)
            for end, tick in zip(ends.T, ticks.T, strict=True)
        ],
        axis=1,
    )


def violations(schedule: Schedule) -> list[str]:
    """Say what is wrong with a schedule, a line each: nothing, if it can be played.

    A stage does one thing a tick: there is no room for more. Each is done once, in
    order; and what a part sends at the end of a tick is there in the next.
    """
    ranges = {
        "piece": (schedule.piece, 1 + schedule.pieces),
        "microbatch": (schedule.microbatch, schedule.microbatches),
        "round": (schedule.round, schedule.rounds),
    }
    wrong = []
    for name, (table, count) in ranges.items():
        idle = schedule.piece == IDLE
        bad = np.where(idle, table != NOTHING, (table < 0) | (table >= count))
        wrong += [
            f"stage {stage} in tick {tick}: {name} {table[tick, stage]} of {count}"
            for tick, stage in np.argwhere(bad)
        ]
    return wrong or [*_repeated(schedule), *_early(schedule)]


def _repeated(schedule: Schedule) -> Iterator[str]:
    """Name what is done never, or more than once."""
    counts = np.zeros(when(schedule).shape, np.int32)
    tick, stage = np.nonzero(schedule.piece != IDLE)
    part = schedule.round[tick, stage] * schedule.stages + stage
    done = schedule.piece[tick, stage], schedule.microbatch[tick, stage], part
    np.add.at(counts, done, 1)
    for piece, number, part in np.argwhere(counts != 1):
        times = counts[piece, number, part]
        yield f"{_named(piece, number, part)} is done {times} times, not once"


def _early(schedule: Schedule) -> Iterator[str]:
    """Name what is done before that which it needs."""
    ticks = when(schedule)
    last = parts(schedule) - 1
    after = ticks[1:] - ticks[:-1]  # the piece before it, at the same part
    for piece, number, part in np.argwhere(after < 1):
        yield f"{_named(piece + 1, number, part)} comes before piece {piece}"
    for number, part in np.argwhere(np.diff(ticks[FORWARD]) < 1):
        yield f"{_named(FORWARD, number, part + 1)} comes before that of part {part}"
    gaps = ticks[FORWARD + 1][:, :last] - ticks[-1][:, 1:]
    for number, part in np.argwhere(gaps < 1):
        yield f"{_named(1, number, part)} comes before that of part {part + 1}"


def _named(piece: int, number: int, part: int) -> str:
    what = "the forward" if piece == FORWARD else f"piece {piece} of the backward"
    return f"{what} of microbatch {number} at part {part}"
