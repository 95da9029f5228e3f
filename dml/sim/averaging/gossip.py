"""Gossip and push-sum evaluated for all ranks at once, with the faults of a run."""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dml.wire.plans.averaging.faults import LOST, NO_FAULTS, Faults, arrivals
from dml.wire.plans.averaging.mixing import Messages, Topology, messages


class Late(NamedTuple):
    """Messages of one link of a round that arrive in later rounds.

    Attributes:
      arrival: Round in which each message arrives.
      dest: Receiver of each message.
      weight: Weight of each message.
      values: Values of each message: one row for gossip, x and w for push-sum.
    """

    arrival: np.ndarray
    dest: np.ndarray
    weight: np.ndarray
    values: np.ndarray


@dataclass
class PushSums:
    """The weights of all ranks, and the messages in transit."""

    weights: np.ndarray
    transit: list[Late] = field(default_factory=list)


def gossip(
    values: np.ndarray,
    topology: Topology,
    t: int,
    state: list[Late] | None = None,
    faults: Faults = NO_FAULTS,
) -> list[Late]:
    """Average in place in round t; return the messages in transit.

    Args:
      values: Value of every rank.
      topology: Neighbours and weights.
      t: Number of the round.
      state: Messages in transit; None in round 0.
      faults: Losses, delays and absences.
    """
    transit, before = state or [], values.copy()
    on_time, late = sent(before[None], topology, t, faults)
    own = np.ones(topology.size)
    for _, dest, weight in on_time:
        own[dest] -= weight
    values *= own
    for source, dest, weight in on_time:
        values[dest] += weight * before[source]
    for one in transit:
        due = one.arrival == t
        dest, weight = one.dest[due], one.weight[due]
        values[dest] *= 1 - weight
        values[dest] += weight * one.values[0, due]
    return remaining(transit + late, t)


def push_sum(
    values: np.ndarray,
    topology: Topology,
    t: int,
    state: PushSums | None = None,
    faults: Faults = NO_FAULTS,
) -> PushSums:
    """Send shares of values and weights in round t; return weights and transit.

    Args:
      values: Value x of every rank.
      topology: Neighbours and shares.
      t: Number of the round.
      state: Weights and messages in transit; None in round 0, for weights of 1.
      faults: Losses, delays and absences.
    """
    state = PushSums(np.ones(topology.size)) if state is None else state
    both, before = (values, state.weights), np.array([values, state.weights])
    on_time, late = sent(before, topology, t, faults)
    kept = np.ones(topology.size)
    for source, _, share in on_time:
        kept[source] -= share
    for source, share in late_shares(topology, t, faults):
        kept[source] -= share
    for row, now in zip(before, both, strict=True):
        now *= kept
        for one in state.transit:
            due = one.arrival == t
            part = one.values[0 if now is values else 1, due]
            now[one.dest[due]] += one.weight[due] * part
        for source, dest, share in on_time:
            now[dest] += share * row[source]
    state.transit = remaining(state.transit + late, t)
    return state


def late_shares(
    topology: Topology, t: int, faults: Faults
) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the senders and the shares of the messages of round t that are late."""
    if not faults.delay:
        return []
    shares = []
    for source, dest, weight in messages(topology, t):
        late = arrivals(faults, t, source, dest) > t
        shares.append((source[late], weight[late]))
    return shares


def sent(
    before: np.ndarray, topology: Topology, t: int, faults: Faults
) -> tuple[list[Messages], list[Late]]:
    """Return the messages of round t that arrive in it, and those that arrive later.

    Args:
      before: Values before the round, one row for each number of a message.
      topology: The topology.
      t: Number of the round.
      faults: Losses, delays and absences.
    """
    if faults == NO_FAULTS:
        return list(messages(topology, t)), []
    on_time, late = [], []
    for source, dest, weight in messages(topology, t):
        arrival = arrivals(faults, t, source, dest)
        now = arrival == t
        on_time.append(Messages(source[now], dest[now], weight[now]))
        later = (arrival != t) & (arrival != LOST)
        if later.any():
            values = before[:, source[later]]
            late.append(Late(arrival[later], dest[later], weight[later], values))
    return on_time, late


def remaining(transit: list[Late], t: int) -> list[Late]:
    """Return the messages that arrive after round t."""
    return [one for one in transit if (one.arrival > t).any()]


def mass(values: np.ndarray, state: PushSums, t: int) -> tuple[float, float]:
    """Return Σx and Σw after round t, with the messages in transit."""
    total = np.array([values.sum(), state.weights.sum()])
    for one in state.transit:
        total += (one.weight * one.values * (one.arrival > t)).sum(1)
    return float(total[0]), float(total[1])
