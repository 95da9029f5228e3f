"""Deadlines of groups, from the arrivals of their members.

          quorum                        deadline
    ──●──●●──●──●●───●─────────●─────────┊──────────────●──►  seconds since the opening
             │           median + spreads·MAD          late

A group with a quorum closes at the larger of two times:

    median + spreads·MAD    includes members that are not outliers
    last + lost·last/k      break-even wait: if k members arrive in `last` seconds, one
                            more member increases the members per second if it arrives
                            within last/k seconds. The wait is multiplied by `lost`, the
                            share of the work of a late member that is lost.

The deadline is proportional to the arrivals and has no constant in seconds. The opening
is the time at which the members begin their work. Pure arithmetic, without
communication.
"""

import math
from collections.abc import Sequence

import numpy as np


def close_time(
    arrivals: Sequence[float], quorum: int, spreads: float, lost: float = 1.0
) -> float:
    """Return the seconds after the opening at which a group closes.

    The deadline changes with each arrival, so it is computed again after each one. It
    is never before the last arrival.

    Args:
      arrivals: Seconds from the opening to the arrival of each member, in any order.
      quorum: Least number of members.
      spreads: Number of median absolute deviations above the median.
      lost: Share of the work of a late member that is lost.

    Returns:
      Deadline in seconds; infinity if there are fewer arrivals than the quorum.
    """
    if len(arrivals) < max(1, quorum):
        return math.inf
    # equals _deadline, and avoids the microseconds of calls of NumPy
    times = sorted(map(float, arrivals))
    median = _middle(times)
    deviation = _middle(sorted([abs(time - median) for time in times]))
    return max(median + spreads * deviation, times[-1] * (1 + lost / len(times)))


def _middle(times: Sequence[float]) -> float:
    """Return the median of sorted numbers."""
    return (times[(len(times) - 1) // 2] + times[len(times) // 2]) / 2


def _deadline(sorted_arrivals: np.ndarray, spreads: float, lost: float) -> np.ndarray:
    """Return the deadlines of groups whose members are on the last axis."""
    k = sorted_arrivals.shape[-1]
    median = sorted_arrivals[..., (k - 1) // 2 : k // 2 + 1].mean(-1)
    deviations = np.abs(sorted_arrivals - median[..., None])
    deviation = np.median(deviations, axis=-1)
    last = sorted_arrivals[..., -1]
    return np.maximum(median + spreads * deviation, last * (1 + lost / k))


def adaptive(
    arrivals_GxM: np.ndarray,
    quorum: int | np.ndarray,
    spreads: float,
    lost: float = 1.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Return the closing times and numbers of members of many groups.

    A group closes at the first deadline before which no other candidate arrives, and at
    its last arrival if all candidates arrive. Its members are the candidates that
    arrive at or before the closing time.

    Args:
      arrivals_GxM: Seconds of all candidates of each group; infinity: never.
      quorum: Least number of members; a number, or an array with one for each group.
      spreads: Number of median absolute deviations above the median.
      lost: Share of the work of a late member that is lost.

    Returns:
      Closing time of each group, infinity without a quorum; and number of members of
      each group, 0 without a quorum.
    """
    arrivals_GxM = np.sort(arrivals_GxM, axis=1)
    groups, most = arrivals_GxM.shape
    least = np.broadcast_to(np.maximum(1, quorum), groups)
    closing, members = np.full(groups, np.inf), np.zeros(groups, np.int64)
    undecided = np.arange(groups)
    for k in range(int(least.min(initial=most + 1)), most + 1):
        prefix = arrivals_GxM[undecided, :k]
        undecided = undecided[np.isfinite(prefix[:, -1])]
        prefix = arrivals_GxM[undecided, :k]
        if k == most:
            deadline, late = prefix[:, -1], least[undecided] <= k
        else:
            deadline = _deadline(prefix, spreads, lost)
            late = arrivals_GxM[undecided, k] > deadline
            late &= least[undecided] <= k
        closing[undecided[late]], members[undecided[late]] = deadline[late], k
        undecided = undecided[~late]
    return closing, members


def fixed(
    arrivals_GxM: np.ndarray, quorum: int | np.ndarray, seconds: float
) -> tuple[np.ndarray, np.ndarray]:
    """Return the closing times and numbers of members with a constant deadline.

    Args:
      arrivals_GxM: Seconds of all candidates of each group; infinity: never.
      quorum: Least number of members; a group with fewer arrivals has no members.
      seconds: Deadline; a full group closes at its last arrival.
    """
    members = (arrivals_GxM <= seconds).sum(1)
    members[members < np.maximum(1, quorum)] = 0
    return np.minimum(arrivals_GxM.max(1), seconds), members


def rate(closing: np.ndarray, members: np.ndarray) -> float:
    """Return the members per second of consecutive groups."""
    return float(members.sum() / closing.sum()) if members.any() else 0.0


def best_fixed(
    arrivals_GxM: np.ndarray, quorum: int, candidates: int = 400
) -> tuple[float, float]:
    """Return the constant deadline with the most members per second, and this rate.

    Args:
      arrivals_GxM: Seconds of all candidates of each group.
      quorum: Least number of members.
      candidates: Number of tried deadlines, quantiles of the finite arrivals.
    """
    finite = arrivals_GxM[np.isfinite(arrivals_GxM)]
    times = np.quantile(finite, np.linspace(0, 1, candidates), method="higher")
    rates = [rate(*fixed(arrivals_GxM, quorum, time)) for time in times]
    best = int(np.argmax(rates))
    return float(times[best]), rates[best]


def regret(reached: float, best: float) -> float:
    """Return the share of the best members per second that a policy loses."""
    return 1 - reached / best
