"""Datatypes with the calls that pack messages into a buffer."""

from typing import Any

import numpy as np

from dml.sim.mpi.constants import error
from dml.sim.mpi.datatypes import TypeHandle
from dml.sim.mpi.memory import memory_of
from dml.sim.mpi.messages import Block, inferred


class Datatype(TypeHandle):
    """A datatype of mpi4py."""

    def whole(self, data: Any, readonly: bool) -> Block:
        memory, _ = memory_of(data, readonly)
        layout = self.layout
        return Block(memory, 0, inferred(len(memory), layout, 1), layout)

    def Pack(self, inbuf: Any, outbuf: Any, position: int, comm: Any) -> int:
        """Append elements to a buffer; return the new position in bytes."""
        return self.packed("Pack", inbuf, outbuf, position)

    def Unpack(self, inbuf: Any, position: int, outbuf: Any, comm: Any) -> int:
        return self.unpacked("Unpack", inbuf, position, outbuf)

    def Pack_external(
        self, datarep: str, inbuf: Any, outbuf: Any, position: int
    ) -> int:
        """Append elements in big-endian order."""
        return self.packed("Pack_external", inbuf, outbuf, position, True)

    def Unpack_external(
        self, datarep: str, inbuf: Any, position: int, outbuf: Any
    ) -> int:
        return self.unpacked("Unpack_external", inbuf, position, outbuf, True)

    def packed(
        self, call: str, inbuf: Any, outbuf: Any, position: int, swap: bool = False
    ) -> int:
        data = self.swapped(self.whole(inbuf, True).pack(), swap)
        memory, _ = memory_of(outbuf, readonly=False)
        return copied(call, data, memory, position, len(data))

    def unpacked(
        self, call: str, inbuf: Any, position: int, outbuf: Any, swap: bool = False
    ) -> int:
        memory, _ = memory_of(inbuf, readonly=True)
        block = self.whole(outbuf, False)
        data = np.empty(block.nbytes, np.uint8)
        check(call, position, len(data), len(memory))
        data[:] = memory[position : position + len(data)]
        block.unpack(self.swapped(data, swap))
        return position + len(data)

    def swapped(self, data: np.ndarray, swap: bool) -> np.ndarray:
        basic = self.layout.basic
        if not swap or basic is None or not np.little_endian:
            return data
        return data.view(basic).byteswap().view(np.uint8)

    def Pack_size(self, count: int, comm: Any) -> int:
        return count * self.Get_size()

    def Pack_external_size(self, datarep: str, count: int) -> int:
        return count * self.Get_size()


TypeHandle.root = Datatype


def copied(
    call: str, data: np.ndarray, memory: np.ndarray, position: int, length: int
) -> int:
    check(call, position, length, len(memory))
    memory[position : position + length] = data
    return position + length


def check(call: str, position: int, length: int, room: int) -> None:
    if position < 0 or position + length > room:
        raise error(
            "ERR_ARG",
            f"Datatype.{call}: expected room for {length} bytes from byte {position}, "
            f"got a buffer of {room} bytes",
        )
