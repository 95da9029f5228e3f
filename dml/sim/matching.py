"""Matching of virtual messages with receives, on a network without links.

message without receive  ─► inbox, by source        Ranks run ahead of each other.
receive without message  ─► posted, by source       A match whose time depends on
blocking receive waits   ─► copied to its buffer    other messages is an event of
receive from ANY source  ─► the crowd               `World`, in order of time.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dml.sim.crowd import Crowd, Message
from dml.sim.group import Group, Shared
from dml.sim.process import Process, mail
from dml.sim.transfer import VirtualRequest, arrive, fill, settled
from dml.types import ANY

NO_RANK = -2  # neither a rank nor ANY
BUFFERED = float("inf")  # the number of a send without a request


class Matching(Group):
    """One rank's queues of messages and receives.

    A message is a tuple (tag, start, seconds, data, send request or None). Messages
    between two ranks with equal tags never overtake each other.
    """

    __slots__ = ("awaits", "crowd", "inbox", "posted", "arrived")

    def __init__(self, process: Process, rank: int, peers: list[Any], shared: Shared):
        super().__init__(process, rank, peers, shared)
        self.inbox: dict[int, list[Any]] = {}  # by source: sends that wait
        self.posted: dict[int, Any] = {}  # by source: receives that wait
        self.awaits = NO_RANK  # source of the blocking receive without a request
        self.arrived = 0.0  # when its message arrived, in s
        self.crowd: Crowd | None = None

    def _send(self, name: str, buffer: np.ndarray, dest: int, tag: int) -> Any:
        """Post a send; return its request, or None where it is buffered."""
        process, peer, rank = self.process, self.peers[dest], self.rank
        process.left -= 1
        if process.left < 0:
            process.world.stop(process)
        clock = process.clock
        start = process.out_free
        if start < clock:
            start = clock
        nbytes = buffer.nbytes
        took = self.alpha + self.beta * nbytes
        request = None
        if nbytes <= self.eager:
            process.out_free = start + took
        else:
            request = VirtualRequest(process, name, buffer, dest, tag)
            process.offers += 1
        message = (tag, start, took, buffer, request)
        if peer.awaits == rank and peer._hand(message):
            return request
        if peer.crowd is None:
            for i, receive in enumerate(waiting := peer.posted.get(rank, [])):
                if receive.tag == tag or receive.tag == ANY:
                    del waiting[i]
                    if not waiting:
                        del peer.posted[rank]
                    if request is None:
                        message = (tag, start, took, buffer.copy(), None)
                    peer._meet(rank, message, receive)
                    return request
        if request is None:
            message = (tag, start, took, buffer.copy(), None)
        if peer.crowd is not None:
            peer._come(rank, message)
        elif rank in peer.inbox:
            peer.inbox[rank].append(message)
        else:
            peer.inbox[rank] = [message]
        return request

    def _take(self, source: int, tag: int) -> Any:
        """Remove and return the first message from a source; None if there is none."""
        queue = self.inbox.get(source)
        if not queue:
            return None
        i = 0
        if queue[0][0] != tag and tag != ANY:
            i = next((i for i, m in enumerate(queue) if m[0] == tag), -1)
            if i < 0:
                return None
        message = queue.pop(i)
        if not queue:
            del self.inbox[source]
        return message

    def _receive(self, name: str, buffer: np.ndarray, source: int, tag: int) -> float:
        """Receive a message, waiting for it if necessary; return its arrival time."""
        process = self.process
        if process.open or self.crowd is not None or source == ANY:
            receive = VirtualRequest(process, name, buffer, source, tag)
            self._post(receive, self._take(source, tag)).Wait()
            return process.clock
        message = self._take(source, tag)
        if message is None:
            self.awaits = source
            process.wait((name, buffer, source, tag))
            return self.arrived
        sent_tag, start, took, data, request = message
        if request is not None and not settled(request, max(start, process.clock)):
            receive = VirtualRequest(process, name, buffer, source, tag)
            self._post(receive, message).Wait()
            return process.clock
        fill(buffer, data, self.rank, source, sent_tag)
        if start < process.clock:
            start = process.clock
        return arrive(process, start, took, request)

    def _hand(self, message: tuple) -> bool:
        """Complete this rank's blocking receive; return False if the tag differs."""
        tag, start, took, data, request = message
        process = self.process
        _, buffer, source, wanted = process.waits
        if wanted != tag and wanted != ANY:
            return False
        self.awaits = NO_RANK
        meets = start if start > process.clock else process.clock
        if request is not None and not settled(request, meets):
            self._put_off(meets, source, message, partial(self._give, message))
        elif request is not None or data.dtype is not buffer.dtype or buffer.ndim != 1:
            self._give(message)
        else:
            if data.size == buffer.size:
                buffer[...] = data
            else:
                fill(buffer, data, self.rank, source, tag)
            if start < process.clock:
                start = process.clock
            if start < process.in_free:
                start = process.in_free
            process.in_free = self.arrived = start + took
            process.waits = None
            process.world.ready.append(process)
        return True

    def _put_off(
        self, time: float, source: int, message: tuple, call: Callable[[], object]
    ) -> None:
        """Call once no earlier event can occur and the sender's out port is free."""
        _, start, took, _, request = message
        sender = self.peers[source].process

        def when_free() -> None:
            if request is not None and sender.met_free > time:
                self._put_off(sender.met_free, source, message, call)
            else:
                call()

        # Ordered as the messages were sent: a buffered one delays the next.
        sent = (start, request.number if request is not None else BUFFERED, took)
        sender.world.at(time, sender.rank, when_free, sent)

    def _give(self, message: tuple) -> None:
        """Complete the blocking receive of this rank and wake it."""
        tag, start, took, data, request = message
        process = self.process
        _, buffer, source, _ = process.waits
        fill(buffer, data, self.rank, source, tag)
        if start < process.clock:
            start = process.clock
        self.arrived = arrive(process, start, took, request)
        process.wake()

    def _post(self, receive: VirtualRequest, message: Any) -> VirtualRequest:
        """Match a receive with a message, or queue it."""
        self.process.open += 1
        if message:
            self._meet(receive.peer, message, receive)
        elif self.crowd is None and receive.peer != ANY:
            self.posted.setdefault(receive.peer, []).append(receive)
        else:
            self.anyone().want(receive)
        return receive

    def _meet(self, source: int, message: tuple, receive: VirtualRequest) -> None:
        """Match a message with a receive; ports serve messages in the order of time."""
        _, start, _, _, request = message
        process = self.process
        meets = start if start > receive.posted else receive.posted
        alone = process.open == 1 and (
            process.waits is receive or meets < process.clock
        )
        if alone and settled(request, meets):
            self._land(source, message, receive)
        else:
            land = partial(self._land, source, message, receive)
            self._put_off(meets, source, message, land)

    def _land(self, source: int, message: tuple, receive: VirtualRequest) -> None:
        """Occupy the in port and fill the receive buffer."""
        tag, start, took, data, request = message
        self.process.open -= 1
        fill(receive.buffer, data, self.rank, source, tag)
        if start < receive.posted:
            start = receive.posted
        receive.take(source, tag, data.nbytes)
        receive.finish(arrive(self.process, start, took, request))

    def anyone(self) -> Crowd:
        """Match messages in the order of virtual time from now on; return the crowd."""
        if self.crowd is None:
            self.crowd = Crowd(self)
            self._show_all()
            waiting = [receive for queue in self.posted.values() for receive in queue]
            self.crowd.wanted = sorted(waiting, key=lambda receive: receive.posted)
            self.posted = {ANY: True}  # not empty: senders take the slow path
        return self.crowd

    def _show_all(self) -> None:
        for source, queue in self.inbox.items():
            for message in queue:
                self._come(source, message)
        self.inbox.clear()

    def _come(self, source: int, message: tuple) -> None:
        tag, start, _, data, _ = message
        land = partial(self._meet, source, message)
        rank = self.peers[source].process.rank
        self.anyone().come(Message(source, tag, start, data.nbytes, land), rank)

    def unread(self) -> list[str]:
        """Describe the messages that were never received."""
        messages = [
            mail(data.nbytes, tag, source, self.rank)
            for source, queue in self.inbox.items()
            for tag, _, _, data, _ in queue
        ]
        return messages + (self.crowd.unread() if self.crowd else [])
