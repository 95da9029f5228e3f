"""A worker's end of chains of replicas: a communicator in which each is one server.

    worker ── message k ──► head ─► middle ─► tail
       ▲                                       │
       └──── answer n, acknowledges k ─────────┘

A send completes when the tail has its message. If the head dies, messages that are not
acknowledged are sent to the next head, in their order. Answers that the tail repeats
are dropped by their numbers. Cost: one copy of each message and answer.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dml.types import ANY, Comm, RankFailed, Status
from dml.wire.comm.surviving import new_deaths
from dml.wire.comm.tags import Tag
from dml.wire.comm.wrapper import Wrapper
from dml.wire.plans.chain import Chain
from dml.wire.server import envelope
from dml.wire.server.envelope import Envelope, as_bytes
from dml.wire.server.inbox import Inbox
from dml.wire.server.outgoing import Outgoing


class Link:
    """The messages and answers between a worker and one chain."""

    def __init__(self, chain: Chain):
        self.chain = chain
        self.head = chain.head(())
        self.number = 0  # number of messages so far
        self.acknowledged = 0  # number of messages that the tail has stored
        # not acknowledged: message, send request, time of the first send
        self.unacknowledged: deque[list[Any]] = deque()
        self.received = 0  # number of answers
        self.posted: dict[int, deque[ChainReceive]] = {}  # by tag
        self.arrived: dict[int, deque[np.ndarray]] = {}  # without a receive, by tag
        self.times: list[tuple[float, float]] = []  # of send and acknowledgement


class Replicated(Wrapper):
    """Delegates all messages, except those to and from the chains.

    comm: Surviving communicator of all ranks.
    chains: the chain of each server; its first member is the server's rank.
    nbytes: size of the largest answer.
    """

    def __init__(self, comm: Comm, chains: Sequence[Chain], nbytes: int):
        super().__init__(comm)
        self.links = {chain.members[0]: Link(chain) for chain in chains}
        self.link_of = {
            rank: link for link in self.links.values() for rank in link.chain.members
        }
        self.inbox = Inbox(comm, envelope.NBYTES + nbytes, Tag.ANSWER)
        self.out = Outgoing(comm, Tag.CHAIN)
        self.failed: set[int] = set()
        comm.Ack_failed()  # from now on a death ends the wait for an answer
        self.repair()

    # Operations of a Comm.

    def Isend(self, buf: np.ndarray, dest: int, tag: int = 0) -> Any:
        if dest not in self.links:
            return self.comm.Isend(buf, dest, tag)
        link = self.links[dest]
        link.number += 1
        head = Envelope(envelope.UPDATE, self.rank, link.number, link.received, tag)
        message = head._replace(content=as_bytes(buf)).pack()
        entry = [message, None, self.Wtime()]
        link.unacknowledged.append(entry)
        self.send(link, entry)
        return ChainSend(self, link, link.number)

    def Irecv(self, buf: np.ndarray, source: int = ANY, tag: int = ANY) -> Any:
        if source not in self.links:
            return self.comm.Irecv(buf, source, tag)
        link = self.links[source]
        receive = ChainReceive(self, buf, source, tag)
        if link.arrived.get(tag):
            receive.copy(link.arrived[tag].popleft())
        else:
            link.posted.setdefault(tag, deque()).append(receive)
        return receive

    def Iprobe(self, source: int = ANY, tag: int = ANY, status: Any = None) -> bool:
        if source not in self.links:
            return self.comm.Iprobe(source, tag, status)
        self.poll()
        return bool(self.links[source].arrived.get(tag))

    def Waitall(self, requests: Sequence[Any]) -> None:
        for request in requests:
            request.Wait()

    # Messages.

    def send(self, link: Link, entry: list[Any]) -> None:
        """Send a message to the head of a chain."""
        if link.head is None:
            ranks = ", ".join(map(str, link.chain.members))
            raise RankFailed(f"rank {self.rank}: all ranks of a server died: {ranks}")
        entry[1] = self.out.send(entry[0], link.head)

    def wait(self, done: Callable[[], bool]) -> None:
        """Handle answers until done() is true."""
        while not done():
            try:
                self.inbox.post().Wait(self.inbox.status)
            except RankFailed:
                self.repair()
            else:
                self.inbox.posted = None
                self.handle_inbox()

    def poll(self) -> None:
        """Handle all answers that have arrived."""
        try:
            self.inbox.post()
            while self.inbox.poll():
                self.handle_inbox()
                self.inbox.post()
        except RankFailed:
            self.repair()

    def repair(self) -> None:
        """Send messages to the next head if the head of a chain has died."""
        if self.inbox.withdraw():
            self.handle_inbox()
        if self.comm.Is_revoked():
            raise RankFailed(f"rank {self.rank}: a server lost all its replicas")
        new_deaths(self.comm, self.failed)
        for link in self.links.values():
            head = link.chain.head(self.failed)
            if head != link.head:
                link.head = head
                for entry in link.unacknowledged:
                    entry[1].Wait()  # to a dead rank
                    self.send(link, entry)

    def handle_inbox(self) -> None:
        """Handle the message in the inbox."""
        answer = envelope.unpack(self.inbox.content(envelope.NBYTES))
        link = self.link_of[self.inbox.status.source]
        while link.acknowledged < answer.number:
            _, request, sent = link.unacknowledged.popleft()
            request.Wait()  # the head has received it, or has died
            link.acknowledged += 1
            link.times.append((sent, self.Wtime()))
        if answer.kind == envelope.ANSWER and answer.received == link.received:
            link.received += 1
            posted = link.posted.get(answer.tag)
            if posted:
                posted.popleft().copy(answer.content)
            else:
                arrived = link.arrived.setdefault(answer.tag, deque())
                arrived.append(answer.content.copy())

    def times(self) -> list[tuple[float, float]]:
        """Return seconds of the send and the acknowledgement of each message."""
        return [times for link in self.links.values() for times in link.times]

    def leave(self) -> None:
        """Notify all replicas that this worker needs no more answers."""
        self.inbox.withdraw()
        for rank in self.link_of:
            self.out.notify(Envelope(envelope.LEAVE, self.rank), rank)


class ChainSend:
    """A message to a chain; it completes when the tail has stored it."""

    def __init__(self, comm: Replicated, link: Link, number: int):
        self.comm, self.link, self.number = comm, link, number

    def done(self) -> bool:
        return self.link.acknowledged >= self.number

    def Wait(self, status: Any = None) -> bool:
        self.comm.wait(self.done)
        return True

    def Test(self, status: Any = None) -> bool:
        if not self.done():
            self.comm.poll()
        return self.done()


class ChainReceive:
    """A receive from a chain, of its next answer with this tag."""

    def __init__(self, comm: Replicated, buffer: np.ndarray, source: int, tag: int):
        self.comm, self.buffer, self.status = comm, buffer, Status()
        self.status.source, self.status.tag = source, tag
        self.complete = False

    def copy(self, content: np.ndarray) -> None:
        """Complete with the content of an answer."""
        into = self.buffer.reshape(-1).view(np.uint8)
        into[: len(content)] = content
        self.status.count, self.complete = len(content), True

    def Wait(self, status: Any = None) -> bool:
        self.comm.wait(lambda: self.complete)
        if status is not None:
            vars(status).update(vars(self.status))
        return True

    def Test(self, status: Any = None) -> bool:
        if not self.complete:
            self.comm.poll()
        return self.complete and self.Wait(status)
