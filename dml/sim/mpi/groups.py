"""Groups: ordered sets of ranks of the world."""

from collections.abc import Sequence
from typing import Any

from dml.sim.mpi.constants import CONSTANTS, error
from dml.sim.mpi.handles import NAMED, Handle, name_handle
from dml.sim.mpi.ranks import CURRENT
from dml.types import PROC_NULL, UNDEFINED


class GroupObject:
    """The object of a group: its world ranks in order."""

    def __init__(self, ranks: Sequence[int]):
        self.ranks = tuple(ranks)


class Group(Handle):
    """A group of mpi4py."""

    null_error = "ERR_GROUP"

    @classmethod
    def of_processes(cls, ranks: Sequence[int]) -> "Group":
        return Group.of(GroupObject(ranks) if ranks else NAMED["GROUP_EMPTY"].held)

    def Get_size(self) -> int:
        return len(self.need("Group.Get_size").ranks)

    def Get_rank(self) -> int:
        ranks = self.need("Group.Get_rank").ranks
        rank = CURRENT.get(None)
        own = rank.process.rank if rank is not None else -1
        return ranks.index(own) if own in ranks else UNDEFINED

    size = property(Get_size)
    rank = property(Get_rank)

    def Translate_ranks(self, ranks: Any = None, group: "Group | None" = None) -> list:
        """Return the ranks in another group, or in the world.

        UNDEFINED stands where the other group lacks a rank.
        """
        mine = self.need("Group.Translate_ranks").ranks
        place = {rank: rank for rank in mine}
        if group is not None:
            theirs = group.need("Group.Translate_ranks").ranks
            place = {rank: k for k, rank in enumerate(theirs)}
        chosen = range(len(mine)) if ranks is None else ranks
        return [
            PROC_NULL if k == PROC_NULL else place.get(mine[valid(k, mine)], UNDEFINED)
            for k in chosen
        ]

    def Compare(self, other: "Group") -> int:
        mine, theirs = self.need("Group.Compare"), other.need("Group.Compare")
        if mine.ranks == theirs.ranks:
            return CONSTANTS["IDENT"]
        same = sorted(mine.ranks) == sorted(theirs.ranks)
        return CONSTANTS["SIMILAR" if same else "UNEQUAL"]

    def Dup(self) -> "Group":
        return Group.of_processes(self.need("Group.Dup").ranks)

    @classmethod
    def Union(cls, group1: "Group", group2: "Group") -> "Group":
        one, two = group1.need("Group.Union").ranks, group2.need("Group.Union").ranks
        return cls.of_processes([*one, *(rank for rank in two if rank not in one)])

    @classmethod
    def Intersection(cls, group1: "Group", group2: "Group") -> "Group":
        one = group1.need("Group.Intersection").ranks
        two = set(group2.need("Group.Intersection").ranks)
        return cls.of_processes([rank for rank in one if rank in two])

    Intersect = Intersection

    @classmethod
    def Difference(cls, group1: "Group", group2: "Group") -> "Group":
        one = group1.need("Group.Difference").ranks
        two = set(group2.need("Group.Difference").ranks)
        return cls.of_processes([rank for rank in one if rank not in two])

    def Incl(self, ranks: Sequence[int]) -> "Group":
        mine = self.need("Group.Incl").ranks
        return self.of_processes([mine[valid(k, mine)] for k in ranks])

    def Excl(self, ranks: Sequence[int]) -> "Group":
        mine = self.need("Group.Excl").ranks
        out = {valid(k, mine) for k in ranks}
        return self.of_processes([rank for k, rank in enumerate(mine) if k not in out])

    def Range_incl(self, ranks: Sequence[tuple[int, int, int]]) -> "Group":
        return self.Incl(expanded(ranks))

    def Range_excl(self, ranks: Sequence[tuple[int, int, int]]) -> "Group":
        return self.Excl(expanded(ranks))


Group.root = Group
name_handle("GROUP_NULL", Group.of(None))
name_handle("GROUP_EMPTY", Group.of(GroupObject(())))


def valid(k: int, ranks: Sequence[int]) -> int:
    if not 0 <= k < len(ranks):
        raise error(
            "ERR_RANK", f"Group: expected a rank from 0 to {len(ranks) - 1}, got {k}"
        )
    return k


def expanded(ranges: Sequence[tuple[int, int, int]]) -> list[int]:
    """Return the ranks of (first, last, step) with the last included."""
    found: list[int] = []
    for first, last, step in ranges:
        found += range(first, last + (1 if step > 0 else -1), step)
    return found
