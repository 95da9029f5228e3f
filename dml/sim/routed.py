"""A virtual communicator on a network with shared links or with failures.

A message departs once no rank can send an earlier message. Therefore all messages that
enter a link before it are known. `networks.fabric` defines the times of links and
ports.
"""

from typing import Any

import numpy as np

from dml.sim.any_source import Message
from dml.sim.comm import VirtualComm
from dml.sim.events import NEVER
from dml.sim.failures import recheck
from dml.sim.process import describe_message
from dml.sim.transfer import VirtualRequest
from dml.types import ANY, PROC_NULL, Status


class RoutedComm(VirtualComm):
    """Communicator of one rank; messages are routed over links."""

    __slots__ = ()

    def _send(self, name: str, buffer: np.ndarray, dest: int, tag: int) -> Any:
        process, peer = self.process, self.peers[dest]
        process.budget -= 1
        if process.budget < 0:
            process.world.stop(process)
        if process.clock >= process.end_time:
            process.end()
        request = None
        if buffer.nbytes > self.eager:
            request = VirtualRequest(self, name, buffer, dest, tag)
        message = RoutedMessage(self, peer, tag, buffer, request)
        if self._loses(peer, message):
            return request
        if request is None:
            message.data = buffer.copy()
            process.out_free = message.start + message.duration()
            message.schedule_departure(message.start)
        waiting: Any = peer.posted.get(self.rank, ()) if peer.any_source is None else ()
        for i, receive in enumerate(waiting):
            if receive.tag in (tag, ANY):
                del waiting[i]
                message.match(receive)
                return request
        peer.inbox.setdefault(self.rank, []).append(message)
        if peer.any_source is not None:
            peer._deliver(self.rank)
        return request

    def _loses(self, peer: "RoutedComm", message: "RoutedMessage") -> bool:
        """Return whether a message is lost; it also occupies the out port."""
        process = self.process
        links = process.world.links
        if not (links.losses or links.nats):
            return False
        if links.nats:
            process.order(process.clock)  # all earlier messages are sent
        if not links.loses(process.rank, peer.process.rank, message.start):
            return False
        done = message.start + message.duration()
        if message.request is None:
            process.out_free = done
        else:
            message.request.done = done
        return True

    def _receive(self, name: str, buffer: np.ndarray, source: int, tag: int) -> float:
        self._post_receive(name, buffer, source, tag).Wait()
        return self.process.clock

    def _post_receive(
        self, name: str, buffer: np.ndarray, source: int, tag: int
    ) -> VirtualRequest:
        """Post a receive."""
        if self.process.clock >= self.process.end_time:
            self.process.end()
        receive = VirtualRequest(self, name, buffer, source, tag)
        if self.any_source is not None or source == ANY:
            self.match_any().post(receive)
            return receive
        queue = self.inbox.get(source, [])
        for i, message in enumerate(queue):
            if tag in (message.tag, ANY):
                del queue[i]
                if not queue:
                    del self.inbox[source]
                message.match(receive)
                return receive
        self.posted.setdefault(source, []).append(receive)
        return receive

    def _deliver_all(self) -> None:
        for source in self.inbox:
            self._deliver(source)

    def _deliver(self, source: int) -> None:
        """Make arrived and rendezvous messages of a source visible, in send order."""
        queue, time = self.inbox[source], 0.0
        while queue and (queue[0].head >= 0 or queue[0].request is not None):
            time = queue.pop(0).deliver(time)

    def Sendrecv(
        self,
        sendbuf: np.ndarray,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY,
        recvtag: int = ANY,
        status: Status | None = None,
    ) -> None:
        sendbuf, dest, sendtag = self._check_send(sendbuf, dest, sendtag)
        recvbuf, source, recvtag = self._check_receive(recvbuf, source, recvtag)
        if dest < 0 or source < 0:
            self._sendrecv(sendbuf, dest, sendtag, recvbuf, source, recvtag, status)
            return
        request = self._send("Sendrecv(dest", sendbuf, dest, sendtag)
        sent = self.process.out_free
        self._post_receive("Sendrecv(source", recvbuf, source, recvtag).Wait(status)
        if request is not None:
            request.Wait()
        elif sent > self.process.clock:
            self.process.clock = sent

    def Irecv(
        self, buf: np.ndarray, source: int = ANY, tag: int = ANY
    ) -> VirtualRequest:
        buf, source, tag = self._check_receive(buf, source, tag)
        if source == PROC_NULL:
            return VirtualRequest.null(self, "Irecv(source", buf)
        return self._post_receive("Irecv(source", buf, source, tag)

    def unread(self) -> list[str]:
        queues = self.inbox.values()
        messages = [message.describe() for queue in queues for message in queue]
        return messages + (self.any_source.unread() if self.any_source else [])


class RoutedMessage:
    """A message in transit; `head` is its arrival time at the in port, -1 before."""

    __slots__ = (
        *("alpha", "beta", "data", "dest", "head", "hop", "receive", "request"),
        *("lost", "route", "sent", "slowdown", "source", "start", "tag", "time"),
    )

    def __init__(self, source: RoutedComm, dest: RoutedComm, tag, data, request):
        process = source.process
        self.source, self.dest, self.tag, self.data = source, dest, tag, data
        self.request: VirtualRequest | None = request
        self.receive: VirtualRequest | None = None
        self.start = self.time = max(process.clock, process.out_free)
        self.sent = (-process.budget,)  # grows with every send
        self.head, self.hop, self.slowdown = -1.0, 0, 1.0
        self.lost = False  # the sender died before the departure
        links = process.world.links
        self.alpha, self.beta, self.route = links.route(process.rank, dest.process.rank)

    def duration(self) -> float:
        """Return the seconds for which the message occupies a port."""
        return self.alpha + self.beta * self.data.nbytes

    def schedule_departure(self, time: float) -> None:
        """Add the event of the departure."""
        self.time = time
        process = self.source.process
        process.world.schedule(time, process.rank, self.depart, self.sent)

    def match(self, receive: VirtualRequest) -> None:
        """Match the message with a receive."""
        receive.record_match(self.source.rank, self.tag, self.data.nbytes)
        receive.lost = self.lost
        self.receive = receive
        if self.head >= 0:
            self.schedule_arrival()
        elif self.request is not None:
            self.schedule_departure(max(self.start, receive.posted))

    def depart(self) -> None:
        """Depart once the route is not cut and the out port is free."""
        sender, receiver = self.source.process, self.dest.process
        if self.time >= sender.death:
            self.lose()
            return
        links = sender.world.links
        free = (
            self.time
            if self.request is None
            else max(self.time, sender.rendezvous_free)
        )
        time = links.first_open(sender.rank, receiver.rank, free)
        if time == NEVER:
            links.lost.append(self)
        elif time > self.time:
            self.schedule_departure(time)
        else:
            if self.request is not None:
                sender.rendezvous_free = time + self.duration()
            self.slowdown = links.slowdown(sender.rank, receiver.rank, time)
            self.take_link()

    def lose(self) -> None:
        """Mark the message as lost; end the wait for it."""
        self.lost = True
        if self.receive is not None:
            self.receive.lost = True
            recheck(self.dest, self.time)

    def take_link(self) -> None:
        """Occupy the next link; after the last, the head is at the in port."""
        process = self.source.process
        if self.hop < len(self.route):
            link, links = self.route[self.hop], process.world.links
            self.hop += 1
            self.time, beta = links.take_link(link, self.data.nbytes, self.time)
            self.beta = max(self.beta, beta)
            process.world.schedule(self.time, process.rank, self.take_link, self.sent)
            return
        self.head = self.time
        if self.receive is not None:
            self.schedule_arrival()
        elif self.dest.any_source is not None:
            self.dest._deliver(self.source.rank)

    def schedule_arrival(self) -> None:
        """Add the event of entering the in port."""
        process, receive = self.source.process, self.receive
        assert receive is not None
        time = max(self.head, receive.posted)
        process.world.schedule(time, process.rank, self.arrive, self.sent)

    def arrive(self) -> None:
        """Occupy the receiver's in port and fill its buffer."""
        receive, port, request = self.receive, self.dest.process, self.request
        assert receive is not None
        receive.copy(self.data, self.source.rank)
        duration = self.duration() * self.slowdown
        if port.rank in port.world.links.memory:
            done = max(self.head + duration, receive.posted)
        else:
            done = max(self.head, receive.posted, port.in_free) + duration
            port.in_free = done
        if request is not None:
            sender = self.source.process
            sender.rendezvous_free = max(sender.rendezvous_free, done)
            request.finish(done)
        receive.finish(done)

    # Only for receivers that have received from ANY source.

    def deliver(self, after: float) -> float:
        """Make the message visible, not before `after`; return that time."""
        start, nbytes = max(self.head, self.start, after), self.data.nbytes
        message = Message(self.source.rank, self.tag, start, nbytes, self.match)
        any_source = self.dest.any_source
        assert any_source is not None
        any_source.schedule(message, self.source.process.rank, self.sent)
        return start

    def describe(self) -> str:
        return describe_message(
            self.data.nbytes, self.tag, self.source.rank, self.dest.rank
        )
