"""A replica of a server in a chain (van Renesse & Schneider 2004).

    workers ─► head ─► middle ─► tail ─► workers
                ◄─ stored ─ ◄─ stored ─┘

The head orders the messages of all workers. Every replica handles them in this order
with a Server, and keeps those that the tail has not stored. The messages of a replica
are a prefix of those of its predecessor. Only the tail answers workers, so no state
that a worker has seen is lost:

    head dies      the next replica orders; workers repeat what is not acknowledged
    middle dies    its successor joins its predecessor, which repeats missing messages
    tail dies      its predecessor repeats all answers that workers may lack
    a spare joins  its predecessor sends it the state of the Server

Workers drop answers, and replicas drop messages, that they already have, by numbers.
The death of a worker is a message of the head, so clocks close equally everywhere.

Cost of f + 1 replicas: the throughput of one server, f + 1 times the latency, f + 1
short messages per message of a worker for the acknowledgements. A death of a replica
costs its detection, one message between two replicas, and the repeated messages.
"""

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from dml.types import WITHDRAWN, Comm, RankFailed
from dml.wire.comm.metered import uncounted
from dml.wire.comm.surviving import new_deaths
from dml.wire.comm.tags import Tag
from dml.wire.plans.chain import Chain
from dml.wire.server import envelope
from dml.wire.server.envelope import NOTHING, Envelope, as_bytes
from dml.wire.server.header import max_nbytes
from dml.wire.server.inbox import Inbox
from dml.wire.server.outgoing import Outgoing
from dml.wire.server.port import Port
from dml.wire.server.server import Server
from dml.wire.server.state import decode, encode, restore, state


class Answer:
    """An answer of the Server, which the worker may not have received."""

    def __init__(self, number: int, tag: int, buffer: np.ndarray):
        self.number, self.tag, self.buffer = number, tag, buffer
        self.sends: list[Any] = []  # packed answers in transit, and their requests


class Replica:
    """A member of a chain, until all workers have left.

    comm: Surviving communicator of all ranks.
    server: the Server, whose communicator is `port`.
    port: the communicator that passes messages to the Server.
    chain: the members of the chain.
    """

    def __init__(self, comm: Comm, server: Server, port: Port, chain: Chain):
        self.comm, self.server, self.port, self.chain = comm, server, port, chain
        self.rank, self.workers = comm.rank, server.workers
        port.answer = self.answer
        rows, width = server.shard.values.shape
        nbytes = max(max_nbytes(rows, width), 4 * rows * width)
        self.inbox = Inbox(comm, envelope.NBYTES + nbytes, Tag.CHAIN)
        self.out = Outgoing(comm, Tag.CHAIN)
        self.out_to_workers = Outgoing(comm, Tag.ANSWER)
        self.failed: set[int] = set()
        self.left: set[int] = set()  # workers that have sent LEAVE
        self.dead: set[int] = set()  # workers whose death is stored
        self.ready = not chain.is_spare(self.rank)
        self.predecessor = chain.predecessor(self.rank, ())
        self.successor = chain.successor(self.rank, ())
        self.tail = self.ready and self.successor is None
        self.joined = 0  # number of messages that the successor has stored at its JOIN
        # messages of workers that knew before this replica that it is the head
        self.early: list[tuple[Envelope, np.ndarray]] = []
        self.count = 0  # number of messages stored
        self.last = [0] * self.workers  # number of the last message of each worker
        self.acknowledged = [0] * self.workers  # number of the one acknowledged last
        # stored here and perhaps not at the tail: message, send request
        self.sent: deque[list[Any]] = deque()
        self.numbers = [0] * self.workers  # of answers to each worker
        self.answers: list[deque[Answer]] = [deque() for _ in range(self.workers)]

    def serve(self) -> None:
        """Handle messages until all living workers have left."""
        self.comm.Ack_failed()  # from now on a death ends the wait for a message
        self.repair()
        while not self.is_over():
            try:
                self.inbox.post().Wait(self.inbox.status)
            except RankFailed:
                self.repair()
            else:
                self.inbox.posted = None
                self.handle_inbox()
        self.inbox.withdraw()
        if self.ready:
            self.server.settle()

    def is_over(self) -> bool:
        """Return whether no worker needs this replica any more.

        Without deaths it also waits for the last acknowledgement of its successor.
        """
        over = self.left.union(self.failed).issuperset(range(self.workers))
        return over and bool(self.failed or not self.sent)

    def handle_inbox(self) -> None:
        """Handle the message in the inbox."""
        message = self.inbox.content(envelope.NBYTES).copy()
        head = envelope.unpack(message)
        source = self.inbox.status.source
        if head.kind in (envelope.UPDATE, envelope.DEATH):
            self.store(head, message)
        elif head.kind == envelope.STORED and source == self.successor:
            self.forget(head.number)
        elif head.kind == envelope.JOIN:
            self.join(source, head.number)
        elif head.kind == envelope.STATE and not self.ready:
            self.restore(source, head.number)
        elif head.kind == envelope.LEAVE:
            self.left.add(head.worker)

    # Messages of workers.

    def store(self, head: Envelope, message: np.ndarray) -> None:
        """Handle a message, unless this replica has it, and pass it on."""
        worker = head.worker
        is_head = self.predecessor is None
        if not is_head and head.position < 0:
            self.early.append((head, message))
            return
        if not self.ready or worker in self.dead:
            return
        if not head.follows(self.count, self.last[worker], is_head):
            return
        envelope.set_position(message, self.count)
        self.count += 1
        if not self.tail:
            entry = [message, None]
            self.sent.append(entry)
            if self.successor is not None:
                entry[1] = self.out.send(message, self.successor)
        if head.kind == envelope.DEATH:
            self.dead.add(worker)
            self.server.drop_dead(worker)
            self.release(worker, self.numbers[worker])
        else:
            self.last[worker] = head.number
            self.release(worker, head.received)
            self.deliver(head)
        if self.tail:
            self.acknowledge([worker])

    def deliver(self, head: Envelope) -> None:
        """Pass a worker's message to the Server."""
        if head.tag == Tag.SERVER:
            # the Server may write to the message: it reads gradients in place
            self.server.handle(head.worker, head.content.copy(), len(head.content))
        else:
            count = self.port.deliver(head.content, head.worker)
            if count != WITHDRAWN:
                self.server.inbox.status.count = count
                self.server.add_values(head.worker)

    def acknowledge(self, workers: Sequence[int]) -> None:
        """Acknowledge the last messages of workers, and all messages upstream."""
        for worker in workers:
            is_new = self.acknowledged[worker] < self.last[worker]
            if is_new and worker not in self.failed:
                self.acknowledged[worker] = self.last[worker]
                note = Envelope(envelope.ACKNOWLEDGED, number=self.last[worker])
                self.out_to_workers.notify(note, worker)
        if self.predecessor is not None:
            note = Envelope(envelope.STORED, number=self.count)
            self.out.notify(note, self.predecessor)

    def forget(self, count: int) -> None:
        """Drop messages that the tail has stored; `count` is their number."""
        while self.sent and self.count - len(self.sent) < count:
            self.finish(*self.sent.popleft())
        if self.predecessor is not None:
            note = Envelope(envelope.STORED, number=count)
            self.out.notify(note, self.predecessor)

    # Answers of the Server.

    def answer(self, buffer: np.ndarray, worker: int, tag: int) -> None:
        """Keep an answer until the worker has received it; send it at the tail."""
        answer = Answer(self.numbers[worker], tag, buffer)
        self.numbers[worker] += 1
        if worker in self.dead:
            return
        self.answers[worker].append(answer)
        if self.tail:
            self.send_answer(answer, worker)

    def send_answer(self, answer: Answer, worker: int) -> None:
        """Send an answer, which acknowledges the worker's last message, too."""
        self.acknowledged[worker] = self.last[worker]
        numbers = worker, self.last[worker], answer.number, answer.tag
        head = Envelope(envelope.ANSWER, *numbers)
        message = head._replace(content=as_bytes(answer.buffer)).pack()
        answer.sends.append((message, self.out_to_workers.send(message, worker)))

    def release(self, worker: int, received: int) -> None:
        """Drop the answers that a worker has received; `received` is their number."""
        answers = self.answers[worker]
        while answers and answers[0].number < received:
            for message, request in answers.popleft().sends:
                self.finish(message, request)

    def finish(self, message: np.ndarray, request: Any) -> None:
        """Keep a message in transit; a second copy may never be received."""
        if request is not None and not request.Test():
            uncounted(self.comm).cache.abandoned.append((message, request))

    # Deaths.

    def repair(self) -> None:
        """Update the place of this replica in the chain after deaths."""
        if self.inbox.withdraw():
            self.handle_inbox()
        if self.comm.Is_revoked():
            raise RankFailed(f"rank {self.rank}: a server lost all its replicas")
        new_deaths(self.comm, self.failed)
        if self.successor in self.failed:
            self.successor = None
        if self.rank not in self.chain.living(self.failed):
            return  # a spare
        predecessor = self.chain.predecessor(self.rank, self.failed)
        if predecessor != self.predecessor and predecessor is not None:
            stored = self.count if self.ready else NOTHING
            self.out.notify(Envelope(envelope.JOIN, number=stored), predecessor)
        self.predecessor = predecessor
        if predecessor is None and not self.ready:
            self.comm.Revoke()
            raise RankFailed(f"rank {self.rank}: all replicas died before a spare")
        if predecessor is None:
            for head, message in self.early:
                self.store(head, message)
            self.early.clear()
            for worker in sorted(self.failed & set(range(self.workers))):
                death = Envelope(envelope.DEATH, worker)
                self.store(death, death.pack())
        self.take_tail()

    def take_tail(self) -> None:
        """Become the tail if no rank follows: repeat answers and acknowledgements."""
        follows = self.successor is not None
        is_tail = self.chain.is_tail(self.rank, self.failed) and not follows
        if not is_tail or self.tail or not self.ready:
            return
        self.tail = True
        self.sent.clear()
        for worker, answers in enumerate(self.answers):
            for answer in answers:
                self.send_answer(answer, worker)
        self.acknowledge(range(self.workers))

    def join(self, successor: int, stored: int) -> None:
        """Send the messages or the state that a new successor lacks.

        Args:
          successor: Rank of the successor.
          stored: Number of messages that it has stored, or NOTHING for a spare.
        """
        self.successor, self.joined, self.tail = successor, stored, False
        if not self.ready:
            return  # until this spare has its own state
        if stored == NOTHING:
            content = encode(self.state())
            head = Envelope(envelope.STATE, number=len(content))
            self.out.notify(head, successor)
            request = self.comm.Isend(content, successor, Tag.ANSWER)
            uncounted(self.comm).cache.abandoned.append((content, request))
            return
        first = self.count - len(self.sent)
        for entry in list(self.sent)[max(0, stored - first) :]:
            entry[1] = self.out.send(entry[0], successor)

    def state(self) -> dict[str, Any]:
        """Return the state of the Server and of the replica as a tree."""
        answers = [
            [[each.number, each.tag, as_bytes(each.buffer)] for each in answers]
            for answers in self.answers
        ]
        return {
            "server": state(self.server),
            "numbers": [self.count, self.last, self.numbers, sorted(self.dead)],
            "answers": answers,
        }

    def restore(self, predecessor: int, nbytes: int) -> None:
        """Receive the state of the predecessor, unless it dies meanwhile."""
        content = np.empty(nbytes, np.uint8)
        try:
            self.comm.Recv(content, predecessor, Tag.ANSWER)
        except RankFailed:
            return
        tree = decode(content)
        restore(self.server, tree["server"])
        self.count, self.last, self.numbers, dead = tree["numbers"]
        self.dead = set(dead)
        for queue, answers in zip(self.answers, tree["answers"], strict=True):
            queue.extend(Answer(*answer) for answer in answers)
        self.ready = True
        if self.successor is not None:
            self.join(self.successor, self.joined)
        self.take_tail()
