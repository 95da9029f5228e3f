"""BytePS (Jiang, OSDI'20): an all-reduce with additional hosts as servers."""

from collections.abc import Sequence

import numpy as np

from dml.types import BadInput, Comm, Op
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.plans.byteps import NO_RANK, BytePSPlan, Slot, byteps_pieces
from dml.wire.plans.topology import SEGMENT, chunks

Transfer = tuple[Slot, np.ndarray, np.ndarray]  # outgoing and incoming pieces


def byteps_allreduce(
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    spare: int = 0,
    segment: int = SEGMENT,
) -> None:
    """Reduce in place over all ranks except the last `spare` ranks, the spare hosts.

        workers   0   1   2          push: every worker sends its pieces to all servers
                  │ ╲ │ ╱ │          add: each server adds in worker order
        servers   0   1   2   [3]    pull: the servers send the sums to all workers

    There are n workers, which are also servers, and k ≤ n spare hosts, which are only
    servers. A spare host serves 2(n-1)/(n² + kn - 2k) of the buffer, a worker
    (n-k)/(n² + kn - 2k), so that all ports are busy all the time with equal traffic.
    Every element is ((x_0 + x_1) + x_2) + … The buffers of spare hosts do not change.
    S = 2(n-1)m stages of n slots, with m as in `byteps_pieces`. In each slot a rank
    sends a piece of 1/((n² + kn - 2k)m) of the buffer; if k > 0, one more stage sends
    the last sums. A rank sends 2n(n-1)/(n² + kn - 2k) of the buffer. With B seconds to
    send the buffer once: n(S+1)α + (1 + 1/S)·2n(n-1)/(n² + kn - 2k)·B, which is the
    time of a ring for k = 0 and near B for k = n.

    Args:
      comm: The workers, then the spare hosts.
      buffer: Buffer to reduce.
      op: The reduction.
      spare: Number of spare hosts k.
      segment: Largest size of a piece in bytes.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    workers = comm.size - spare
    if not 0 <= spare <= workers:
        raise BadInput(
            f"rank {comm.rank}: expected 0 to {comm.size // 2} spare hosts of "
            f"{comm.size} ranks, at most one per worker, got {spare=}; pass a "
            "number in this range"
        )
    if workers < 2:
        return
    pieces, stages = byteps_pieces(workers, spare, buffer.nbytes, segment)
    plan = BytePSPlan(workers, spare, stages, chunks(len(buffer), pieces))
    (work if comm.rank < workers else serve)(comm, buffer, op, plan)


def work(comm: Comm, buffer: np.ndarray, op: Op, plan: BytePSPlan) -> None:
    """Push and pull the pieces, and reduce the pieces that this worker serves.

    The first half of the stages pushes, the second half pulls. Terms are stored until
    all are received, because they do not arrive in worker order.
    """
    rank, parts, start = comm.rank, plan.parts, plan.first_piece(comm.rank)
    served = slice(0, 0)  # if there are as many spare hosts as workers
    if plan.share:
        served = slice(parts[start].start, parts[start + plan.share - 1].stop)
    terms = np.empty((plan.workers, served.stop - served.start), buffer.dtype)
    terms[rank] = buffer[served]
    for stage in range(plan.stages + (plan.spare > 0)):
        if stage == plan.stages // 2:
            buffer[served] = add_up(comm, terms, op)
        slots = []
        for slot in plan.worker_slots(rank, stage):
            target, part = buffer, parts[slot.received]
            if start <= slot.received < start + plan.share:
                target = terms[slot.source]
                part = slice(part.start - served.start, part.stop - served.start)
            slots.append((slot, buffer[parts[slot.sent]], target[part]))
        exchange(comm, slots)


def serve(comm: Comm, buffer: np.ndarray, op: Op, plan: BytePSPlan) -> None:
    """Receive and reduce one piece per stage; send the sum of the previous stage."""
    longest = plan.parts[0].stop
    terms = np.empty((plan.workers, longest), buffer.dtype)
    total = np.empty(0, buffer.dtype)
    for stage in range(plan.stages + 1):
        length = 0
        if stage < plan.stages:
            part = plan.parts[plan.first_piece(comm.rank) + stage]
            length = part.stop - part.start
        slots = plan.server_slots(comm.rank, stage)
        exchange(comm, [(s, total, terms[s.source][:length]) for s in slots])
        total = add_up(comm, terms[:, :length], op).copy()


def add_up(comm: Comm, terms: np.ndarray, op: Op) -> np.ndarray:
    """Reduce the terms into the first term, and return it."""
    # order matters: in worker order the result is bit-identical to a serial sum
    for term in terms[1:]:
        comm.Reduce_local(term, terms[0], op)
    return terms[0]


def exchange(comm: Comm, slots: Sequence[Transfer]) -> None:
    """Send and receive the messages of a stage at once; empty pieces are not sent."""
    # Not one Sendrecv per slot: a send ends when the kernel has copied the message. The
    # next message then shares the port, and ranks that wait for the first one are idle.
    requests = [
        comm.Irecv(incoming, slot.source, Tag.BYTEPS)
        for slot, _, incoming in slots
        if slot.source != NO_RANK and len(incoming)
    ]
    for slot, outgoing, _ in slots:
        if slot.dest != NO_RANK and len(outgoing):
            comm.Send(outgoing, slot.dest, Tag.BYTEPS)
    comm.Waitall(requests)
