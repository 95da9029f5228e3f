"""The view of a peer: known peers, and the latest round in which each was active.

a knows b          HELLO of a: a, b           Entries travel with every HELLO and
c knows b    ──►   REPLY of b: a, b, c  ──►   REPLY, so that a newcomer needs the id
                   a and c know each other    of one other peer only.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

UNKNOWN = -1  # beat of a peer from which no message has arrived


class Entry(NamedTuple):
    """An entry of a view.

    Attributes:
      beat: Latest round of a message of the peer to any peer.
      priority: Priority that the peer declares; a lower number leads first.
      bandwidth: Bytes per second that the peer declares; 0 of a client, which neither
        leads a group nor reduces a part.
    """

    beat: int = UNKNOWN
    priority: int = 0
    bandwidth: float = 1.0


View = dict[int, Entry]


def merge(view: View, entries: np.ndarray) -> None:
    """Add an array of `messages.ENTRY`; of each peer, the latest beat is stored."""
    for peer, beat, priority, bandwidth in entries.tolist():
        if peer not in view or view[peer].beat < beat:
            view[peer] = Entry(beat, priority, bandwidth)


def latest(view: View, count: int) -> Iterable[tuple]:
    """Return the `count` entries with the latest beats as tuples."""
    ordered = sorted(view.items(), key=lambda item: (-item[1].beat, item[0]))
    return ((peer, *entry) for peer, entry in ordered[:count])


def expected(view: View, absent: dict[int, int]) -> set[int]:
    """Return the peers that may enter a round.

    Args:
      view: The view.
      absent: Beat of each peer that was expected in a round and sent no message. The
        peer is expected again after its beat in the view has increased.
    """
    return {
        peer
        for peer, entry in view.items()
        if peer not in absent or entry.beat > absent[peer]
    }
