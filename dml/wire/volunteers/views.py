"""The peers that a peer knows: entries with the round in which each was last heard.

a knows b          HELLO of a: a, b           Entries travel with every HELLO and
c knows b    ──►   REPLY of b: a, b, c  ──►   REPLY, so a newcomer needs to know one
                   a and c know each other    other peer only.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

UNHEARD = -1  # beat of a peer that is known by its id only


class Entry(NamedTuple):
    """An entry of a view: the declarations of a peer.

    Attributes:
      beat: Latest round in which the peer was heard, by any peer.
      priority: Peers with a lower number lead first; declared by the peer.
      bandwidth: Bytes per second, declared by the peer; 0 of a client, which neither
        leads a group nor reduces a part.
    """

    beat: int = UNHEARD
    priority: int = 0
    bandwidth: float = 1.0


View = dict[int, Entry]


def merge(view: View, entries: np.ndarray, size: int) -> None:
    """Add entries to a view; the later beat replaces the earlier one.

    Args:
      view: The view, changed in place.
      entries: Array of `messages.ENTRY`.
      size: Number of ranks; entries of other ids are dropped.
    """
    for peer, beat, priority, bandwidth in entries.tolist():
        if 0 <= peer < size and (peer not in view or view[peer].beat < beat):
            view[peer] = Entry(beat, priority, bandwidth)


def sample(view: View, most: int) -> Iterable[tuple]:
    """Return at most `most` entries as tuples, those with the latest beats."""
    latest = sorted(view.items(), key=lambda item: (-item[1].beat, item[0]))
    return ((peer, *entry) for peer, entry in latest[:most])


def expected(view: View, absent: dict[int, int]) -> set[int]:
    """Return the peers that may enter a round.

    Args:
      view: The view.
      absent: Beats of peers in whose last round they were expected and not heard. They
        are expected again when any peer has heard them since.
    """
    return {
        peer
        for peer, entry in view.items()
        if peer not in absent or entry.beat > absent[peer]
    }
