"""Rounds of volunteers: work, groups with deadlines, averages, departures.

    begins ──── work ────► finishes ┊ late: looks for the group of the next round
    begins ─ work ─► finishes       ┊ average ─► begins
    opening                      deadline

In round t, the volunteers on a line of the grid along axis t mod d have one key, and
form one group. The group opens when its first volunteer begins to work, and closes by
the deadline of `wire.plans.deadlines`. Late volunteers keep their work for the next
round. Members average with shares by bandwidth (`wire.plans.load_balance`). If a member
leaves before the end, the average takes twice as long, until the others have noticed.
Its part stays local, and its values are in the other parts if it left in the second
half. Newcomers download the weights in a swarm (`wire.plans.swarm`).

The times of a round do not depend on weights: `Outcome` says which seats copy, train
and average.
"""

from typing import NamedTuple

import numpy as np

from dml.sim.volunteers.groups import (
    Average,
    Meeting,
    Rules,
    meet,
    places,
    run_averages,
)
from dml.sim.volunteers.population import Peers, Traits, replace
from dml.wire.plans import swarm


class Outcome(NamedTuple):
    """The effects of a round on the weights, in this order, and its counts.

    Attributes:
      newcomers: Seats that copy the weights of donors.
      donors: Seats of the donors.
      started: Seats that compute `steps` updates.
      label: Group of each seat.
      inside: Whether each seat has the averages of its group.
      vanished: Seats of members that left before the end.
      contributed: Whether each of them had sent its values.
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
    contributed: np.ndarray
    shares: np.ndarray
    averages: int
    lost: int
    late: int
    evaluations: int
    sent: float


def play(
    peers: Peers,
    rules: Rules,
    traits: Traits,
    t: int,
    generator: np.random.Generator,
) -> Outcome:
    """Play round t: change the peers in place, and return its effect on weights.

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
        average.contributed_GxM[left_GxM],
        shares,
        int(average.averaged.sum()),
        int(average.lost.sum()),
        int(met.late_GxM.sum()),
        evaluations,
        average.sent + len(gone) * rules.nbytes,
    )


def join(peers: Peers, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Add newcomers that have the weights before half of the others begin.

    Returns:
      Seats of the newcomers, and of the volunteers whose weights they have.
    """
    candidate = peers.present
    now = np.median(peers.begins[candidate]) if candidate.any() else peers.begins.min()
    newcomers = np.flatnonzero(~candidate & (peers.begins <= now))
    sources = np.flatnonzero(peers.recent if peers.recent.any() else candidate)
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
