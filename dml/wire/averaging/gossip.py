"""Gossip: each rank takes a weighted mean of its value and those of its neighbours."""

import numpy as np

from dml.types import Comm
from dml.wire.averaging.exchange import (
    Incoming,
    Outgoing,
    Transit,
    as_bytes,
    exchange,
    floating,
)
from dml.wire.comm.plain import as_comm
from dml.wire.plans.averaging.faults import LOST, NO_FAULTS, Faults
from dml.wire.plans.averaging.mixing import Edges, Topology, edge_arrivals, edges


def gossip(
    comm: Comm,
    buffer: np.ndarray,
    topology: Topology,
    t: int,
    state: Transit | None = None,
    faults: Faults = NO_FAULTS,
) -> Transit:
    """Average in place with the neighbours of round t; return the messages in transit.

        x_j ──w_ij──►┐
        x_k ──w_ik──►├─► x_i ← (1 - Σ w) x_i + Σ_j w_ij x_j       one round
        x_i ─────────┘

    The weight of a lost message belongs to the receiver's own value. Late messages are
    mixed in one after another: x_i ← (1 - w) x_i + w x_late. The mean of all ranks is
    conserved if W is doubly stochastic and no message is lost or late; push-sum
    conserves it always. The variance falls by |λ_2|² in a round, at the slowest.
    With d neighbours: 1 round, d·n words per rank: d(α + nβ).

    Args:
      comm: The ranks.
      buffer: Floating-point values of any length, equal on all ranks.
      topology: Neighbours and weights.
      t: Number of the round.
      state: Messages in transit, as returned by round t - 1; None in round 0.
      faults: Losses, delays and absences.
    """
    comm, buffer = as_comm(comm), floating(comm, buffer)
    transit = Transit() if state is None else state
    near = edges(topology, t, comm.rank)
    arrive, reach = edge_arrivals(topology, t, comm.rank, faults)
    # a message that arrives in this round is sent before the buffer changes
    message = as_bytes(buffer.copy() if faults.delay else buffer)
    for arrival, link, dest in zip(reach, near.send_links, near.dests, strict=True):
        if arrival != LOST:
            transit.outgoing.append(Outgoing(arrival, t, link, dest, message))
    transit.incoming += expected(near, arrive, t)
    received = exchange(comm, transit, t, buffer.nbytes)
    on_time = [one for one in received if one[0].round == t]
    own = 1.0
    for arrived, _ in on_time:
        own -= arrived.weight
    if on_time:
        buffer *= own
        for arrived, values in on_time:
            buffer += arrived.weight * values.view(buffer.dtype)
    for arrived, values in received:
        if arrived.round < t:
            buffer *= 1 - arrived.weight
            buffer += arrived.weight * values.view(buffer.dtype)
    return transit


def expected(near: Edges, arrive: list[int], t: int) -> list[Incoming]:
    """Return the messages of round t to a rank that are not lost.

    Args:
      near: Messages of the rank.
      arrive: Round in which each received message arrives, or LOST.
      t: Number of the round.
    """
    received = zip(
        arrive, near.receive_links, near.sources, near.receive_weights, strict=True
    )
    return [
        Incoming(arrival, t, link, source, weight)
        for arrival, link, source, weight in received
        if arrival != LOST
    ]
