"""Matching of virtual messages with receives, on a network without links.

message without receive  ─► inbox, by source        Ranks run ahead in virtual time.
receive without message  ─► posted, by source       A match whose time depends on
message awaited by Recv  ─► copied to its buffer    other messages is an event of
receive from ANY source  ─► AnySource               `World`, in order of time.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from dml.sim.any_source import AnySource, Message
from dml.sim.group import Group, Shared
from dml.sim.process import Process, describe_message
from dml.sim.transfer import VirtualRequest, copy_message, is_next, occupy_in_port
from dml.types import ANY
from dml.types.messages import (
    CONTIGUOUS,
    TAG_UB,
    WRITEABLE,
    dest_of,
    is_vector,
    memory_of,
    source_of,
    tag_of,
)

NO_RANK = -1  # neither a rank nor ANY
BUFFERED = float("inf")  # order of a buffered send, after sends with requests


class Matching(Group):
    """One rank's queues of messages and receives.

    A message is a tuple (tag, start in s, port time in s, data, send request or None if
    buffered). Messages between two ranks with equal tags never overtake each other.
    The data are a contiguous vector.

    Attributes:
      sendtag, recvtag: The last tags that were found valid.
    """

    __slots__ = (
        *("blocked_on", "any_source", "inbox", "posted", "arrived"),
        *("recvtag", "sendtag"),
    )

    def __init__(self, process: Process, rank: int, peers: list[Any], shared: Shared):
        super().__init__(process, rank, peers, shared)
        self.inbox: dict[int, list[Any]] = {}  # by source: messages without a receive
        self.posted: dict[int, Any] = {}  # by source: receives without a message
        self.blocked_on = NO_RANK  # source of the blocking receive without a request
        self.arrived = 0.0  # arrival time of the message of that receive, in s
        self.any_source: AnySource | None = None
        self.sendtag: Any = None
        self.recvtag: Any = None

    def _check_send(
        self, buffer: Any, dest: Any, tag: Any
    ) -> tuple[np.ndarray, int, int]:
        """Return the memory, the destination and the tag of a send, if they are valid.

        The destination may be PROC_NULL.
        """
        try:
            self.peers[dest]  # an integer of at most the last rank
            plain = dest >= 0 and isinstance(tag, int) and 0 <= tag <= TAG_UB
            if not plain or not is_vector(buffer, CONTIGUOUS):
                raise TypeError
        except (IndexError, TypeError):
            dest, tag = dest_of(dest, self.size), tag_of(tag)
            buffer = memory_of(buffer)
        self.sendtag = tag
        return buffer, dest, tag

    def _check_receive(
        self, buffer: Any, source: Any, tag: Any
    ) -> tuple[np.ndarray, int, int]:
        """Return the memory, the source and the tag of a receive, if they are valid.

        The source may be PROC_NULL.
        """
        try:
            self.peers[source]
            plain = source >= 0 and isinstance(tag, int) and 0 <= tag <= TAG_UB
            if not plain or not is_vector(buffer, WRITEABLE):
                raise TypeError
        except (IndexError, TypeError):
            source, tag = source_of(source, self.size), tag_of(tag, True)
            buffer = memory_of(buffer, writeable=True)
        self.recvtag = tag
        return buffer, source, tag

    def _send(self, name: str, buffer: np.ndarray, dest: int, tag: int) -> Any:
        """Post a send; return its request, or None if the send is buffered.

        The arguments are those of `_check_send`; the destination is a rank.
        """
        process, peer, rank = self.process, self.peers[dest], self.rank
        process.budget -= 1
        if process.budget < 0:
            process.world.stop(process)
        clock = process.clock
        start = process.out_free
        if start < clock:
            start = clock
        nbytes = buffer.nbytes
        duration = self.alpha + self.beta * nbytes
        request = None
        if nbytes <= self.eager:
            process.out_free = start + duration
        else:
            request = VirtualRequest(self, name, buffer, dest, tag)
            process.waiting_sends += 1
        message = (tag, start, duration, buffer, request)
        if peer.blocked_on == rank and peer._complete_blocked(message):
            return request
        if peer.any_source is None:
            for i, receive in enumerate(waiting := peer.posted.get(rank, [])):
                if receive.tag == tag or receive.tag == ANY:
                    del waiting[i]
                    if not waiting:
                        del peer.posted[rank]
                    if request is None:
                        message = (tag, start, duration, buffer.copy(), None)
                    peer._match(rank, message, receive)
                    return request
        if request is None:
            message = (tag, start, duration, buffer.copy(), None)
        if peer.any_source is not None:
            peer._schedule(rank, message)
        elif rank in peer.inbox:
            peer.inbox[rank].append(message)
        else:
            peer.inbox[rank] = [message]
        return request

    def _pop(self, source: int, tag: int) -> Any:
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
        if process.open_receives or self.any_source is not None or source == ANY:
            receive = VirtualRequest(self, name, buffer, source, tag)
            self._post(receive, self._pop(source, tag)).Wait()
            return process.clock
        message = self._pop(source, tag)
        if message is None:
            self.blocked_on = source
            process.wait((name, buffer, source, tag))
            return self.arrived
        sent_tag, start, duration, data, request = message
        if request is not None and not is_next(request, max(start, process.clock)):
            receive = VirtualRequest(self, name, buffer, source, tag)
            self._post(receive, message).Wait()
            return process.clock
        error = copy_message(buffer, data, source)
        if start < process.clock:
            start = process.clock
        done = occupy_in_port(process, start, duration, request)
        if error:
            raise error
        return done

    def _complete_blocked(self, message: tuple) -> bool:
        """Complete this rank's blocking receive; return False if the tag differs."""
        tag, start, duration, data, request = message
        process = self.process
        _, buffer, source, wanted_tag = process.waits
        if wanted_tag != tag and wanted_tag != ANY:
            return False
        self.blocked_on = NO_RANK
        both_posted = start if start > process.clock else process.clock
        if request is not None and not is_next(request, both_posted):
            self._defer(
                both_posted, source, message, partial(self._finish_blocked, message)
            )
        elif (
            request is not None
            or data.dtype is not buffer.dtype
            or data.size != buffer.size
        ):
            self._finish_blocked(message)
        else:
            try:
                buffer[...] = data
            except ValueError:  # read-only
                self._finish_blocked(message)
                return True
            if start < process.clock:
                start = process.clock
            if start < process.in_free:
                start = process.in_free
            process.in_free = self.arrived = start + duration
            process.waits = None
            process.world.ready.append(process)
        return True

    def _defer(
        self, time: float, source: int, message: tuple, call: Callable[[], object]
    ) -> None:
        """Call `call` once no earlier event can occur and the sender's port is free."""
        _, start, duration, _, request = message
        sender = self.peers[source].process

        def when_free() -> None:
            if request is not None and sender.rendezvous_free > time:
                self._defer(sender.rendezvous_free, source, message, call)
            else:
                call()

        # in the order in which messages were sent: a buffered send delays the next send
        sent = (start, request.number if request is not None else BUFFERED, duration)
        sender.world.schedule(time, sender.rank, when_free, sent)

    def _finish_blocked(self, message: tuple) -> None:
        """Complete the blocking receive of this rank and wake it."""
        tag, start, duration, data, request = message
        process = self.process
        _, buffer, source, _ = process.waits
        error = copy_message(buffer, data, source)
        if start < process.clock:
            start = process.clock
        self.arrived = occupy_in_port(process, start, duration, request)
        if error is None:
            process.wake()
        else:
            process.clock = max(process.clock, self.arrived)
            process.interrupt(error)

    def _post(self, receive: VirtualRequest, message: Any) -> VirtualRequest:
        """Match a receive with a message, or queue it."""
        self.process.open_receives += 1
        if message:
            self._match(receive.peer, message, receive)
        elif self.any_source is None and receive.peer != ANY:
            self.posted.setdefault(receive.peer, []).append(receive)
        else:
            self.match_any().post(receive)
        return receive

    def _match(self, source: int, message: tuple, receive: VirtualRequest) -> None:
        """Match a message with a receive; ports serve messages in the order of time."""
        _, start, _, _, request = message
        process = self.process
        both_posted = start if start > receive.posted else receive.posted
        only = process.open_receives == 1 and (
            process.waits is receive or both_posted < process.clock
        )
        if only and is_next(request, both_posted):
            self._complete(source, message, receive)
        else:
            complete = partial(self._complete, source, message, receive)
            self._defer(both_posted, source, message, complete)

    def _complete(self, source: int, message: tuple, receive: VirtualRequest) -> None:
        """Occupy the in port and fill the receive buffer."""
        tag, start, duration, data, request = message
        self.process.open_receives -= 1
        receive.copy(data, source)
        if start < receive.posted:
            start = receive.posted
        receive.record_match(source, tag, data.nbytes)
        receive.finish(occupy_in_port(self.process, start, duration, request))

    def withdraw(self, receive: VirtualRequest) -> bool:
        """Remove a receive that has no message; return False if there is none."""
        waiting = self.posted.get(receive.peer, [])
        if self.any_source is not None:
            waiting = self.any_source.receives
        if receive not in waiting:
            return False
        waiting.remove(receive)
        if not waiting:
            self.posted.pop(receive.peer, None)
        if self.any_source is not None:
            self.posted = {ANY: True}
        return True

    def match_any(self) -> AnySource:
        """Match messages in the order of virtual time from now on."""
        if self.any_source is None:
            self.any_source = AnySource(self)
            self._deliver_all()
            waiting = [receive for queue in self.posted.values() for receive in queue]
            self.any_source.receives = sorted(
                waiting, key=lambda receive: receive.posted
            )
            self.posted = {ANY: True}  # not empty, so that Sendrecv calls _send
        return self.any_source

    def _deliver_all(self) -> None:
        for source, queue in self.inbox.items():
            for message in queue:
                self._schedule(source, message)
        self.inbox.clear()

    def _schedule(self, source: int, message: tuple) -> None:
        tag, start, _, data, _ = message
        match = partial(self._match, source, message)
        rank = self.peers[source].process.rank
        self.match_any().schedule(Message(source, tag, start, data.nbytes, match), rank)

    @property
    def is_blocked(self) -> bool:
        """Whether this rank waits in a blocking receive without a request."""
        return self.blocked_on != NO_RANK

    def forget_blocked(self) -> None:
        """End the blocking receive of this rank."""
        self.blocked_on = NO_RANK

    def unread(self) -> list[str]:
        """Describe the messages that were never received."""
        messages = [
            describe_message(data.nbytes, tag, source, self.rank)
            for source, queue in self.inbox.items()
            for tag, _, _, data, _ in queue
        ]
        return messages + (self.any_source.unread() if self.any_source else [])
