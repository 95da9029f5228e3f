"""Rounds of volunteers: work, groups with deadlines, averages, departures.

    begins ──── work ────► finishes ┊ late: looks for the group of the next round
    begins ─ work ─► finishes       ┊ average ─► begins
    opening                      deadline

In round t, the volunteers on a line of the grid along axis t mod d have one key, and
form one group. The group opens when its first volunteer begins to work, and closes by
the deadline of `wire.plans.deadlines`. Late volunteers keep their work for the next
round. Members average with shares by bandwidth (`wire.plans.load_balance`). If a member
leaves before the end, the average takes twice as long, until it is taken for gone; its
part stays local, and its values are in the other parts if it left in the second half.
Newcomers download the weights in a swarm (`wire.plans.swarm`).

The times of a round do not depend on weights: `Outcome` says which seats copy, train
and average.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dml.sim.delays import DelayDistribution
from dml.sim.volunteers.population import Peers, Traits, replace
from dml.wire.plans import deadlines, load_balance, swarm
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


class Outcome(NamedTuple):
    """What a round does to the weights, in this order, and its counts.

    Attributes:
      newcomers: Seats that copy the weights of donors.
      donors: Seats of the donors.
      started: Seats that compute `steps` updates.
      label: Group of each seat.
      inside: Whether each seat has the averages of its group.
      vanished: Seats of members that left before the end.
      given: Whether each of them had sent its values.
      shares: Share of the average that each seat owns.
      averages: Number of averages of two or more volunteers.
      lost: Number of averages that lost a member.
      late: Number of volunteers that missed their group.
      evaluations: Number of gradient evaluations, lost ones included.
      sent: Bytes that all volunteers send.
    """

    newcomers: np.ndarray
    donors: np.ndarray
    started: np.ndarray
    label: np.ndarray
    inside: np.ndarray
    vanished: np.ndarray
    given: np.ndarray
    shares: np.ndarray
    averages: int
    lost: int
    late: int
    evaluations: int
    sent: float


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
      given_GxM: Whether a member left after it had sent its values.
      averaged: Whether each group has an average.
      lost: Whether each average lost a member.
      shares_GxM: Share of each member.
      sent: Bytes sent by all members.
    """

    end: np.ndarray
    stayed_GxM: np.ndarray
    given_GxM: np.ndarray
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


def play(
    peers: Peers,
    rules: Rules,
    traits: Traits,
    t: int,
    generator: np.random.Generator,
) -> Outcome:
    """Play round t: change the peers in place, and return what it does to weights.

    Args:
      peers: All seats.
      rules: Rules of the rounds.
      traits: Distributions of newcomers.
      t: Number of the round.
      generator: Random generator of the round.
    """
    newcomers, donors = join(peers, generator)
    started = np.flatnonzero(peers.present & peers.idle)
    evaluations = work(peers, rules, started, generator)
    seats_GxM, label = places(len(peers.begins), rules.sides, t % len(rules.sides))
    met = meet(peers, rules, seats_GxM)
    average = run_averages(peers, rules, met)
    inside = move_on(peers, met, average)
    gone = np.flatnonzero(peers.present & (peers.leaves < peers.finishes))
    left_GxM = met.member_GxM & ~average.stayed_GxM
    vanished = met.seats_GxM[left_GxM]
    shares = np.zeros(len(label))
    shares[seats_GxM[met.member_GxM]] = average.shares_GxM[met.member_GxM]
    gone = np.union1d(gone, vanished)
    if len(gone):
        replace(peers, gone, download(peers, rules, len(gone)), traits, generator)
    return Outcome(
        newcomers,
        donors,
        started,
        label,
        inside,
        vanished,
        average.given_GxM[left_GxM],
        shares,
        int(average.averaged.sum()),
        int(average.lost.sum()),
        int(met.late_GxM.sum()),
        evaluations,
        average.sent + len(gone) * rules.nbytes,
    )


def join(peers: Peers, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Let newcomers join that have the weights before half of the others begin.

    Returns:
      Seats of the newcomers, and of the volunteers whose weights they have.
    """
    here = peers.present
    now = np.median(peers.begins[here]) if here.any() else peers.begins.min()
    newcomers = np.flatnonzero(~here & (peers.begins <= now))
    sources = np.flatnonzero(peers.recent if peers.recent.any() else here)
    donors = newcomers
    if len(sources):  # else all volunteers have left, and the weights stay in the seats
        donors = generator.choice(sources, len(newcomers))
    peers.present[newcomers] = True
    return newcomers, donors


def work(
    peers: Peers, rules: Rules, started: np.ndarray, generator: np.random.Generator
) -> int:
    """Draw when the work of the started seats ends; return their evaluations."""
    each = rules.work.draws(generator, len(started)) / peers.speed[started]
    begins = peers.begins[started]
    peers.finishes[started] = begins + rules.steps * each
    peers.idle[started] = False
    possible = (peers.leaves[started] - begins) / each
    return int(np.clip(np.floor(possible), 0, rules.steps).sum())


def meet(peers: Peers, rules: Rules, seats_GxM: np.ndarray) -> Meeting:
    """Return the members of each group by the arrivals of its volunteers."""
    here = (seats_GxM >= 0) & peers.present[seats_GxM]
    opening = np.where(here, peers.begins[seats_GxM], np.inf).min(1, keepdims=True)
    opening[~np.isfinite(opening)] = 0.0
    arrives = here & (peers.leaves >= peers.finishes)[seats_GxM]
    waits = np.maximum(0, peers.finishes[seats_GxM] - opening)
    waits[~arrives] = np.inf
    # The departure of a volunteer is noticed: it does not count for the quorum.
    least = np.minimum(math.ceil(rules.quorum * waits.shape[1]), arrives.sum(1))
    if rules.deadline:
        closing, count = deadlines.fixed(waits, least, rules.deadline)
    else:
        closing, count = deadlines.adaptive(waits, least, rules.spreads, rules.lost)
    member = arrives & (waits <= closing[:, None]) & (count > 0)[:, None]
    closing[~here.any(1)] = 0.0
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


def move_on(peers: Peers, met: Meeting, average: Average) -> np.ndarray:
    """Set when volunteers continue; return whether each seat averages."""
    seats = met.seats_GxM
    ends = np.broadcast_to(average.end[:, None], seats.shape)
    peers.begins[seats[average.stayed_GxM]] = ends[average.stayed_GxM]
    peers.idle[seats[average.stayed_GxM]] = True
    closed = np.broadcast_to(met.closing[:, None], seats.shape)[met.late_GxM]
    late = seats[met.late_GxM]
    peers.begins[late] = np.maximum(peers.begins[late], closed)
    inside = np.zeros(len(peers.begins), bool)
    inside[seats[average.stayed_GxM & average.averaged[:, None]]] = True
    peers.recent = inside.copy()
    return inside


def download(peers: Peers, rules: Rules, newcomers: int) -> float:
    """Return the seconds in which a swarm copies the weights to newcomers."""
    owners = peers.bandwidth[peers.present & (peers.bandwidth > 0)]
    if not len(owners):
        return 0.0
    rounds = swarm.least_rounds(rules.pieces, newcomers)
    return rounds * rules.nbytes / rules.pieces / float(np.median(owners))
