"""Broadcasts from rank 0 as data: rounds in which ranks send pieces of a buffer.

In reverse order, with senders and receivers exchanged, the rounds of a broadcast are a
reduction onto rank 0.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dml.types import Round
from dml.wire.plans.schedules import chunk_bytes, step


class Sends(NamedTuple):
    """A round: source[k] sends adjacent pieces to dest[k]."""

    source: np.ndarray
    dest: np.ndarray
    first: np.ndarray  # first piece
    number: np.ndarray  # number of pieces
    adds: bool = True  # whether the receiver adds in the reverse; else it copies


class Broadcast(NamedTuple):
    """A broadcast for any number of ranks.

    Attributes:
      plan: (number of ranks, of pieces) -> rounds.
      pieces: (number of ranks, elements, most elements of a piece) -> number of pieces.
    """

    plan: Callable[[int, int], tuple[Sends, ...]]
    pieces: Callable[[int, int, int], int]


class Turn(NamedTuple):
    """A round of one rank; no peer is None."""

    dest: int | None
    source: int | None
    sent: slice  # pieces
    received: slice
    adds: bool


@lru_cache(maxsize=64)
def turns(broadcast: Broadcast, size: int, pieces: int) -> list[list[Turn]]:
    """Return the rounds in which each rank sends or receives."""
    found: list[list[Turn]] = [[] for _ in range(size)]
    for source, dest, first, count, adds in broadcast.plan(size, pieces):
        idle = Turn(None, None, slice(0, 0), slice(0, 0), adds)
        turn: dict[int, Turn] = {}
        numbers = (each.tolist() for each in (source, dest, first, first + count))
        for sender, receiver, start, stop in zip(*numbers, strict=True):
            part = slice(start, stop)
            own, peer = turn.get(sender, idle), turn.get(receiver, idle)
            turn[sender] = own._replace(dest=receiver, sent=part)
            turn[receiver] = peer._replace(source=sender, received=part)
        for rank, one in turn.items():
            found[rank].append(one)
    return found


def broadcast_rounds(
    broadcast: Broadcast, size: int, length: int, itemsize: int = 4, segment: int = 1
) -> Iterator[Round]:
    """Yield the rounds of messages; arguments as in `plans.schedules`."""
    pieces = broadcast.pieces(size, length, step(itemsize, segment) // itemsize)
    edges = np.concatenate([[0], np.cumsum(chunk_bytes(length, pieces, itemsize))])
    for source, dest, first, count, _ in broadcast.plan(size, pieces):
        yield Round(source, dest, edges[first + count] - edges[first], False)


def reduce_rounds(
    broadcast: Broadcast, size: int, length: int, itemsize: int = 4, segment: int = 1
) -> Iterator[Round]:
    """Yield the rounds of the reduction."""
    segment = step(itemsize, segment)
    pieces = broadcast.pieces(size, length, segment // itemsize)
    rounds = list(broadcast_rounds(broadcast, size, length, itemsize, segment))
    plan = broadcast.plan(size, pieces)
    for entry, sends in reversed(list(zip(rounds, plan, strict=True))):
        how = (True, segment) if sends.adds else (False, 0)
        yield Round(entry.dest, entry.source, entry.nbytes, *how)
