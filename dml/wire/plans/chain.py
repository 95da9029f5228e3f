"""The order of a server's replicas in a chain, and which of them take part.

    members    r0 ─► r1 ─► r2 │ r3  r4        3 replicas and 2 spares
    r1 dies    r0 ─► r2 ─► r3 │ r4            the first spare becomes the tail

The chain is a function of the set of dead ranks, so that all ranks that know the same
deaths know the same chain, without messages.
"""

from collections.abc import Collection
from typing import NamedTuple


class Chain(NamedTuple):
    """The replicas and spares of one server.

    Attributes:
      members: Ranks in the order of the chain; the last ones are spares.
      replicas: Number of ranks in the chain while enough members live.
    """

    members: tuple[int, ...]
    replicas: int

    def living(self, failed: Collection[int]) -> tuple[int, ...]:
        """Return the ranks of the chain, from head to tail."""
        living = [rank for rank in self.members if rank not in failed]
        return tuple(living[: self.replicas])

    def head(self, failed: Collection[int]) -> int | None:
        """Return the rank to which workers send; None if all members are dead."""
        return next(iter(self.living(failed)), None)

    def is_tail(self, rank: int, failed: Collection[int]) -> bool:
        """Return whether this rank answers the workers."""
        return self.living(failed)[-1:] == (rank,)

    def predecessor(self, rank: int, failed: Collection[int]) -> int | None:
        """Return the rank before this one; None for the head and for a spare."""
        living = self.living(failed)
        place = living.index(rank) if rank in living else 0
        return living[place - 1] if place else None

    def successor(self, rank: int, failed: Collection[int]) -> int | None:
        """Return the rank after this one; None for the tail and for a spare."""
        living = self.living(failed)
        place = living.index(rank) + 1 if rank in living else len(living)
        return living[place] if place < len(living) else None

    def is_spare(self, rank: int) -> bool:
        """Return whether a rank has no rows at the start."""
        return rank not in self.members[: self.replicas]


def chains(first: int, servers: int, replicas: int, spares: int) -> list[Chain]:
    """Return the chains of all servers, on consecutive ranks.

    Args:
      first: Lowest rank of a server.
      servers: Number of servers.
      replicas: Number of replicas of each.
      spares: Number of spares of each.
    """
    size = replicas + spares
    starts = range(first, first + servers * size, size)
    return [Chain(tuple(range(start, start + size)), replicas) for start in starts]
