"""Push-sum: each rank sends shares of its value and of its weight, which it loses."""

from dataclasses import dataclass, field

import numpy as np

from dml.types import Comm
from dml.wire.averaging.exchange import Outgoing, Transit, exchange, floating
from dml.wire.averaging.gossip import expected
from dml.wire.comm.plain import as_comm
from dml.wire.plans.averaging.faults import LOST, NO_FAULTS, Faults
from dml.wire.plans.averaging.mixing import Topology, edge_arrivals, edges

HEAD = 8  # bytes of the weight, before the values of a message


@dataclass
class PushSum:
    """The weight of a rank, and its messages in transit."""

    weight: float = 1.0
    transit: Transit = field(default_factory=Transit)


def push_sum(
    comm: Comm,
    buffer: np.ndarray,
    topology: Topology,
    t: int,
    state: PushSum | None = None,
    faults: Faults = NO_FAULTS,
) -> PushSum:
    """Send shares of value and weight in round t; return the new weight.

        (x_j, w_j) ──share a_ij──►┐
                                  ├─► x_i ← (1 - Σ_k a_ki) x_i + Σ_j a_ij x_j
        (x_i, w_i) ──keeps rest──►┘   w_i likewise             estimate: x_i / w_i

    Each column of shares sums to 1, so Σx and Σw over all ranks and all messages in
    transit never change (Kempe 2003; Assran 2019). A rank keeps a share that is not
    acknowledged: one that is lost, or sent to an absent rank.
    With d neighbours: 1 round, d(n + 1) words per rank: d(α + nβ).

    Args:
      comm: The ranks.
      buffer: Floating-point values x of any length, equal on all ranks.
      topology: Neighbours and shares.
      t: Number of the round.
      state: Weight, as returned by round t - 1; None in round 0, for a weight of 1.
      faults: Losses, delays and absences.
    """
    comm, buffer = as_comm(comm), floating(comm, buffer)
    state = PushSum() if state is None else state
    near = edges(topology, t, comm.rank)
    arrive, reach = edge_arrivals(topology, t, comm.rank, faults)
    kept, shares = 1.0, near.send_weights
    for arrival, link, dest, share in zip(
        reach, near.send_links, near.dests, shares, strict=True
    ):
        if arrival != LOST:
            kept -= share
            message = packed(share * state.weight, share * buffer)
            state.transit.outgoing.append(Outgoing(arrival, t, link, dest, message))
    buffer *= kept
    state.weight *= kept
    state.transit.incoming += expected(near, arrive, t)
    for _, message in exchange(comm, state.transit, t, HEAD + buffer.nbytes):
        weight, values = unpacked(message, buffer.dtype)
        state.weight += weight
        buffer += values
    return state


def estimate(buffer: np.ndarray, state: PushSum) -> np.ndarray:
    """Return the rank's estimate of the mean, x / w."""
    return buffer / state.weight


def mass(buffer: np.ndarray, state: PushSum) -> tuple[np.ndarray, float]:
    """Return x and w of a rank, with its messages in transit.

    The sums over all ranks are constant. Messages in transit are with their senders.
    """
    values, weight = buffer.copy(), state.weight
    for message in state.transit.outgoing:
        share, part = unpacked(message.message, buffer.dtype)
        weight += share
        values += part.reshape(values.shape)
    return values, weight


def packed(weight: float, values: np.ndarray) -> np.ndarray:
    """Return a message: the weight in double precision, then the values."""
    message = np.empty(HEAD + values.nbytes, np.uint8)
    message[:HEAD].view(np.float64)[0] = weight
    message[HEAD:].view(values.dtype)[:] = values
    return message


def unpacked(message: np.ndarray, dtype: np.dtype) -> tuple[float, np.ndarray]:
    """Return the weight and the values of a message."""
    return float(message[:HEAD].view(np.float64)[0]), message[HEAD:].view(dtype)
