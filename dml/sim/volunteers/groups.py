"""Groups of volunteers: members by deadline, and averages from which members leave."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dml.sim.delays import DelayDistribution
from dml.sim.volunteers.population import Peers
from dml.wire.plans import deadlines, load_balance
from dml.wire.plans.grouping import grid_lines


class Rules(NamedTuple):
    """Rules of the rounds.

    Attributes:
      sides: Sides of the grid of seats.
      work: Seconds of a gradient evaluation at speed 1.
      steps: Gradient evaluations between averages.
      nbytes: Bytes of the weights.
      quorum: Least share of a full line with which a group closes.
      spreads: Median absolute deviations of the deadline.
      lost: Share of the work of late volunteers that counts as lost.
      deadline: Constant deadline in seconds; 0: from the arrivals.
      matchmaking: Seconds from the deadline to the average.
      pieces: Number of pieces of a download.
    """

    sides: tuple[int, ...]
    work: DelayDistribution
    steps: int = 1
    nbytes: float = 1e6
    quorum: float = 0.5
    spreads: float = 1.0
    lost: float = 0.0
    deadline: float = 0.0
    matchmaking: float = 0.0
    pieces: int = 32


class Meeting(NamedTuple):
    """Groups at their deadlines.

    Attributes:
      seats_GxM: Seat at each place of each group; -1: none.
      member_GxM: Whether the volunteer arrived in time.
      late_GxM: Whether it arrives later.
      closing: Time at which each group closes.
    """

    seats_GxM: np.ndarray
    member_GxM: np.ndarray
    late_GxM: np.ndarray
    closing: np.ndarray


class Average(NamedTuple):
    """The averages of the groups of a meeting.

    Attributes:
      end: Time at which the members of each group continue.
      stayed_GxM: Whether a member did not leave before the end.
      contributed_GxM: Whether a member left after it had sent its values.
      averaged: Whether each group has an average.
      lost: Whether each average lost a member.
      shares_GxM: Share of each member.
      sent: Bytes sent by all members.
    """

    end: np.ndarray
    stayed_GxM: np.ndarray
    contributed_GxM: np.ndarray
    averaged: np.ndarray
    lost: np.ndarray
    shares_GxM: np.ndarray
    sent: float


@lru_cache(maxsize=16)
def places(size: int, sides: tuple[int, ...], axis: int) -> tuple[np.ndarray, ...]:
    """Return the seats on each line along an axis, padded by -1, and labels."""
    groups = grid_lines(size, sides, 0, axis)
    seats_GxM = np.full((len(groups.sizes()), sides[axis]), -1)
    of = groups.label[groups.order]
    seats_GxM[of, np.arange(size) - groups.starts[of]] = groups.order
    return seats_GxM, groups.label


def meet(peers: Peers, rules: Rules, seats_GxM: np.ndarray) -> Meeting:
    """Return the members of each group by the arrivals of its volunteers."""
    candidate = (seats_GxM >= 0) & peers.present[seats_GxM]
    opening = np.where(candidate, peers.begins[seats_GxM], np.inf).min(1, keepdims=True)
    opening[~np.isfinite(opening)] = 0.0
    arrives = candidate & (peers.leaves >= peers.finishes)[seats_GxM]
    waits = np.maximum(0, peers.finishes[seats_GxM] - opening)
    waits[~arrives] = np.inf
    # The departure of a volunteer is noticed: it does not count for the quorum.
    least = np.minimum(math.ceil(rules.quorum * waits.shape[1]), arrives.sum(1))
    if rules.deadline:
        closing, count = deadlines.fixed(waits, least, rules.deadline)
    else:
        closing, count = deadlines.adaptive(waits, least, rules.spreads, rules.lost)
    member = arrives & (waits <= closing[:, None]) & (count > 0)[:, None]
    closing[~candidate.any(1)] = 0.0
    closing += opening[:, 0] + rules.matchmaking
    return Meeting(seats_GxM, member, arrives & ~member, closing)


def run_averages(peers: Peers, rules: Rules, met: Meeting) -> Average:
    """Return the ends of averages, and the members that leave before."""
    sizes = met.member_GxM.sum(1)
    bandwidth = np.where(met.member_GxM, peers.bandwidth[met.seats_GxM], 0.0)
    shares_GxM, seconds = load_balance.level(bandwidth, sizes)
    averaged = np.isfinite(seconds) & (sizes > 1)
    duration = np.where(averaged, rules.nbytes * seconds, 0)[:, None]
    remains = peers.leaves[met.seats_GxM] - met.closing[:, None]
    left = met.member_GxM & (remains < duration)
    lost = averaged & left.any(1)
    load_GxM = 1 + (sizes - 2)[:, None] * shares_GxM
    return Average(
        met.closing + duration[:, 0] * (1 + lost),
        met.member_GxM & ~left,
        left & (remains >= duration / 2),
        averaged,
        lost,
        shares_GxM,
        rules.nbytes * float(load_GxM[met.member_GxM & averaged[:, None]].sum()),
    )
