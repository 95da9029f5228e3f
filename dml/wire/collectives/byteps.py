"""BytePS (Jiang, OSDI'20): hosts that have no worker add up for those that do.

A buffer on every worker comes in, its sum goes out; spare hosts only serve.
"""

import numpy as np

from dml.types import BadInput, Comm, Op
from dml.wire.comm.buffers import flat
from dml.wire.comm.tags import Tag
from dml.wire.plans.byteps import NOBODY, Plan, Slot, byteps_cut
from dml.wire.plans.topology import SEGMENT, chunks


def byteps_allreduce(
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    spare: int = 0,
    segment: int = SEGMENT,
) -> None:
    """Reduce in place over all ranks but the last `spare`, whose buffers stay as are.

        workers   0   1   2          push: every worker sends each server its pieces
                  │ ╲ │ ╱ │          add: in worker order, at the server
        servers   0   1   2   [3]    pull: the server sends the sums to every worker

    n workers, each a server too, and k ≤ n spare hosts, of which each serves
    2(n-1)/(n² + kn - 2k) of the buffer, a worker's server (n-k)/(n² + kn - 2k): so all
    ports carry the same, and all the time. Every word is ((x_0 + x_1) + x_2) + …
    S = 2(n-1)m stages of n slots, a piece of (1/(n² + kn - 2k)m)th a slot, and one more
    to drain if k > 0; 2n(n-1)/(n² + kn - 2k) words a rank: n(S+1)α +
    (1 + 1/S)·2n(n-1)/(n² + kn - 2k)·nβ, a ring's for k = 0, near nβ for k = n.
    """
    buffer = flat(comm, buffer)
    workers = comm.size - spare
    if not 0 <= spare <= workers:
        raise BadInput(
            f"rank {comm.rank}: expected 0 to {comm.size // 2} spare hosts of "
            f"{comm.size} ranks, no more than workers, got {spare=}; pass fewer"
        )
    if workers < 2:
        return
    pieces, stages = byteps_cut(workers, spare, buffer.nbytes, segment)
    plan = Plan(workers, spare, stages, chunks(len(buffer), pieces))
    (work if comm.rank < workers else serve)(comm, buffer, op, plan)


def work(comm: Comm, buffer: np.ndarray, op: Op, plan: Plan) -> None:
    """Push and pull; keep what comes to be added, as it comes in no worker's order."""
    rank, parts, start = comm.rank, plan.parts, plan.first(comm.rank)
    mine = slice(parts[0].start, parts[0].start)
    if plan.share:
        mine = slice(parts[start].start, parts[start + plan.share - 1].stop)
    theirs = np.empty((plan.workers, mine.stop - mine.start), buffer.dtype)
    theirs[rank] = buffer[mine]
    for stage in range(plan.stages + (plan.spare > 0)):
        if stage == plan.stages // 2:
            buffer[mine] = add_up(comm, theirs, op)
        for slot in plan.working(rank, stage):
            into, part = buffer, parts[slot.take]
            if start <= slot.take < start + plan.share:
                into = theirs[slot.source]
                part = slice(part.start - mine.start, part.stop - mine.start)
            exchange(comm, slot, buffer[parts[slot.give]], into[part])


def serve(comm: Comm, buffer: np.ndarray, op: Op, plan: Plan) -> None:
    """Add up a piece a stage, and send what was added up in the stage before."""
    longest = plan.parts[0].stop
    theirs = np.empty((plan.workers, longest), buffer.dtype)
    total = np.empty(0, buffer.dtype)
    for stage in range(plan.stages + 1):
        length = 0
        if stage < plan.stages:
            part = plan.parts[plan.first(comm.rank) + stage]
            length = part.stop - part.start
        for slot in plan.serving(comm.rank, stage):
            exchange(comm, slot, total, theirs[slot.source][:length])
        total = add_up(comm, theirs[:, :length], op).copy()


def add_up(comm: Comm, rows: np.ndarray, op: Op) -> np.ndarray:
    # order matters: of workers, so that the bits are those of a serial sum
    for row in rows[1:]:
        comm.Reduce_local(row, rows[0], op)
    return rows[0]


def exchange(comm: Comm, slot: Slot, give: np.ndarray, take: np.ndarray) -> None:
    """Send and receive at once; both ends know what is empty, and skip it."""
    sends = slot.dest != NOBODY and len(give)
    takes = slot.source != NOBODY and len(take)
    tag = Tag.BYTEPS
    if sends and takes:
        comm.Sendrecv(give, slot.dest, tag, take, slot.source, tag)
    elif sends:
        comm.Send(give, slot.dest, tag)
    elif takes:
        comm.Recv(take, slot.source, tag)
