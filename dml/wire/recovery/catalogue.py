"""Copies and roles of all ranks, from which each rank computes the same transfers."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dml.types import BadInput, Comm

NONE = -1  # fills the rows of ranks with fewer copies or roles than others


class Unrecoverable(Exception):
    """Raised on all ranks if no save has a copy of every state."""


class Move(NamedTuple):
    """A transfer of the state of an owner between two ranks, which may be equal."""

    owner: int
    source: int
    dest: int


def catalogue(
    comm: Comm, numbers: Mapping[int, Sequence[int]], roles: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the copies of all ranks, PxCx2, and their roles, PxR; collective.

    A copy is its owner and its number. Cost: 2 all-reduces, of 2 words and of the words
    of the result.

    Args:
      comm: Communicator.
      numbers: Numbers of the copies of this rank, by owner.
      roles: Owners whose states this rank restores.
    """
    copies = [(owner, n) for owner, listed in numbers.items() for n in listed]
    counts = np.array([len(copies), len(roles)])
    comm.Allreduce(None, counts, np.maximum)
    most_copies, most_roles = counts.tolist()
    words_PxW = np.full((comm.size, 2 * most_copies + most_roles), NONE, np.int64)
    row = [word for copy in copies for word in copy]
    words_PxW[comm.rank, : len(row)] = row
    start = 2 * most_copies
    words_PxW[comm.rank, start : start + len(roles)] = roles
    comm.Allreduce(None, words_PxW, np.maximum)
    return words_PxW[:, :start].reshape(comm.size, -1, 2), words_PxW[:, start:]


def newest(copies_PxCx2: np.ndarray, roles_PxR: np.ndarray) -> tuple[int, list[Move]]:
    """Return the newest number with a copy for every role, and the transfers.

    A rank that restores a state from its own memory is its own source.
    """
    dests: dict[int, int] = {}
    for rank, roles in enumerate(roles_PxR.tolist()):
        for role in roles:
            if role != NONE and dests.setdefault(role, rank) != rank:
                raise BadInput(
                    f"expected one rank for each role, got ranks {dests[role]} and "
                    f"{rank} for role {role}; correct the roles"
                )
    holders: dict[tuple[int, int], list[int]] = {}  # by number and owner
    for rank, copies in enumerate(copies_PxCx2.tolist()):
        for owner, number in copies:
            if owner != NONE:
                holders.setdefault((number, owner), []).append(rank)
    numbers = sorted({number for number, _ in holders}, reverse=True)
    for number in numbers:
        if all((number, owner) in holders for owner in dests):
            moves = []
            for owner, dest in sorted(dests.items()):
                ranks = holders[number, owner]
                moves.append(Move(owner, dest if dest in ranks else ranks[0], dest))
            return number, moves
    lost = [owner for owner in sorted(dests) if all(key[1] != owner for key in holders)]
    missing = f"no copy of the states of ranks {lost}" if lost else "none"
    raise Unrecoverable(
        f"expected a save with a copy of each of {len(dests)} states, got {missing} "
        f"in saves {numbers}; resume from a checkpoint on disk"
    )
