"""Windows: memory of each rank that the others read and write.

An operation takes effect at its virtual time, after all operations at earlier times,
and takes α + mβ seconds. It is complete when its call returns.
"""

from typing import Any, ClassVar

import numpy as np

from dml.sim.mpi.attributes import Attributed
from dml.sim.mpi.channel import Call
from dml.sim.mpi.communicators import BaseComm, own_comm
from dml.sim.mpi.constants import CONSTANTS, error
from dml.sim.mpi.errors import Errhandled
from dml.sim.mpi.exchanges import barrier_dissemination
from dml.sim.mpi.groups import Group
from dml.sim.mpi.handles import NAMED, Handle, name_handle
from dml.sim.mpi.info import Info
from dml.sim.mpi.memory import ABSOLUTE, BOTTOM, buffer, memory_of
from dml.sim.mpi.messages import Block, simple, type_of
from dml.sim.mpi.operations import OPS
from dml.sim.mpi.reductions import reduction
from dml.sim.mpi.requests import Pending, Request
from dml.sim.mpi.window_objects import EXCLUSIVE, SHARED_LOCK, Memories, WinObject

SUM = OPS["SUM"]


class Win(Errhandled, Attributed, Handle):
    """A window of mpi4py."""

    null_error = "ERR_WIN"
    kind = "Win"
    ERRHANDLER: ClassVar[str] = "Win"
    held: WinObject

    # Creation; all of it is collective.

    @classmethod
    def made(cls, comm: Any, own: Any, unit: int, flavor: str) -> "Win":
        twin = comm.Dup()
        held = twin.held
        results = held.comm.shared.results
        memories = results.setdefault("window", Memories(held.size))
        if own is not None:
            memories.parts[held.rank] = np.asarray(memory_of(own, readonly=False)[0])
        memories.units[held.rank] = unit
        twin.held.collective(Call["Win"], barrier_dissemination)
        flavor_number = CONSTANTS[f"WIN_FLAVOR_{flavor}"]
        return cls.of(WinObject(twin, memories, flavor_number, own))

    @classmethod
    def Create(
        cls,
        memory: Any,
        disp_unit: int = 1,
        info: Info = NAMED["INFO_NULL"],
        comm: Any = None,
    ) -> "Win":
        own = None if memory is None or memory is BOTTOM else memory
        return cls.made(need(comm, "Win.Create"), own, disp_unit, "CREATE")

    @classmethod
    def Allocate(
        cls,
        size: int,
        disp_unit: int = 1,
        info: Info = NAMED["INFO_NULL"],
        comm: Any = None,
    ) -> "Win":
        own = buffer.allocate(size)
        return cls.made(need(comm, "Win.Allocate"), own, disp_unit, "ALLOCATE")

    @classmethod
    def Allocate_shared(
        cls,
        size: int,
        disp_unit: int = 1,
        info: Info = NAMED["INFO_NULL"],
        comm: Any = None,
    ) -> "Win":
        comm = need(comm, "Win.Allocate_shared")
        hosts = set(comm.held.comm.hosts())
        if len(hosts) > 1:
            raise error(
                "ERR_RMA_SHARED",
                f"Win.Allocate_shared: expected ranks on one host, got {len(hosts)} "
                "hosts; pass a communicator of Split_type(COMM_TYPE_SHARED)",
            )
        sizes = comm.allgather(size)
        whole = buffer.allocate(sum(sizes)) if comm.rank == 0 else None
        # the ranks of one process share an array: its object is passed, not copied
        shared = comm.held.comm.shared.results
        if whole is not None:
            shared["shared window"] = whole
        comm.Barrier()
        whole = shared["shared window"]
        first = sum(sizes[: comm.rank])
        return cls.made(comm, whole[first : first + size], disp_unit, "SHARED")

    @classmethod
    def Create_dynamic(cls, info: Info = NAMED["INFO_NULL"], comm: Any = None) -> "Win":
        return cls.made(need(comm, "Win.Create_dynamic"), None, 1, "DYNAMIC")

    def Attach(self, memory: Any) -> None:
        held = self.need("Win.Attach")
        held.memories.attached[held.rank].append(memory_of(memory, readonly=False)[0])

    def Detach(self, memory: Any) -> None:
        held = self.need("Win.Detach")
        address = memory_of(memory, readonly=True)[0].__array_interface__["data"][0]
        kept = held.memories.attached[held.rank]
        kept[:] = [one for one in kept if one.__array_interface__["data"][0] != address]

    def Free(self) -> None:
        held = self.need("Win.Free")
        self.delete_attributes()
        held.comm.held.collective(Call["Win"], barrier_dissemination)
        self.held = None  # type: ignore[assignment]

    # Attributes.

    def predefined_attributes(self) -> dict[int, Any]:
        held = self.held
        part = held.memories.parts[held.rank]
        base = part.__array_interface__["data"][0] if held.own is not None else 0
        values = {
            "WIN_BASE": base,
            "WIN_SIZE": len(part),
            "WIN_DISP_UNIT": held.memories.units[held.rank],
            "WIN_CREATE_FLAVOR": held.flavor,
            "WIN_MODEL": CONSTANTS["WIN_UNIFIED"],
        }
        return {CONSTANTS[name]: value for name, value in values.items()}

    @property
    def attrs(self) -> tuple[int, int, int]:
        names = ("WIN_BASE", "WIN_SIZE", "WIN_DISP_UNIT")
        return tuple(self.Get_attr(CONSTANTS[name]) for name in names)

    flavor = property(lambda self: self.Get_attr(CONSTANTS["WIN_CREATE_FLAVOR"]))
    model = property(lambda self: self.Get_attr(CONSTANTS["WIN_MODEL"]))

    def tomemory(self) -> buffer:
        held = self.need("Win.tomemory")
        if held.own is None:
            return buffer.fromaddress(0, 0)
        return held.memories.parts[held.rank].view(buffer)

    def Shared_query(self, rank: int) -> tuple[buffer, int]:
        held = self.need("Win.Shared_query")
        parts = held.memories.parts
        if rank == CONSTANTS["PROC_NULL"]:
            rank = next((k for k, part in enumerate(parts) if len(part)), 0)
        return parts[rank].view(buffer), held.memories.units[rank]

    def Get_group(self) -> Group:
        return self.need("Win.Get_group").comm.Get_group()

    group = property(Get_group)
    group_size = property(lambda self: self.need("Win").size)
    group_rank = property(lambda self: self.need("Win").rank)

    def Get_name(self) -> str:
        return "MPI_WIN_NULL" if self.held is None else self.held.name

    def Set_name(self, name: str) -> None:
        self.need("Win.Set_name").name = name

    name = property(Get_name, Set_name)

    def Get_info(self) -> Info:
        return Info.Create(self.need("Win.Get_info").info)

    def Set_info(self, info: Info) -> None:
        self.need("Win.Set_info").info.update(info.items())

    info = property(Get_info, Set_info)

    # Operations.

    def target(self, call: str, rank: int, target: Any, origin: Block) -> Block | None:
        """Return the block of the target; None for PROC_NULL."""
        held = self.need(f"Win.{call}")
        rank = held.comm.held.peer(f"Win.{call}", "target_rank", rank)
        if rank == CONSTANTS["PROC_NULL"]:
            return None
        place, number, layout = 0, origin.number, origin.layout
        if isinstance(target, list | tuple):
            place, *rest = target
            number = int(rest[0]) if rest and rest[0] is not None else number
            if len(rest) > 1 and rest[1] is not None:
                layout = type_layout(rest[1])
        elif target is not None:
            place = int(target)
        memory, start = held.memories.parts[rank], place * held.memories.units[rank]
        if held.flavor == CONSTANTS["WIN_FLAVOR_DYNAMIC"]:
            memory = ABSOLUTE
            self.check_attached(call, rank, start, origin.nbytes)
        try:
            return Block(memory, start, number, layout).check()
        except ValueError as reason:
            raise error("ERR_RMA_RANGE", f"Win.{call}: {reason}") from reason

    def check_attached(self, call: str, rank: int, start: int, nbytes: int) -> None:
        for one in self.held.memories.attached[rank]:
            first = one.__array_interface__["data"][0]
            if first <= start and start + nbytes <= first + len(one):
                return
        raise error("ERR_RMA_RANGE", f"Win.{call}: expected attached memory")

    def spend(self, nbytes: int) -> None:
        """Wait for all earlier events; then pass the time of an operation."""
        held = self.held
        owner, process = held.comm.held.owner, held.process
        process.order(process.clock)
        owner.messages += 1
        owner.nbytes += nbytes
        comm = held.comm.held.comm
        process.clock += comm.alpha + comm.beta * nbytes
        process.world.progress()

    def Put(self, origin: Any, target_rank: int, target: Any = None) -> None:
        block = simple(origin, True)
        into = self.target("Put", target_rank, target, block)
        if into is not None:
            self.equal("Put", block, into)
            self.spend(block.nbytes)
            into.unpack(block.pack())

    def Get(self, origin: Any, target_rank: int, target: Any = None) -> None:
        block = simple(origin, False)
        source = self.target("Get", target_rank, target, block)
        if source is not None:
            self.equal("Get", block, source)
            self.spend(block.nbytes)
            block.unpack(source.pack())

    def Accumulate(
        self, origin: Any, target_rank: int, target: Any = None, op: Any = SUM
    ) -> None:
        block = simple(origin, True)
        into = self.target("Accumulate", target_rank, target, block)
        if into is not None:
            self.equal("Accumulate", block, into)
            self.spend(block.nbytes)
            combine(origin, block, into, op)

    def Get_accumulate(
        self,
        origin: Any,
        result: Any,
        target_rank: int,
        target: Any = None,
        op: Any = SUM,
    ) -> None:
        block, kept = simple(origin, True), simple(result, False)
        no_op = op == OPS["NO_OP"]
        into = self.target(
            "Get_accumulate", target_rank, target, kept if no_op else block
        )
        if into is not None:
            self.spend(block.nbytes + kept.nbytes)
            kept.unpack(into.pack())
            if not no_op:
                combine(origin, block, into, op)

    def Fetch_and_op(
        self,
        origin: Any,
        result: Any,
        target_rank: int,
        target_disp: int = 0,
        op: Any = SUM,
    ) -> None:
        self.single("Fetch_and_op", simple(origin, True), simple(result, False))
        self.Get_accumulate(origin, result, target_rank, target_disp, op)

    def Compare_and_swap(
        self,
        origin: Any,
        compare: Any,
        result: Any,
        target_rank: int,
        target_disp: int = 0,
    ) -> None:
        block, wanted = simple(origin, True), simple(compare, True)
        kept = simple(result, False)
        self.single("Compare_and_swap", block, wanted, kept)
        into = self.target("Compare_and_swap", target_rank, target_disp, block)
        if into is not None:
            self.spend(2 * block.nbytes)
            before = into.pack().copy()
            if (before == wanted.pack()).all():
                into.unpack(block.pack())
            kept.unpack(before)

    def single(self, call: str, first: Block, *others: Block) -> None:
        for block in (first, *others):
            if block.number != 1 or block.nbytes != first.nbytes:
                raise ValueError(
                    f"Win.{call}: expected buffers of one element of one type, got "
                    f"{block.number} elements of {block.layout.size} bytes"
                )

    def equal(self, call: str, block: Block, other: Block) -> None:
        if block.nbytes != other.nbytes:
            raise error(
                "ERR_COUNT",
                f"Win.{call}: expected {block.nbytes} bytes on the target, got "
                f"{other.nbytes}",
            )

    def requested(self, call: str) -> Request:
        pending = Pending(None, call)
        pending.status.fill(nbytes=0)
        return Request.of(pending)

    def Rput(self, origin: Any, target_rank: int, target: Any = None) -> Request:
        self.Put(origin, target_rank, target)
        return self.requested("Rput")

    def Rget(self, origin: Any, target_rank: int, target: Any = None) -> Request:
        self.Get(origin, target_rank, target)
        return self.requested("Rget")

    def Raccumulate(
        self, origin: Any, target_rank: int, target: Any = None, op: Any = SUM
    ) -> Request:
        self.Accumulate(origin, target_rank, target, op)
        return self.requested("Raccumulate")

    def Rget_accumulate(
        self,
        origin: Any,
        result: Any,
        target_rank: int,
        target: Any = None,
        op: Any = SUM,
    ) -> Request:
        self.Get_accumulate(origin, result, target_rank, target, op)
        return self.requested("Rget_accumulate")

    # Synchronization.

    def Fence(self, assertion: int = 0) -> None:
        """Wait for all ranks of the window."""
        held = self.need("Win.Fence")
        held.comm.held.collective(Call["Win"], barrier_dissemination)

    def Lock(self, rank: int, lock_type: int = EXCLUSIVE, assertion: int = 0) -> None:
        held = self.need("Win.Lock")
        if lock_type not in (EXCLUSIVE, SHARED_LOCK):
            raise error(
                "ERR_LOCKTYPE", f"Win.Lock: expected a type of lock, got {lock_type}"
            )
        rank = held.comm.held.peer("Win.Lock", "rank", rank)
        if rank == CONSTANTS["PROC_NULL"]:
            return
        lock = held.memories.locks[rank]
        if held.rank in lock.holders:
            raise error("ERR_RMA_SYNC", "Win.Lock: expected no lock before, got one")
        lock.take(held.process, held.rank, lock_type, held.comm.held.comm.alpha)

    def Unlock(self, rank: int) -> None:
        held = self.need("Win.Unlock")
        rank = held.comm.held.peer("Win.Unlock", "rank", rank)
        if rank == CONSTANTS["PROC_NULL"]:
            return
        lock = held.memories.locks[rank]
        if held.rank not in lock.holders:
            raise error("ERR_RMA_SYNC", "Win.Unlock: expected a lock before, got none")
        lock.give(held.process, held.rank)

    def Lock_all(self, assertion: int = 0) -> None:
        for rank in range(self.need("Win.Lock_all").size):
            self.Lock(rank, SHARED_LOCK)

    def Unlock_all(self) -> None:
        for rank in range(self.need("Win.Unlock_all").size):
            self.Unlock(rank)

    def Flush(self, rank: int) -> None:
        """Do nothing: operations are complete when their calls return."""
        self.need("Win.Flush")

    Flush_local = Flush

    def Flush_all(self) -> None:
        self.need("Win.Flush_all")

    Flush_local_all = Flush_all
    Sync = Flush_all

    # Post, Start, Complete and Wait, by empty messages on the window's communicator.

    def ranks_of(self, group: Group) -> list[int]:
        own = self.held.comm.Get_group()
        return group.Translate_ranks(None, own)

    def Post(self, group: Group, assertion: int = 0) -> None:
        """Expose the memory to the ranks of a group."""
        held = self.need("Win.Post")
        held.posted = self.ranks_of(group)
        for rank in held.posted:
            held.comm.Isend(b"", rank, 1)
        held.awaited = [held.comm.Irecv(bytearray(0), rank, 2) for rank in held.posted]

    def Start(self, group: Group, assertion: int = 0) -> None:
        """Wait for the Post of the ranks of a group."""
        held = self.need("Win.Start")
        held.started = self.ranks_of(group)
        for rank in held.started:
            held.comm.Recv(bytearray(0), rank, 1)

    def Complete(self) -> None:
        held = self.need("Win.Complete")
        for rank in held.started:
            held.comm.Isend(b"", rank, 2)
        held.started = []

    def Wait(self) -> bool:
        """Wait for the Complete of the ranks of Post."""
        Request.Waitall(self.need("Win.Wait").awaited)
        return True

    def Test(self) -> bool:
        return Request.Testall(self.need("Win.Test").awaited)


def need(comm: Any, call: str) -> BaseComm:
    """Return the communicator of a window; COMM_SELF if there is none."""
    found = own_comm("COMM_SELF") if comm is None else comm
    found.need(call)
    return found


def type_layout(given: Any) -> Any:
    return type_of(given, "").need("a target").layout


def combine(spec: Any, block: Block, into: Block, op: Any) -> None:
    """Combine the values of a block with those of the target: target = block op it."""
    found = reduction(op, spec, block)
    if op == OPS["REPLACE"]:
        into.unpack(block.pack())
        return
    if op == OPS["NO_OP"]:
        return
    target = found.vector(into)
    found.function(found.vector(block), target, out=target)
    into.unpack(target.view(np.uint8))


Win.root = Win
name_handle("WIN_NULL", Win.of(None))
