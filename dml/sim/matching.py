"""How virtual messages meet their receives, where all ranks are equally far.

sent      ──► inbox, by source, till it is received       Ranks run ahead of each
received  ──► posted, by source, till it is sent          other: what could depend
waited for ─► handed over, straight into the buffer       on who comes first is put
from anyone ► the crowd                                   off until it is settled.
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

NOBODY = -2  # neither a rank nor ANY
BUFFERED = float("inf")  # the number of a send without a request


class Matching(Group):
    """One rank's end, as far as messages find their receives.

    A message is (tag, start, seconds it takes, data, its sender's request or None).
    Those between two ranks with one tag never overtake each other.
    """

    __slots__ = ("awaits", "crowd", "inbox", "posted", "there")

    def __init__(self, process: Process, rank: int, peers: list[Any], shared: Shared):
        super().__init__(process, rank, peers, shared)
        self.inbox: dict[int, list[Any]] = {}  # by source: sends that wait
        self.posted: dict[int, Any] = {}  # by source: receives that wait
        self.awaits = NOBODY  # whose message this rank waits for, without a request
        self.there = 0.0  # when it came
        self.crowd: Crowd | None = None

    def _send(self, name: str, buffer: np.ndarray, dest: int, tag: int) -> Any:
        """Post a send; return its request, or None where it is buffered or done."""
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
        """Take the first message from source that waits; a crowd has none here."""
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
        """Receive, waiting if need be; return when the message is there."""
        process = self.process
        if process.open or self.crowd is not None or source == ANY:
            receive = VirtualRequest(process, name, buffer, source, tag)
            self._post(receive, self._take(source, tag)).Wait()
            return process.clock
        message = self._take(source, tag)
        if message is None:
            self.awaits = source
            process.wait((name, buffer, source, tag))
            return self.there
        found, start, took, data, request = message
        if request is not None and not settled(request, max(start, process.clock)):
            receive = VirtualRequest(process, name, buffer, source, tag)
            self._post(receive, message).Wait()
            return process.clock
        fill(buffer, data, self.rank, source, found)
        if start < process.clock:
            start = process.clock
        return arrive(process, start, took, request)

    def _hand(self, message: tuple) -> bool:
        """Let the receive in which this rank waits take a message, if it fits."""
        tag, start, took, data, request = message
        process = self.process
        _, buffer, source, wanted = process.waits
        if wanted != tag and wanted != ANY:
            return False
        self.awaits = NOBODY
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
            process.in_free = self.there = start + took
            process.waits = None
            process.world.ready.append(process)
        return True

    def _put_off(
        self, time: float, source: int, message: tuple, call: Callable[[], object]
    ) -> None:
        """Call when nothing can come before any more, and the out port is free."""
        _, start, took, _, request = message
        sender = self.peers[source].process

        def when_free() -> None:
            if request is not None and sender.met_free > time:
                self._put_off(sender.met_free, source, message, call)
            else:
                call()

        # In the order in which they were sent: one that is buffered delays the next.
        sent = (start, request.number if request is not None else BUFFERED, took)
        sender.world.at(time, sender.rank, when_free, sent)

    def _give(self, message: tuple) -> None:
        tag, start, took, data, request = message
        process = self.process
        _, buffer, source, _ = process.waits
        fill(buffer, data, self.rank, source, tag)
        if start < process.clock:
            start = process.clock
        self.there = arrive(process, start, took, request)
        process.wake()

    def _post(self, receive: VirtualRequest, message: Any) -> VirtualRequest:
        """Let a receive take the message that waits, or wait for one."""
        self.process.open += 1
        if message:
            self._meet(receive.peer, message, receive)
        elif self.crowd is None and receive.peer != ANY:
            self.posted.setdefault(receive.peer, []).append(receive)
        else:
            self.anyone().want(receive)
        return receive

    def _meet(self, source: int, message: tuple, receive: VirtualRequest) -> None:
        """Let a receive take a message; at a port the first in time is the first."""
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
        """Pass the in port and fill the buffer."""
        tag, start, took, data, request = message
        self.process.open -= 1
        fill(receive.buffer, data, self.rank, source, tag)
        if start < receive.posted:
            start = receive.posted
        receive.take(source, tag, data.nbytes)
        receive.finish(arrive(self.process, start, took, request))

    def anyone(self) -> Crowd:
        """From now on settle in the order of virtual time who comes first."""
        if self.crowd is None:
            self.crowd = Crowd(self)
            self._show_all()
            waiting = [each for posted in self.posted.values() for each in posted]
            self.crowd.wanted = sorted(waiting, key=lambda receive: receive.posted)
            self.posted = {ANY: True}  # whoever sends takes the slow way
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
        """Describe the messages that wait here for ever."""
        kept = [
            mail(data.nbytes, tag, source, self.rank)
            for source, queue in self.inbox.items()
            for tag, _, _, data, _ in queue
        ]
        return kept + (self.crowd.unread() if self.crowd else [])
