"""Sums of the first terms that suffice: a master decodes, late terms are discarded.

    worker 0  ██████ a ──────┐         ┌─ sum ─ ███…         n = 3, any 2 terms
    worker 1  █████████ b ───┼┐        ├─ sum ─ ███…         suffice
    worker 2  ██████████████×││        ├─ sum ─ ███…         × stopped by the sum
    master                   ab decode ┘

Ranks 0 … n-1 are workers; the last rank is the master, as in `server`. A term has a
header: the number of the run and of the update. The sum goes to all workers, also to
those that are late, which receive all missed sums when their computation ends. No
other rank waits for them. The master keeps a sum until all workers have received it.

Per update: at most n terms of d elements to the master, and n sums back: 2 rounds,
2nd + 2n words. At the end every worker sends a header, after which no term is in
transit.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dml.types import ANY, Comm, Request, Status
from dml.types.messages import check_nbytes
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag
from dml.wire.plans.codes.decoding import DecodingPlan
from dml.wire.reducers.robust.coded import add_in_order, combine

HEADER = 2  # words: numbers of the run and of the update
END = -1  # in the place of the number of an update

Sending = list[tuple[Any, np.ndarray]]  # requests with their buffers


def incomplete(sending: Sending) -> Sending:
    return [(request, buffer) for request, buffer in sending if not request.Test()]


class Worker:
    """The connection of a worker to the master.

    Args:
      comm: Workers and master.
      length: Number of elements of a term and of a sum.
      run: Number of the run.
    """

    def __init__(self, comm: Comm, length: int, run: int = 0):
        self.comm, self.length, self.run = as_comm(comm), length, run
        self.master = comm.size - 1
        self.sending: Sending = []

    def expect(self) -> tuple[Request, np.ndarray]:
        """Start the receive of the next sum; return the request and the buffer."""
        total = np.empty(self.length, np.float32)
        return self.comm.Irecv(total, self.master, Tag.VALUES), total

    def sum_has_arrived(self) -> bool:
        """Return whether the next sum can be received without waiting."""
        # order matters: two tests of virtual ranks without a computation between them
        # are a polling loop, in which virtual time advances
        self.comm.platform.compute(0.0)
        return self.comm.Iprobe(self.master, Tag.VALUES)

    def send(self, term: np.ndarray, update: int) -> None:
        """Send a term, without waiting until the master receives it."""
        message = np.empty(HEADER + len(term), np.float32)
        message[:HEADER].view(np.int32)[:] = self.run, update
        message[HEADER:] = term
        self.sending = incomplete(self.sending)
        request = self.comm.Isend(message, self.master, Tag.GRADIENTS)
        self.sending.append((request, message))

    def finish(self) -> None:
        """Send the last message; wait until the master has received all."""
        self.send(np.empty(0, np.float32), END)
        self.comm.Waitall([request for request, _ in self.sending])


class Master:
    """The rank that receives terms and sends their sum.

    Args:
      comm: Workers and master.
      plan: The code of the workers.
      length: Number of elements of a term and of a sum.
      run: Number of the run.

    Attributes:
      unused: Number of terms since the last sum that were discarded.
    """

    def __init__(self, comm: Comm, plan: DecodingPlan, length: int, run: int = 0):
        self.comm, self.plan = as_comm(comm), plan
        self.length, self.run = length, run
        self.status, self.unused = Status(), 0
        self.sending: Sending = []

    def collect(self, update: int) -> np.ndarray:
        """Receive the terms of an update until they suffice; return their sum."""
        self.unused = 0
        terms: dict[int, np.ndarray] = {}
        arrived = np.zeros(self.plan.code.workers, bool)
        while not self.plan.suffices(arrived):
            worker, number, term = self.receive()
            if number == update:
                terms[worker], arrived[worker] = term, True
            else:
                self.unused += 1
        weights = self.plan.weights(arrived)
        self.unused += len(terms) - int(np.count_nonzero(weights))
        return decode(self.plan, weights, terms)

    def receive(self, source: int = ANY) -> tuple[int, int, np.ndarray]:
        """Receive a term; return worker, number of the update, and term."""
        message = np.empty(HEADER + self.length, np.float32)
        head = message[:HEADER].view(np.int32)
        while True:
            head[:] = self.run, 0  # stays if the message has no header, or is cut
            self.comm.Recv(message, source, Tag.GRADIENTS, self.status)
            run, update = head.tolist()
            if run == self.run:  # others are of a run that was ended early
                expected = head if update == END else message
                check_nbytes(self.status, self.comm.rank, expected.nbytes)
                return self.status.Get_source(), update, message[HEADER:]

    def send(self, total: np.ndarray) -> None:
        """Send a sum to all workers, without waiting until they receive it."""
        self.sending = incomplete(self.sending)
        for worker in range(self.plan.code.workers):
            request = self.comm.Isend(total, worker, Tag.VALUES)
            self.sending.append((request, total))

    def finish(self) -> None:
        """Receive all terms in transit, and wait until all sums are received."""
        for worker in range(self.plan.code.workers):
            # order matters: not from ANY, as other workers may have begun another run
            update = 0
            while update != END:
                _, update, _ = self.receive(worker)
        self.comm.Waitall([request for request, _ in self.sending])


def decode(
    plan: DecodingPlan, weights: np.ndarray, terms: dict[int, np.ndarray]
) -> np.ndarray:
    """Return the weighted sum of terms.

    Terms that are gradients of parts are added in the order of parts, so that the sum
    does not depend on which worker of a group sent its term. Others are combined in
    float64.

    Args:
      plan: The code.
      weights: Weight of each worker.
      terms: Terms by worker; those of weight 0 are not read.
    """
    used: Sequence[int] = np.flatnonzero(weights).tolist()
    if not plan.code.repeats:
        rows = np.stack([terms[worker] for worker in used])
        return combine(weights[used], rows)
    used = sorted(used, key=lambda worker: plan.code.parts_of(worker)[0])
    total = add_in_order([terms[worker] for worker in used], range(len(used)))
    scale = np.float32(weights[used[0]])  # equal for all terms
    return total if scale == 1 else total * scale
