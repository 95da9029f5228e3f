"""Collective calls of buffers.

Each function checks its arguments and returns body(channel). `methods` makes of it the
blocking, the non-blocking and the persistent call.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from dml.sim.mpi.channel import Channel
from dml.sim.mpi.constants import error
from dml.sim.mpi.memory import IN_PLACE
from dml.sim.mpi.messages import Block, simple, typed, vector
from dml.sim.mpi.operations import OPS
from dml.sim.mpi.reductions import Reduction, reduction

Body = Callable[[Channel], Any]
SUM = OPS["SUM"]


def in_place(buffer: Any) -> bool:
    return buffer is None or buffer is IN_PLACE


def fill(blocks: list[Block], values: Any) -> None:
    """Store received vectors in blocks."""
    for block, value in zip(blocks, values, strict=True):
        block.unpack(value)


def likes(blocks: list[Block]) -> list[np.ndarray]:
    """Return examples of the vectors of blocks."""
    return [np.broadcast_to(np.uint8(0), (block.nbytes,)) for block in blocks]


def equal(call: str, own: int, other: int, what: str) -> None:
    """Raise an error if the sizes of this rank's part and of the sent data differ."""
    if own != other:
        raise error(
            "ERR_TRUNCATE" if own > other else "ERR_COUNT",
            f"{call}: expected {other} bytes as in {what}, got {own}; pass equal sizes",
        )


def Barrier(self: Any) -> Body:
    self.need("Comm.Barrier")
    return lambda channel: channel.table["barrier"](channel)


def Bcast(self: Any, buf: Any, root: int = 0) -> Body:
    held = self.need("Comm.Bcast")
    root = held.root("Bcast", root)
    block = simple(buf, held.rank == root)

    def body(channel: Channel) -> None:
        value = block.pack()
        found = channel.table["bcast"](channel, value, root)
        if channel.rank != root:
            block.unpack(found)

    return body


def Gather(self: Any, sendbuf: Any, recvbuf: Any, root: int = 0) -> Body:
    held = self.need("Comm.Gather")
    root = held.root("Gather", root)
    if held.rank != root:
        block = simple(sendbuf, True)
        return lambda channel: channel.table["gather"](channel, block.pack(), root)
    first = simple(recvbuf, False, held.size)
    blocks = [first.at(k) for k in range(held.size)]
    kept = in_place(sendbuf)
    block = blocks[root] if kept else simple(sendbuf, True)
    equal("Gather", block.nbytes, first.nbytes, "recvbuf")

    def body(channel: Channel) -> None:
        fill(blocks, channel.table["gather"](channel, block.pack(), root))

    return body


def Gatherv(self: Any, sendbuf: Any, recvbuf: Any, root: int = 0) -> Body:
    held = self.need("Comm.Gatherv")
    root = held.root("Gatherv", root)
    if held.rank != root:
        block = simple(sendbuf, True)
        return lambda channel: channel.send(block.pack(), root)
    blocks = vector(recvbuf, False, held.size)
    kept = in_place(sendbuf)
    own = blocks[root] if kept else simple(sendbuf, True)
    equal("Gatherv", own.nbytes, blocks[root].nbytes, "recvbuf")

    def body(channel: Channel) -> None:
        if not kept:
            blocks[root].unpack(own.pack())
        for rank, like in enumerate(likes(blocks)):
            if rank != root:
                blocks[rank].unpack(channel.receive(rank, like))

    return body


def Scatter(self: Any, sendbuf: Any, recvbuf: Any, root: int = 0) -> Body:
    held = self.need("Comm.Scatter")
    root = held.root("Scatter", root)
    if held.rank != root:
        block = simple(recvbuf, False)
        (like,) = likes([block])
        return lambda channel: block.unpack(
            channel.table["scatter"](channel, None, like, root)
        )
    first = simple(sendbuf, True, held.size)
    kept = in_place(recvbuf)
    into = None if kept else simple(recvbuf, False)
    if into is not None:
        equal("Scatter", first.nbytes, into.nbytes, "recvbuf")

    def body(channel: Channel) -> None:
        values = [first.at(k).pack() for k in range(channel.size)]
        value = channel.table["scatter"](channel, values, values[0], root)
        if into is not None:
            into.unpack(value)

    return body


def Scatterv(self: Any, sendbuf: Any, recvbuf: Any, root: int = 0) -> Body:
    held = self.need("Comm.Scatterv")
    root = held.root("Scatterv", root)
    if held.rank != root:
        block = simple(recvbuf, False)
        (like,) = likes([block])
        return lambda channel: block.unpack(channel.receive(root, like))
    blocks = vector(sendbuf, True, held.size)
    into = None if in_place(recvbuf) else simple(recvbuf, False)
    if into is not None:
        equal("Scatterv", blocks[root].nbytes, into.nbytes, "recvbuf")

    def body(channel: Channel) -> None:
        requests = [
            channel.post(block.pack(), rank)
            for rank, block in enumerate(blocks)
            if rank != root
        ]
        if into is not None:
            into.unpack(blocks[root].pack())
        for request in requests:
            request.Wait()

    return body


def gather_all(self: Any, call: str, blocks: list[Block], sendbuf: Any) -> Body:
    rank = self.held.rank
    own = blocks[rank] if in_place(sendbuf) else simple(sendbuf, True)
    equal(call, own.nbytes, blocks[rank].nbytes, "recvbuf")

    def body(channel: Channel) -> None:
        value = own.pack()
        fill(blocks, channel.table["allgather"](channel, value, likes(blocks)))

    return body


def Allgather(self: Any, sendbuf: Any, recvbuf: Any) -> Body:
    size = self.need("Comm.Allgather").size
    first = simple(recvbuf, False, size)
    return gather_all(self, "Allgather", [first.at(k) for k in range(size)], sendbuf)


def Allgatherv(self: Any, sendbuf: Any, recvbuf: Any) -> Body:
    size = self.need("Comm.Allgatherv").size
    return gather_all(self, "Allgatherv", vector(recvbuf, False, size), sendbuf)


def exchange_all(out: list[Block], into: list[Block], name: str) -> Body:
    def body(channel: Channel) -> None:
        values = [block.pack() for block in out]
        if out is into:
            values = [value.copy() for value in values]
        fill(into, channel.table[name](channel, values, likes(into)))

    return body


def Alltoall(self: Any, sendbuf: Any, recvbuf: Any) -> Body:
    size = self.need("Comm.Alltoall").size
    first = simple(recvbuf, False, size)
    into = [first.at(k) for k in range(size)]
    out = into
    if not in_place(sendbuf):
        source = simple(sendbuf, True, size)
        equal("Alltoall", source.nbytes, first.nbytes, "recvbuf")
        out = [source.at(k) for k in range(size)]
    return exchange_all(out, into, "alltoall")


def Alltoallv(self: Any, sendbuf: Any, recvbuf: Any) -> Body:
    size = self.need("Comm.Alltoallv").size
    into = vector(recvbuf, False, size)
    out = into if in_place(sendbuf) else vector(sendbuf, True, size)
    return exchange_all(out, into, "alltoallv")


def Alltoallw(self: Any, sendbuf: Any, recvbuf: Any) -> Body:
    size = self.need("Comm.Alltoallw").size
    into = typed(recvbuf, False, size)
    out = into if in_place(sendbuf) else typed(sendbuf, True, size)
    return exchange_all(out, into, "alltoallv")


def operands(
    call: str, sendbuf: Any, recvbuf: Any, op: Any
) -> tuple[Block, Block, Reduction]:
    """Return the blocks of a reduction, of which the first may be the second."""
    into = simple(recvbuf, False)
    if in_place(sendbuf):
        return into, into, reduction(op, recvbuf, into)
    own = simple(sendbuf, True)
    equal(call, own.nbytes, into.nbytes, "recvbuf")
    return own, into, reduction(op, sendbuf, own)


def Reduce(self: Any, sendbuf: Any, recvbuf: Any, op: Any = SUM, root: int = 0) -> Body:
    held = self.need("Comm.Reduce")
    root = held.root("Reduce", root)
    if held.rank == root:
        own, into, found = operands("Reduce", sendbuf, recvbuf, op)
    else:
        own = into = simple(sendbuf, True)
        found = reduction(op, sendbuf, own)

    def body(channel: Channel) -> None:
        total = channel.table["reduce"](
            channel, found.vector(own), found.function, root, found.commutes
        )
        if channel.rank == root:
            into.unpack(total.view(np.uint8))

    return body


def Allreduce(self: Any, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> Body:
    self.need("Comm.Allreduce")
    own, into, found = operands("Allreduce", sendbuf, recvbuf, op)
    name = "allreduce" if found.commutes else "ordered_allreduce"

    def body(channel: Channel) -> None:
        total = channel.table[name](channel, found.vector(own), found.function)
        into.unpack(total.view(np.uint8))

    return body


def scatter_sums(self: Any, own: Block, into: Block, found: Reduction, counts: Any):
    """Return the body of a reduce-scatter of `counts` elements by rank."""
    ends = [0, *(int(end) for end in np.cumsum(counts))]

    def body(channel: Channel) -> None:
        value, rank = found.vector(own), channel.rank
        if found.commutes:
            part = channel.table["reduce_scatter"](channel, value, found.function, ends)
        else:
            ordered = channel.table["ordered_allreduce"]
            total = ordered(channel, value, found.function)
            part = total[ends[rank] : ends[rank + 1]]
        into.unpack(np.ascontiguousarray(part).view(np.uint8))

    return body


def Reduce_scatter_block(self: Any, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> Body:
    size = self.need("Comm.Reduce_scatter_block").size
    if in_place(sendbuf):
        into = simple(recvbuf, False, size)
        own, spec = into._replace(number=into.number * size), recvbuf
    else:
        into, own, spec = simple(recvbuf, False), simple(sendbuf, True, size), sendbuf
        equal("Reduce_scatter_block", own.nbytes, into.nbytes, "recvbuf")
        own = own._replace(number=own.number * size)
    found = reduction(op, spec, own)
    return scatter_sums(self, own, into, found, [into.number] * size)


def Reduce_scatter(
    self: Any, sendbuf: Any, recvbuf: Any, recvcounts: Any = None, op: Any = SUM
) -> Body:
    held = self.need("Comm.Reduce_scatter")
    into = simple(recvbuf, False)
    own, spec = (
        (into, recvbuf) if in_place(sendbuf) else (simple(sendbuf, True), sendbuf)
    )
    if recvcounts is None:
        if in_place(sendbuf):
            raise ValueError(
                "Reduce_scatter: expected recvcounts with IN_PLACE, got none"
            )
        counts = gathered_counts(self, into.number)
    else:
        counts = [int(count) for count in recvcounts]
    if len(counts) != held.size or sum(counts) != own.number:
        raise ValueError(
            f"Reduce_scatter: expected {held.size} counts with the sum {own.number}, "
            f"got {counts}"
        )
    into = into._replace(number=counts[held.rank]).check()
    return scatter_sums(self, own, into, reduction(op, spec, own), counts)


def gathered_counts(self: Any, count: int) -> list[int]:
    """Return the counts of all ranks; collective."""
    found = np.zeros(self.held.size, np.int64)
    self.Allgather(np.array([count]), found)
    return [int(one) for one in found]


def Scan(self: Any, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> Body:
    return scan(self, "Scan", sendbuf, recvbuf, op)


def Exscan(self: Any, sendbuf: Any, recvbuf: Any, op: Any = SUM) -> Body:
    return scan(self, "Exscan", sendbuf, recvbuf, op)


def scan(self: Any, call: str, sendbuf: Any, recvbuf: Any, op: Any) -> Body:
    self.need(f"Comm.{call}")
    own, into, found = operands(call, sendbuf, recvbuf, op)
    exclusive = call == "Exscan"

    def body(channel: Channel) -> None:
        value = found.vector(own)
        total = channel.table["scan"](channel, value, found.function, exclusive)
        if total is not None:
            into.unpack(total.view(np.uint8))

    return body


BLOCKING: dict[str, Callable[..., Body]] = {
    function.__name__: function
    for function in (
        *(Barrier, Bcast, Gather, Gatherv, Scatter, Scatterv, Allgather, Allgatherv),
        *(Alltoall, Alltoallv, Alltoallw, Reduce, Allreduce, Reduce_scatter),
        *(Reduce_scatter_block, Scan, Exscan),
    )
}
