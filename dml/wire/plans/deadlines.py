"""Deadlines of groups, from the arrivals of their members.

          quorum                        deadline
    ──●──●●──●──●●───●─────────●─────────┊──────────────●──►  seconds since the opening
             │           median + spreads·MAD          late

A group with a quorum closes at the larger of two times, neither of which has a constant
in seconds:

    median + spreads·MAD    members that are not outliers are waited for
    last + lost·last/k      k members in `last` seconds: one more member raises the
                            members per second if it arrives within last/k seconds.
                            If only a share of its work is lost otherwise, the wait is
                            that share of it, and 0 if a late member loses nothing.

All times multiplied by c give c times the deadline. The opening is the time at which
the members began their work. Pure arithmetic, without communication.
"""

import math
from collections.abc import Sequence

import numpy as np


def close_time(
    arrivals: Sequence[float], quorum: int, spreads: float, lost: float = 1.0
) -> float:
    """Return the seconds after the opening at which a group closes.

    The deadline moves with each arrival: call it again after each. It is never before
    the last arrival.

    Args:
      arrivals: Seconds after the opening of the members so far, in any order.
      quorum: Least number of members.
      spreads: Number of median absolute deviations above the median.
      lost: Share of the work of a late member that is lost.

    Returns:
      The deadline; infinity before the quorum.
    """
    if len(arrivals) < max(1, quorum):
        return math.inf
    # as _deadline, without the microseconds of NumPy's calls
    times = sorted(map(float, arrivals))
    median = _middle(times)
    deviation = _middle(sorted([abs(time - median) for time in times]))
    return max(median + spreads * deviation, times[-1] * (1 + lost / len(times)))


def _middle(times: Sequence[float]) -> float:
    """Return the median of sorted numbers."""
    return (times[(len(times) - 1) // 2] + times[len(times) // 2]) / 2


def _deadline(sorted_arrivals: np.ndarray, spreads: float, lost: float) -> np.ndarray:
    """Return the deadlines of groups with as many members as the last axis is long."""
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

    A group closes at the deadline that no further arrival precedes, and at its last
    arrival if it is full. Members arrive at or before the closing time.

    Args:
      arrivals_GxM: Seconds of all candidates of each group; infinity: never.
      quorum: Least number of members, of all groups or of each.
      spreads: Number of median absolute deviations above the median.
      lost: Share of the work of a late member that is lost.

    Returns:
      Closing times, infinity without a quorum; and numbers of members, 0 without.
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
      quorum: Least number of members; a group without closes with no member.
      seconds: Deadline; a full group closes at its last arrival.
    """
    members = (arrivals_GxM <= seconds).sum(1)
    members[members < np.maximum(1, quorum)] = 0
    return np.minimum(arrivals_GxM.max(1), seconds), members


def rate(closing: np.ndarray, members: np.ndarray) -> float:
    """Return the members per second of groups that follow each other."""
    return float(members.sum() / closing.sum()) if members.any() else 0.0


def best_fixed(
    arrivals_GxM: np.ndarray, quorum: int, candidates: int = 400
) -> tuple[float, float]:
    """Return the best constant deadline of these groups, and its members per second.

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
