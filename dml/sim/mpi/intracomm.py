"""Intracommunicators: those made from others, and calls that survive failures."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

from dml.sim.mpi import topologies
from dml.sim.mpi.channel import Call
from dml.sim.mpi.collectives import BLOCKING
from dml.sim.mpi.communicators import BaseComm, CommObject, own_comm
from dml.sim.mpi.constants import CONSTANTS, error
from dml.sim.mpi.exchanges import barrier_dissemination
from dml.sim.mpi.groups import Group
from dml.sim.mpi.handles import name_handle
from dml.sim.mpi.info import Info
from dml.sim.mpi.matched import MatchedMessages
from dml.sim.mpi.methods import add_methods, start
from dml.sim.mpi.objects import ObjectCollectives
from dml.sim.mpi.requests import Pending, Request
from dml.types import SHARED, UNDEFINED


class Comm(MatchedMessages, ObjectCollectives):
    """A communicator of mpi4py."""

    exact: ClassVar[Any] = None  # class whose instances a constructor accepts

    def __new__(cls, other: Any = None, *arguments: Any, **options: Any) -> Self:
        if cls.exact and other is not None and not isinstance(other, cls.exact):
            raise TypeError(f"expected a {cls.__name__}, got a {type(other).__name__}")
        return super().__new__(cls, other)

    @classmethod
    def fromhandle(cls, handle: int) -> Any:
        found = super().fromhandle(handle)
        kind = getattr(found.held, "type", None)
        return kind.of(found.held) if kind is not None else found

    # Communicators of the same ranks.

    def child(self, key: Any, ranks: Sequence[int], kind: Any = None) -> Any:
        """Return a communicator of some ranks of this one, without messages.

        The first rank that calls it with a key makes the group.
        """
        held = self.held
        shared = held.comm.shared
        waiting = shared.results
        if key not in waiting:
            processes = [held.comm.peers[rank].process for rank in ranks]
            group = type(held.comm).group(processes)
            shared.children.append(group)
            waiting[key] = group, [len(ranks)]
        group, left = waiting[key]
        left[0] -= 1
        if not left[0]:
            del waiting[key]
        made = CommObject(group[[*ranks].index(held.rank)], held.owner)
        made.type = kind or Intracomm
        return made.type.of(made)

    def next_key(self, what: Any) -> tuple[Any, int]:
        """Return a key with the number of its earlier uses on this rank."""
        counts = self.held.__dict__.setdefault("counts", {})
        counts[what] = counts.get(what, 0) + 1
        return what, counts[what]

    def made_together(self, what: str, ranks: Sequence[int], kind: Any = None) -> Any:
        """Return a communicator of ranks that all make it now."""
        made = self.child(self.next_key((what, tuple(ranks))), ranks, kind)
        made.held.collective(Call["Create"], barrier_dissemination)
        return made

    def Dup(self, info: Info | None = None) -> Any:
        made = self.made_together("Dup", range(self.Get_size()), type(self))
        self.inherit(made, info)
        return made

    def inherit(self, made: Any, info: Info | None) -> None:
        """Copy attributes, topology and info to a duplicate."""
        made.held.topology = self.held.topology
        made.held.errhandler = self.held.errhandler
        made.held.info = dict(self.held.info if not info else info.items())
        self.copy_attributes(made)

    Clone = Dup

    def Dup_with_info(self, info: Info) -> Any:
        return self.Dup(info)

    def Idup(self, info: Info | None = None) -> tuple[Any, Request]:
        """Return a duplicate and the request of its creation."""
        ranks = range(self.Get_size())
        made = self.child(self.next_key(("Idup", tuple(ranks))), ranks, type(self))
        self.inherit(made, info)
        virtual = start(made.held, "Idup", Call["Dup"], barrier_dissemination)
        return made, Request.of(Pending(virtual, "Idup", receives=False))

    def Idup_with_info(self, info: Info) -> tuple[Any, Request]:
        return self.Idup(info)

    # Communicators of some ranks.

    def Split(self, color: int = 0, key: int = 0) -> Any:
        held = self.need("Comm.Split")
        return self.split(held, color, key)

    def split(self, held: CommObject, color: int, key: int, kind: Any = None) -> Any:
        if color != UNDEFINED and color < 0:
            raise error(
                "ERR_ARG", f"Split: expected a color of at least 0, got {color}"
            )
        found = held.comm.Split(color, key)
        if not isinstance(found, type(held.comm)):
            return COMM_NULL
        made = CommObject(found, held.owner)
        made.type = kind or Intracomm
        return made.type.of(made)

    def Split_type(
        self, split_type: int, key: int = 0, info: Info | None = None
    ) -> Any:
        """Split by host, for COMM_TYPE_SHARED; other types give COMM_NULL."""
        held = self.need("Comm.Split_type")
        resource = info.Get("mpi_hw_resource_type") if info else None
        host = split_type == SHARED or (
            split_type != UNDEFINED and resource == "mpi_shared_memory"
        )
        known = {CONSTANTS[f"COMM_TYPE_{name}"] for name in TYPES} | {UNDEFINED}
        if split_type not in known:
            raise error(
                "ERR_ARG", f"Split_type: expected COMM_TYPE_SHARED, got {split_type}"
            )
        color = held.comm.hosts()[held.rank] if host else UNDEFINED
        return self.split(held, color, key)

    def Create(self, group: Group) -> Any:
        """Return a communicator of a group; collective over this communicator."""
        held = self.need("Comm.Create")
        places = self.places(group)
        key = places.index(held.rank) if held.rank in places else 0
        color = min(places) if held.rank in places else UNDEFINED
        return self.split(held, color, key)

    def places(self, group: Group) -> list[int]:
        held = self.held
        mine = {peer.process.rank: k for k, peer in enumerate(held.comm.peers)}
        try:
            return [mine[rank] for rank in group.need("Comm.Create").ranks]
        except KeyError:
            raise error(
                "ERR_GROUP", "Comm.Create: expected a group of this communicator"
            ) from None

    def Create_group(self, group: Group, tag: int = 0) -> Any:
        """Return a communicator of a group; collective over the group."""
        held = self.need("Comm.Create_group")
        ranks = self.places(group)
        if held.rank not in ranks:
            return COMM_NULL
        return self.made_together(f"group {tag}", ranks)

    # Failures, as in ULFM.

    def Revoke(self) -> None:
        self.need("Comm.Revoke").comm.Revoke()

    def Is_revoked(self) -> bool:
        return self.need("Comm.Is_revoked").comm.Is_revoked()

    def Agree(self, flag: int) -> int:
        return self.need("Comm.Agree").comm.Agree(flag)

    def Shrink(self) -> Any:
        held = self.need("Comm.Shrink")
        made = CommObject(held.comm.Shrink(), held.owner)
        made.type = Intracomm
        return Intracomm.of(made)

    def Get_failed(self) -> Group:
        held = self.need("Comm.Get_failed")
        failed = held.comm.Get_failed()
        return Group.of_processes([held.comm.peers[k].process.rank for k in failed])

    def Ack_failed(self, num_to_ack: int | None = None) -> int:
        held = self.need("Comm.Ack_failed")
        if num_to_ack != 0:
            held.comm.Ack_failed()
        return len(held.comm.acknowledged or ())


COMM_NULL = name_handle("COMM_NULL", Comm.of(None))
KINDS: dict[str, Any] = {}  # classes of communicators with topologies, by name
TYPES = ("SHARED", "HW_GUIDED", "HW_UNGUIDED", "RESOURCE_GUIDED")
SCANS = ("Scan", "Exscan")
add_methods(Comm, {name: f for name, f in BLOCKING.items() if name not in SCANS})


class Intracomm(Comm):
    """A communicator of one group."""

    @classmethod
    def Create_from_group(cls, group: Group, *arguments: Any, **options: Any) -> Any:
        return own_comm("COMM_WORLD").Create_group(group)

    # Topologies.

    def placed(self, call: str, topology: Any, count: int, kind: Any) -> Any:
        """Return a communicator of the first `count` ranks with a topology."""
        held = self.need(f"Intracomm.{call}")
        made = self.split(held, 0 if held.rank < count else UNDEFINED, 0, kind)
        if made:
            made.held.topology = topology
        return made

    def Create_cart(
        self, dims: Sequence[int], periods: Any = None, reorder: bool = False
    ) -> Any:
        topology = topologies.cart(self.Get_size(), dims, periods)
        count = topologies.prod(topology.dims)
        return self.placed("Create_cart", topology, count, KINDS["Cartcomm"])

    def Create_graph(
        self, index: Sequence[int], edges: Sequence[int], reorder: bool = False
    ) -> Any:
        topology = topologies.graph(self.Get_size(), index, edges)
        count = len(topology.index)
        return self.placed("Create_graph", topology, count, KINDS["Graphcomm"])

    def Cart_map(self, dims: Sequence[int], periods: Any = None) -> int:
        topology = topologies.cart(self.Get_size(), dims, periods)
        inside = self.Get_rank() < topologies.prod(topology.dims)
        return self.Get_rank() if inside else UNDEFINED

    def Graph_map(self, index: Sequence[int], edges: Sequence[int]) -> int:
        topology = topologies.graph(self.Get_size(), index, edges)
        inside = self.Get_rank() < len(topology.index)
        return self.Get_rank() if inside else UNDEFINED


Comm.root = Comm
BaseComm.intracomm = Intracomm
add_methods(Intracomm, {name: BLOCKING[name] for name in SCANS})
