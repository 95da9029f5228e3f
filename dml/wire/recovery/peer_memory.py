"""Checkpoints in the memory of other ranks, for states that differ between ranks.

A save copies the state of each rank, such as a shard of an optimizer or the memory of a
reducer, to the other ranks of its placement. After ranks have died, the ranks of a new
communicator restore the newest state of which a copy of every rank exists. Wang 2023,
Gemini: Fast Failure Recovery in Distributed Training with In-Memory Checkpoints.
"""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from dml.types import Comm
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.plans.placement import Placement
from dml.wire.recovery.catalogue import catalogue, newest
from dml.wire.recovery.packing import pack, unpack

Message = tuple[np.ndarray, int]  # buffer and rank
SLOTS = 2  # copies of each owner: a failure during a save leaves the previous one


class Copy(NamedTuple):
    """A complete copy: number of the state, and its packed arrays."""

    number: int
    buffer: np.ndarray


class PeerMemory:
    """Copies of the states of this rank and of other ranks, by owner.

    Owners are numbered by their ranks in the communicator of the save. If ranks get
    other numbers, as after a shrink without new ranks, use a new memory, and keep the
    earlier one until the first save has ended. A new rank has an empty memory. Ranks
    must not be more than one save apart; a sum of gradients between two saves
    synchronises them.
    """

    def __init__(self) -> None:
        self._copies: dict[int, list[Copy]] = {}  # at most SLOTS, the oldest first

    @property
    def numbers(self) -> dict[int, list[int]]:
        """Numbers of the complete copies by owner, the oldest first."""
        return {
            owner: [copy.number for copy in copies]
            for owner, copies in self._copies.items()
        }

    def save(
        self,
        comm: Comm,
        placement: Placement,
        number: int,
        arrays: Sequence[np.ndarray],
    ) -> None:
        """Copy the state of this rank to the ranks of its placement; collective.

            rank 0 ⇄ rank 1     rank 2 ⇄ rank 3     groups of 2: each rank sends
            0, 1     0, 1       2, 3     2, 3       its state to 1 rank

        If a rank fails during the save, the copies of the previous save are complete.

        Args:
          comm: Communicator.
          placement: Placement of its ranks.
          number: Number of the state, which increases.
          arrays: State of this rank; dtypes and shapes may differ between ranks.

        Cost: 2 rounds, of sizes and of states of n words. A rank sends and receives
        (m-1)n words, and stores 2m states.
        """
        comm = as_comm(comm)
        rank = comm.rank
        dests = [holder for holder in placement.holders(rank) if holder != rank]
        owners = [owner for owner in placement.owners(rank) if owner != rank]
        state = pack(arrays, partial(self._allocate, rank))
        size = np.array([state.nbytes])
        sizes = [np.zeros(1, np.int64) for _ in owners]
        exchange(
            comm,
            [(size, dest) for dest in dests],
            list(zip(sizes, owners, strict=True)),
        )
        buffers = [
            self._allocate(owner, int(size[0]))
            for owner, size in zip(owners, sizes, strict=True)
        ]
        received = list(zip(buffers, owners, strict=True))
        exchange(comm, [(state, dest) for dest in dests], received)
        for buffer, owner in [(state, rank), *received]:
            self._copies.setdefault(owner, []).append(Copy(number, buffer))

    def restore(
        self, comm: Comm, roles: Sequence[int]
    ) -> tuple[int, dict[int, list[np.ndarray]]]:
        """Return the number and the states of the newest complete save; collective.

            before: rank 0 ⇄ rank 1      1 dies      after: rank 0 → rank 1, which is
                    0, 1     0, 1                           0, 1     new and has role 1

        Raises `Unrecoverable` on all ranks if no save has a copy of every role. Later
        copies are deleted. Save again afterwards: the number of copies may be less.

        Args:
          comm: Communicator of surviving and new ranks.
          roles: Owners whose states this rank restores: for a surviving rank its own,
            for a new rank that of a dead one. No two ranks have the same role; an owner
            without a role is not restored.

        Cost: 2 all-reduces, of 2 and of at most (4m+r)p words for r roles, and 2 rounds
        of sizes and states: n words for each role that is not in the memory of its
        rank.
        """
        comm = as_comm(comm)
        copies_PxCx2, roles_PxR = catalogue(comm, self.numbers, roles)
        number, moves = newest(copies_PxCx2, roles_PxR)
        self._copies = {
            owner: [copy for copy in copies if copy.number <= number]
            for owner, copies in self._copies.items()
        }
        rank = comm.rank
        sends = [
            (self._buffer(move.owner, number), move.dest)
            for move in moves
            if move.source == rank != move.dest
        ]
        received = [move for move in moves if move.dest == rank != move.source]
        sizes = [np.zeros(1, np.int64) for _ in received]
        sources = [move.source for move in received]
        exchange(
            comm,
            [(np.array([buffer.nbytes]), dest) for buffer, dest in sends],
            list(zip(sizes, sources, strict=True)),
        )
        buffers = [np.empty(int(size[0]), np.uint8) for size in sizes]
        exchange(comm, sends, list(zip(buffers, sources, strict=True)))
        for move, buffer in zip(received, buffers, strict=True):
            self._copies[move.owner] = [Copy(number, buffer)]
        return number, {role: unpack(self._buffer(role, number)) for role in roles}

    def _allocate(self, owner: int, nbytes: int) -> np.ndarray:
        """Return a buffer for a copy: that of the oldest copy, if there are two."""
        copies = self._copies.get(owner, [])
        if len(copies) == SLOTS:
            buffer = copies.pop(0).buffer
            if buffer.nbytes == nbytes:
                return buffer
        return np.empty(nbytes, np.uint8)

    def _buffer(self, owner: int, number: int) -> np.ndarray:
        copies = self._copies[owner]
        return next(copy.buffer for copy in copies if copy.number == number)


def exchange(comm: Comm, sends: Sequence[Message], receives: Sequence[Message]) -> None:
    """Send and receive messages at the same time.

    Args:
      comm: Communicator.
      sends: Buffers and the ranks to which they are sent.
      receives: Buffers and the ranks from which they are received. Messages between two
        ranks arrive in the order in which they are sent.
    """
    requests = [comm.Irecv(buffer, source, Tag.COPIES) for buffer, source in receives]
    requests += [comm.Isend(buffer, dest, Tag.COPIES) for buffer, dest in sends]
    try:
        comm.Waitall(requests)
    except BaseException:
        # messages of living ranks may still arrive in the buffers
        comm.cache.abandoned.append((requests, sends, receives))
        raise
