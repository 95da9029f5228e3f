"""Groups of volunteers: members at the deadlines, and averages with departures."""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dml.sim.delays import DelayDistribution
from dml.sim.volunteers.population import Peers
from dml.wire.plans.averaging import deadlines, load_balance
from dml.wire.plans.averaging.grouping import grid_lines


class Rules(NamedTuple):
    """Settings of the rounds.

    Attributes:
      sides: Lengths of the sides of the grid of seats.
      work: Seconds of a gradient evaluation at speed 1.
      steps: Gradient evaluations between averages.
      nbytes: Bytes of the weights.
      quorum: Smallest share of the seats of a line with which a group closes.
      spreads: Number of median absolute deviations above the median in the deadline.
      lost: Share of the work of late volunteers that counts as lost.
      deadline: Constant deadline in seconds; 0: deadline from the arrivals.
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


class Groups(NamedTuple):
    """The groups of a round at their deadlines.

    Attributes:
      seats_GxM: Seat at each place of each group; -1: no seat.
      member_GxM: Whether the volunteer of the seat arrived before the deadline.
      late_GxM: Whether the volunteer of the seat arrives after the deadline.
      closing: Time at which each group closes.
    """

    seats_GxM: np.ndarray
    member_GxM: np.ndarray
    late_GxM: np.ndarray
    closing: np.ndarray


class Average(NamedTuple):
    """The averages of all groups of a round.

    Attributes:
      end: Time at which the members of each group continue.
      stayed_GxM: Whether each seat has a member that stayed until the end.
      contributed_GxM: Whether each seat has a member that left after its contribution.
      averaged: Whether each group computed an average.
      lost: Whether each average lost a member.
      shares_GxM: Share of the vector that each member reduces.
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
def line_seats(size: int, sides: tuple[int, ...], axis: int) -> tuple[np.ndarray, ...]:
    """Return the seats on each line along an axis, padded by -1, and lines by seat."""
    groups = grid_lines(size, sides, 0, axis)
    seats_GxM = np.full((len(groups.sizes()), sides[axis]), -1)
    line = groups.label[groups.order]
    seats_GxM[line, np.arange(size) - groups.starts[line]] = groups.order
    return seats_GxM, groups.label


def form_groups(peers: Peers, rules: Rules, seats_GxM: np.ndarray) -> Groups:
    """Return the groups that the arrivals of the volunteers lead to."""
    candidate = (seats_GxM >= 0) & peers.present[seats_GxM]
    opening = np.where(candidate, peers.begins[seats_GxM], np.inf).min(1, keepdims=True)
    opening[~np.isfinite(opening)] = 0.0
    arrives = candidate & (peers.leaves >= peers.finishes)[seats_GxM]
    waits = np.maximum(0, peers.finishes[seats_GxM] - opening)
    waits[~arrives] = np.inf
    # the quorum does not count volunteers that leave before they arrive
    least = np.minimum(math.ceil(rules.quorum * waits.shape[1]), arrives.sum(1))
    if rules.deadline:
        closing, count = deadlines.fixed(waits, least, rules.deadline)
    else:
        closing, count = deadlines.adaptive(waits, least, rules.spreads, rules.lost)
    member = arrives & (waits <= closing[:, None]) & (count > 0)[:, None]
    closing[~candidate.any(1)] = 0.0
    closing += opening[:, 0] + rules.matchmaking
    return Groups(seats_GxM, member, arrives & ~member, closing)


def run_averages(peers: Peers, rules: Rules, groups: Groups) -> Average:
    """Return the averages of the groups, and the members that leave during them."""
    sizes = groups.member_GxM.sum(1)
    bandwidth = np.where(groups.member_GxM, peers.bandwidth[groups.seats_GxM], 0.0)
    shares_GxM, seconds = load_balance.level(bandwidth, sizes)
    averaged = np.isfinite(seconds) & (sizes > 1)
    duration = np.where(averaged, rules.nbytes * seconds, 0)[:, None]
    remains = peers.leaves[groups.seats_GxM] - groups.closing[:, None]
    left = groups.member_GxM & (remains < duration)
    lost = averaged & left.any(1)
    load_GxM = 1 + (sizes - 2)[:, None] * shares_GxM
    return Average(
        groups.closing + duration[:, 0] * (1 + lost),
        groups.member_GxM & ~left,
        left & (remains >= duration / 2),
        averaged,
        lost,
        shares_GxM,
        rules.nbytes * float(load_GxM[groups.member_GxM & averaged[:, None]].sum()),
    )
