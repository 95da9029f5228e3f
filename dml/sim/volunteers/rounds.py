"""Rounds of volunteers: work, groups with deadlines, averages, departures.

    begins ──── work ────► finishes ┊ late: enters the next round
    begins ─ work ─► finishes       ┊ average ─► begins
    opening                      deadline

In round t, the volunteers on a line of the grid along axis t mod d have equal keys and
form one group. The group opens when its first volunteer begins to work, and closes at
the deadline of `plans.averaging.deadlines`. Late volunteers use their work in the next
round. Members average with shares by bandwidth (`plans.averaging.load_balance`). If a
member leaves before the end, the average takes twice as long, since the others must
detect the departure. The part that this member owns stays local; the other parts
include its values if it left in the second half of the average. Newcomers download the
weights from a swarm (`wire.plans.swarm`).

The times of a round do not depend on the weights: `Outcome` lists the seats that copy,
train and average.
"""

from typing import NamedTuple

import numpy as np

from dml.sim.volunteers.groups import (
    Average,
    Groups,
    Rules,
    form_groups,
    line_seats,
    run_averages,
)
from dml.sim.volunteers.population import Peers, Traits, replace
from dml.wire.plans import swarm


class Outcome(NamedTuple):
    """The effects of a round on the weights, in their order, and its statistics.

    Attributes:
      newcomers: Seats that copy the weights of donors.
      donors: Seats of the donors.
      started: Seats that compute `Rules.steps` updates.
      label: Group of each seat.
      included: Whether each seat receives the average of its group.
      vanished: Seats of members that left before the end of the average.
      contributed: Whether each member in `vanished` had sent its values.
      shares: Share of the vector that each seat reduces.
      averages: Number of averages of two or more volunteers.
      lost: Number of averages that lost a member.
      late: Number of volunteers that arrived after the deadline of their group.
      evaluations: Number of gradient evaluations, including those of lost work.
      sent: Bytes that all volunteers send.
    """

    newcomers: np.ndarray
    donors: np.ndarray
    started: np.ndarray
    label: np.ndarray
    included: np.ndarray
    vanished: np.ndarray
    contributed: np.ndarray
    shares: np.ndarray
    averages: int
    lost: int
    late: int
    evaluations: int
    sent: float


def simulate_round(
    peers: Peers,
    rules: Rules,
    traits: Traits,
    t: int,
    generator: np.random.Generator,
) -> Outcome:
    """Simulate round t: update the peers in place, and return the effects on weights.

    Args:
      peers: All seats, changed in place.
      rules: Settings of the rounds.
      traits: Distributions of newcomers.
      t: Number of the round.
      generator: Random generator of the round.
    """
    newcomers, donors = join(peers, generator)
    started = np.flatnonzero(peers.present & peers.idle)
    evaluations = work(peers, rules, started, generator)
    seats_GxM, label = line_seats(len(peers.begins), rules.sides, t % len(rules.sides))
    groups = form_groups(peers, rules, seats_GxM)
    average = run_averages(peers, rules, groups)
    included = move_on(peers, groups, average)
    gone = np.flatnonzero(peers.present & (peers.leaves < peers.finishes))
    left_GxM = groups.member_GxM & ~average.stayed_GxM
    vanished = groups.seats_GxM[left_GxM]
    shares = np.zeros(len(label))
    shares[seats_GxM[groups.member_GxM]] = average.shares_GxM[groups.member_GxM]
    gone = np.union1d(gone, vanished)
    if len(gone):
        replace(peers, gone, download(peers, rules, len(gone)), traits, generator)
    return Outcome(
        newcomers,
        donors,
        started,
        label,
        included,
        vanished,
        average.contributed_GxM[left_GxM],
        shares,
        int(average.averaged.sum()),
        int(average.lost.sum()),
        int(groups.late_GxM.sum()),
        evaluations,
        average.sent + len(gone) * rules.nbytes,
    )


def join(peers: Peers, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Add newcomers that complete their download before half of the others begin.

    Returns:
      Seats of the newcomers, and of the volunteers whose weights they copy.
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
    """Draw the end of the work of started seats; return the gradient evaluations."""
    each = rules.work.draws(generator, len(started)) / peers.speed[started]
    begins = peers.begins[started]
    peers.finishes[started] = begins + rules.steps * each
    peers.idle[started] = False
    possible = (peers.leaves[started] - begins) / each
    return int(np.clip(np.floor(possible), 0, rules.steps).sum())


def move_on(peers: Peers, groups: Groups, average: Average) -> np.ndarray:
    """Set the times of the next round; return whether each seat receives an average."""
    seats = groups.seats_GxM
    ends = np.broadcast_to(average.end[:, None], seats.shape)
    peers.begins[seats[average.stayed_GxM]] = ends[average.stayed_GxM]
    peers.idle[seats[average.stayed_GxM]] = True
    closed = np.broadcast_to(groups.closing[:, None], seats.shape)[groups.late_GxM]
    late = seats[groups.late_GxM]
    peers.begins[late] = np.maximum(peers.begins[late], closed)
    included = np.zeros(len(peers.begins), bool)
    included[seats[average.stayed_GxM & average.averaged[:, None]]] = True
    peers.recent = included.copy()
    return included


def download(peers: Peers, rules: Rules, newcomers: int) -> float:
    """Return the seconds of a swarm broadcast of the weights to newcomers."""
    owners = peers.bandwidth[peers.present & (peers.bandwidth > 0)]
    if not len(owners):
        return 0.0
    rounds = swarm.least_rounds(rules.pieces, newcomers)
    return rounds * rules.nbytes / rules.pieces / float(np.median(owners))
