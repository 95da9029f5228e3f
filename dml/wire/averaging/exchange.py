"""The exchange of a round: messages that arrive in it, also those of earlier rounds.

round    0        1        2        A message is sent in the round in which it arrives.
sent     a──┐     b─────►           Until then its sender keeps it, in transit.
arrives     └───────────►
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from dml.types import BadInput, Comm
from dml.wire.comm.buffers import flat
from dml.wire.comm.tags import Tag


class Outgoing(NamedTuple):
    """A message that this rank sends, with the round in which it arrives."""

    arrival: int
    round: int
    link: int
    dest: int
    message: np.ndarray


class Incoming(NamedTuple):
    """A message that this rank receives, with the weight of its values."""

    arrival: int
    round: int
    link: int
    source: int
    weight: float


@dataclass
class Transit:
    """Messages of a rank that arrive later, in the order of rounds and links."""

    outgoing: list[Outgoing] = field(default_factory=list)
    incoming: list[Incoming] = field(default_factory=list)


def exchange(
    comm: Comm, transit: Transit, t: int, nbytes: int
) -> list[tuple[Incoming, np.ndarray]]:
    """Send and receive the messages that arrive in round t, and remove them.

    Args:
      comm: The ranks.
      transit: Messages of this rank; those of round t are already in it.
      t: Number of the round.
      nbytes: Bytes of a message.

    Returns:
      The received messages as bytes, ordered by the rounds and links of their sends.
    """
    due = [message for message in transit.incoming if message.arrival == t]
    sends = [message for message in transit.outgoing if message.arrival == t]
    # both ends order their messages by round and link, so that they match in order
    requests = [comm.Isend(one.message, one.dest, Tag.AVERAGING) for one in sends]
    received = [np.empty(nbytes, np.uint8) for _ in due]
    for one, message in zip(due, received, strict=True):
        requests.append(comm.Irecv(message, one.source, Tag.AVERAGING))
    comm.Waitall(requests)
    if len(due) < len(transit.incoming) or len(sends) < len(transit.outgoing):
        transit.incoming = [one for one in transit.incoming if one.arrival != t]
        transit.outgoing = [one for one in transit.outgoing if one.arrival != t]
    else:
        transit.incoming, transit.outgoing = [], []
    return list(zip(due, received, strict=True))


def floating(comm: Comm, buffer: np.ndarray) -> np.ndarray:
    """View a buffer of floating-point numbers as one vector, or raise BadInput."""
    buffer = flat(comm, buffer)
    if buffer.dtype.kind not in "fc":
        raise BadInput(
            f"rank {comm.rank}: expected floating-point numbers to average, got "
            f"{buffer.dtype}; pass buffer.astype(float)"
        )
    return buffer


def as_bytes(values: np.ndarray) -> np.ndarray:
    """View a vector as bytes."""
    return values.view(np.uint8)
