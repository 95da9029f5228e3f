"""A virtual communicator on a network with shared links or with failures.

A message departs once no rank can send an earlier one. So the messages on its links are
exactly those that reached them before. `networks.fabric` defines the times that
links and ports take.
"""

from typing import Any

import numpy as np

from dml.sim.comm import VirtualComm
from dml.sim.crowd import Message
from dml.sim.events import NEVER
from dml.sim.process import mail
from dml.sim.transfer import VirtualRequest, fill
from dml.types import ANY, Status


class RoutedComm(VirtualComm):
    """One rank's communicator: VirtualComm with routes over links."""

    __slots__ = ()

    def _send(self, name: str, buffer: np.ndarray, dest: int, tag: int) -> Any:
        process, peer = self.process, self.peers[dest]
        process.left -= 1
        if process.left < 0:
            process.world.stop(process)
        if process.clock >= process.ends:
            process.end()
        request = None
        if buffer.nbytes > self.eager:
            request = VirtualRequest(process, name, buffer, dest, tag)
        parcel = Parcel(self, peer, tag, buffer, request)
        if request is None:
            parcel.data = buffer.copy()
            process.out_free = parcel.start + parcel.took()
            parcel.put_off(parcel.start)
        waiting: Any = peer.posted.get(self.rank, ()) if peer.crowd is None else ()
        for i, receive in enumerate(waiting):
            if receive.tag in (tag, ANY):
                del waiting[i]
                parcel.match(receive)
                return request
        peer.inbox.setdefault(self.rank, []).append(parcel)
        if peer.crowd is not None:
            peer._show(self.rank)
        return request

    def _receive(self, name: str, buffer: np.ndarray, source: int, tag: int) -> float:
        self._ask(name, buffer, source, tag).Wait()
        return self.process.clock

    def _ask(
        self, name: str, buffer: np.ndarray, source: int, tag: int
    ) -> VirtualRequest:
        """Post a receive."""
        if self.process.clock >= self.process.ends:
            self.process.end()
        receive = VirtualRequest(self.process, name, buffer, source, tag)
        if self.crowd is not None or source == ANY:
            self.anyone().want(receive)
            return receive
        queue = self.inbox.get(source, [])
        for i, parcel in enumerate(queue):
            if tag in (parcel.tag, ANY):
                del queue[i]
                if not queue:
                    del self.inbox[source]
                parcel.match(receive)
                return receive
        self.posted.setdefault(source, []).append(receive)
        return receive

    def _show_all(self) -> None:
        for source in self.inbox:
            self._show(source)

    def _show(self, source: int) -> None:
        """Make arrived and waiting messages of a source visible, in sending order."""
        queue, time = self.inbox[source], 0.0
        while queue and (queue[0].head >= 0 or queue[0].request is not None):
            time = queue.pop(0).show(time)

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
        request = self._send("Sendrecv(dest", sendbuf, dest, sendtag)
        sent = self.process.out_free
        self._ask("Sendrecv(source", recvbuf, source, recvtag).Wait(status)
        if request is not None:
            request.Wait()
        elif sent > self.process.clock:
            self.process.clock = sent

    def Irecv(
        self, buf: np.ndarray, source: int = ANY, tag: int = ANY
    ) -> VirtualRequest:
        return self._ask("Irecv(source", buf, source, tag)

    def unread(self) -> list[str]:
        parcels = [parcel for queue in self.inbox.values() for parcel in queue]
        messages = [parcel.describe() for parcel in parcels]
        return messages + (self.crowd.unread() if self.crowd else [])


class Parcel:
    """A message in transit; `head`: its arrival at the in port in s, -1 before."""

    __slots__ = (
        *("alpha", "beta", "data", "dest", "head", "hop", "receive", "request"),
        *("route", "sent", "slowed", "source", "start", "tag", "time"),
    )

    def __init__(self, source: RoutedComm, dest: RoutedComm, tag, data, request):
        process = source.process
        self.source, self.dest, self.tag, self.data = source, dest, tag, data
        self.request: VirtualRequest | None = request
        self.receive: VirtualRequest | None = None
        self.start = self.time = max(process.clock, process.out_free)
        self.sent = (-process.left,)  # grows with every send
        self.head, self.hop, self.slowed = -1.0, 0, 1.0
        links = process.world.links
        self.alpha, self.beta, self.route = links.route(process.rank, dest.process.rank)

    def took(self) -> float:
        """Return the seconds for which the message occupies a port."""
        return self.alpha + self.beta * self.data.nbytes

    def put_off(self, time: float) -> None:
        """Add the event of the departure."""
        self.time = time
        process = self.source.process
        process.world.at(time, process.rank, self.depart, self.sent)

    def match(self, receive: VirtualRequest) -> None:
        """Match the message with a receive."""
        receive.take(self.source.rank, self.tag, self.data.nbytes)
        self.receive = receive
        if self.head >= 0:
            self.schedule_arrival()
        elif self.request is not None:
            self.put_off(max(self.start, receive.posted))

    def depart(self) -> None:
        """Leave once the route is not cut and the out port is free."""
        sender, receiver = self.source.process, self.dest.process
        if self.time >= sender.dies:
            return
        links = sender.world.links
        free = self.time if self.request is None else max(self.time, sender.met_free)
        time = links.passable(sender.rank, receiver.rank, free)
        if time == NEVER:
            links.lost.append(self)
        elif time > self.time:
            self.put_off(time)
        else:
            if self.request is not None:
                sender.met_free = time + self.took()
            self.slowed = links.slowed(sender.rank, receiver.rank, time)
            self.take_link()

    def take_link(self) -> None:
        """Occupy the next link; after the last, the head is at the in port."""
        process = self.source.process
        if self.hop < len(self.route):
            link, links = self.route[self.hop], process.world.links
            self.hop += 1
            self.time, beta = links.take_link(link, self.data.nbytes, self.time)
            self.beta = max(self.beta, beta)
            process.world.at(self.time, process.rank, self.take_link, self.sent)
            return
        self.head = self.time
        if self.receive is not None:
            self.schedule_arrival()
        elif self.dest.crowd is not None:
            self.dest._show(self.source.rank)

    def schedule_arrival(self) -> None:
        """Add the event of passing the in port."""
        process, receive = self.source.process, self.receive
        assert receive is not None
        time = max(self.head, receive.posted)
        process.world.at(time, process.rank, self.arrive, self.sent)

    def arrive(self) -> None:
        """Occupy the receiver's in port and fill its buffer."""
        receive, port, request = self.receive, self.dest.process, self.request
        assert receive is not None
        fill(receive.buffer, self.data, self.dest.rank, self.source.rank, self.tag)
        start = max(self.head, receive.posted, port.in_free)
        port.in_free = done = start + self.took() * self.slowed
        if request is not None:
            sender = self.source.process
            sender.met_free = max(sender.met_free, done)
            request.finish(done)
        receive.finish(done)

    # To a rank that receives from ANY source.

    def show(self, after: float) -> float:
        """Make the message visible, not before `after`; return that time."""
        start, nbytes = max(self.head, self.start, after), self.data.nbytes
        message = Message(self.source.rank, self.tag, start, nbytes, self.match)
        crowd = self.dest.crowd
        assert crowd is not None
        crowd.come(message, self.source.process.rank, self.sent)
        return start

    def describe(self) -> str:
        return mail(self.data.nbytes, self.tag, self.source.rank, self.dest.rank)
