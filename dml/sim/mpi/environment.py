"""Calls of MPI without a communicator: start, end, clocks, memory and buffers."""

from typing import Any

from dml.sim.mpi.communicators import BaseComm
from dml.sim.mpi.constants import CONSTANTS, error, lacking
from dml.sim.mpi.memory import BUFFER_AUTOMATIC, buffer, memory_of
from dml.sim.mpi.ranks import CURRENT, current
from dml.sim.mpi.requests import Pending, Request

UNLIMITED = 1 << 62  # bytes of an automatic buffer


def Init() -> None:
    rank = current()
    if rank.initialized:
        raise error(
            "ERR_OTHER", "Init: expected a rank before its start, got one after"
        )


def Init_thread(required: int = CONSTANTS["THREAD_MULTIPLE"]) -> int:
    Init()
    return CONSTANTS["THREAD_SERIALIZED"]


def Finalize() -> None:
    current().finalized = True


def Is_initialized() -> bool:
    return CURRENT.get(None) is not None


def Is_finalized() -> bool:
    rank = CURRENT.get(None)
    return rank is not None and rank.finalized


def Query_thread() -> int:
    return CONSTANTS["THREAD_SERIALIZED"]


def Is_thread_main() -> bool:
    return CURRENT.get(None) is not None


def Wtime() -> float:
    """Return the virtual time of this rank, in s."""
    return current().process.clock


def Wtick() -> float:
    return 1e-9


def Get_processor_name() -> str:
    """Return the name of this rank's virtual host."""
    rank = current()
    return f"virtual-host-{rank.comm.hosts()[rank.comm.rank]}"


def Get_version() -> tuple[int, int]:
    return CONSTANTS["VERSION"], CONSTANTS["SUBVERSION"]


def Get_library_version() -> str:
    return "dml.sim.MPI: virtual ranks in one process"


def get_vendor() -> tuple[str, tuple[int, int, int]]:
    return "dml", (1, 0, 0)


def Alloc_mem(size: int, info: Any = None) -> buffer:
    return buffer.allocate(size)


def Free_mem(mem: buffer) -> None:
    """Do nothing: the memory is freed with its last reference."""


def Get_address(location: Any) -> int:
    if isinstance(location, buffer):
        return location.address
    memory, _ = memory_of(location, readonly=True)
    return memory.__array_interface__["data"][0]


def Aint_add(base: int, disp: int) -> int:
    return base + disp


def Aint_diff(addr1: int, addr2: int) -> int:
    return addr1 - addr2


def Pcontrol(level: int) -> None:
    """Do nothing, as without a profiler."""


def room_of(buf: Any) -> int:
    if buf is BUFFER_AUTOMATIC or buf is None:
        return UNLIMITED
    return len(memory_of(buf, readonly=False)[0])


def attach(owner: Any, call: str, buf: Any) -> None:
    if owner.attached is not None:
        raise error("ERR_BUFFER", f"{call}: expected no buffer before, got one")
    owner.attached, owner.attached_buffer = room_of(buf), buf


def detach(owner: Any, call: str) -> Any:
    if owner.attached is None:
        raise error("ERR_BUFFER", f"{call}: expected an attached buffer, got none")
    found, owner.attached, owner.attached_buffer = owner.attached_buffer, None, None
    return found


def Attach_buffer(buf: Any) -> None:
    attach(current(), "Attach_buffer", buf)


def Detach_buffer() -> Any:
    return detach(current(), "Detach_buffer")


def Flush_buffer() -> None:
    """Do nothing: buffered messages have left the buffer when their call returns."""


def Iflush_buffer() -> Request:
    return Request.of(Pending(None, "Iflush_buffer"))


def comm_attach(self: Any, buf: Any) -> None:
    attach(self.need("Comm.Attach_buffer"), "Comm.Attach_buffer", buf)


def comm_detach(self: Any) -> Any:
    return detach(self.need("Comm.Detach_buffer"), "Comm.Detach_buffer")


BaseComm.Attach_buffer = comm_attach  # type: ignore[attr-defined]
BaseComm.Detach_buffer = comm_detach  # type: ignore[attr-defined]
BaseComm.Flush_buffer = lambda self: None  # type: ignore[attr-defined]
BaseComm.Iflush_buffer = lambda self: Iflush_buffer()  # type: ignore[attr-defined]


LACKING = {
    name: lacking(f"MPI.{name}")
    for name in (
        *("Open_port", "Close_port", "Publish_name", "Unpublish_name", "Lookup_name"),
        *("Register_datarep", "Get_hw_resource_info"),
        *("Get_abi_version", "Get_abi_info", "Get_abi_fortran_info"),
    )
}
