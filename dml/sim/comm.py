"""A virtual communicator: mpi4py's method names, numpy buffers, virtual time.

A send of m bytes, m up to `eager`, is buffered and returns after α + mβ seconds. A
longer send waits until its receive is posted, as MPI may (rendezvous). A receive takes
α + mβ seconds after both are posted and the receiver's in port is free.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dml.sim.matching import Matching
from dml.sim.transfer import (
    ISEND,
    AnyOf,
    VirtualRequest,
    copy_message,
    set_null,
)
from dml.types import ANY, PROC_NULL, TOO_LONG, Status
from dml.types.messages import set_status, source_of, tag_of


class VirtualComm(Matching):
    """Communicator of one rank on a uniform network, which has no links."""

    __slots__ = ()

    def Send(self, buf: np.ndarray, dest: int, tag: int = 0) -> None:
        buf, dest, tag = self._check_send(buf, dest, tag)
        if dest < 0:
            return
        request = self._send("Send(dest", buf, dest, tag)
        if request is not None:
            request.Wait()
        elif self.process.out_free > self.process.clock:
            self.process.clock = self.process.out_free

    def Recv(
        self,
        buf: np.ndarray,
        source: int = ANY,
        tag: int = ANY,
        status: Status | None = None,
    ) -> None:
        if status is not None:
            self.Irecv(buf, source, tag).Wait(status)
            return
        buf, source, tag = self._check_receive(buf, source, tag)
        if source == PROC_NULL:
            return
        done = self._receive("Recv(source", buf, source, tag)
        if done > self.process.clock:
            self.process.clock = done

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
        # The hot path of every collective, a million calls per second. The two common
        # cases make no function calls: a buffered send to a rank that does not wait for
        # it, and a receive whose message has already arrived. Strides and dtypes are
        # checked at the first call with these tags.
        process = self.process
        try:
            peer = self.peers[dest]
            plain = (
                sendtag is self.sendtag
                and recvtag is self.recvtag
                and dest >= 0 <= source < self.size
                and sendbuf.ndim == 1 == recvbuf.ndim
            )
        except (AttributeError, IndexError, TypeError):
            plain = False
        if not plain:
            sendbuf, dest, sendtag = self._check_send(sendbuf, dest, sendtag)
            recvbuf, source, recvtag = self._check_receive(recvbuf, source, recvtag)
            if dest < 0 or source < 0:
                self._sendrecv(sendbuf, dest, sendtag, recvbuf, source, recvtag, status)
                return
            peer = self.peers[dest]
        nbytes = sendbuf.nbytes
        if nbytes > self.eager or peer.posted:
            request = self._send("Sendrecv(dest", sendbuf, dest, sendtag)
            sent = process.out_free
        else:
            request = None
            start = process.clock
            if start < process.out_free:
                start = process.out_free
            duration = self.alpha + self.beta * nbytes
            process.out_free = sent = start + duration
            rank = self.rank
            if peer.blocked_on != rank or not peer._complete_blocked(
                (sendtag, start, duration, sendbuf, None)
            ):
                message = (sendtag, start, duration, sendbuf.copy(), None)
                if rank in peer.inbox:
                    peer.inbox[rank].append(message)
                else:
                    peer.inbox[rank] = [message]
        queue, error = self.inbox.get(source), None
        if (
            queue is None
            and not process.open_receives
            and self.any_source is None
            and status is None
        ):
            self.blocked_on = source
            process.waits = ("Sendrecv(source", recvbuf, source, recvtag)
            process.switch()
            done = self.arrived
        elif (
            queue is None
            or queue[0][0] != recvtag
            or queue[0][4] is not None
            or process.open_receives
        ):
            if status is not None:
                self.Irecv(recvbuf, source, recvtag).Wait(status)
                done = process.clock
            else:
                done = self._receive("Sendrecv(source", recvbuf, source, recvtag)
        else:
            _, start, duration, data, _ = queue.pop(0)
            if not queue:
                del self.inbox[source]
            try:
                if data.dtype is not recvbuf.dtype or data.size != recvbuf.size:
                    raise ValueError
                recvbuf[...] = data  # which may be read-only
            except ValueError:
                error = copy_message(recvbuf, data, source)
            if status is not None:
                count = data.nbytes if error is None else TOO_LONG
                set_status(status, source, recvtag, count)
            if start < process.clock:
                start = process.clock
            if start < process.in_free:
                start = process.in_free
            process.in_free = done = start + duration
        if request is not None:
            request.Wait()
            sent = process.clock
        process.clock = sent if sent > done else done
        if error is not None and status is None:
            raise error

    def _sendrecv(
        self,
        sendbuf: np.ndarray,
        dest: int,
        sendtag: int,
        recvbuf: np.ndarray,
        source: int,
        recvtag: int,
        status: Status | None,
    ) -> None:
        """Send and receive if a rank is PROC_NULL or ANY."""
        process = self.process
        request, sent = None, process.clock
        if dest >= 0:
            request = self._send("Sendrecv(dest", sendbuf, dest, sendtag)
            sent = process.out_free
        if source == PROC_NULL:
            set_null(status)
        elif status is not None:
            self.Irecv(recvbuf, source, recvtag).Wait(status)
        else:
            self._receive("Sendrecv(source", recvbuf, source, recvtag)
        if request is not None:
            request.Wait()
        elif sent > process.clock:
            process.clock = sent

    def Isend(self, buf: np.ndarray, dest: int, tag: int = 0) -> VirtualRequest:
        buf, dest, tag = self._check_send(buf, dest, tag)
        if dest < 0:
            return VirtualRequest.null(self, ISEND, buf)
        request = self._send(ISEND, buf, dest, tag)
        if request is None:
            request = VirtualRequest(self, ISEND, buf, dest, tag)
            request.done = self.process.out_free
        return request

    def Irecv(
        self, buf: np.ndarray, source: int = ANY, tag: int = ANY
    ) -> VirtualRequest:
        buf, source, tag = self._check_receive(buf, source, tag)
        if source == PROC_NULL:
            return VirtualRequest.null(self, "Irecv(source", buf)
        receive = VirtualRequest(self, "Irecv(source", buf, source, tag)
        return self._post(receive, self._pop(source, tag))

    def Probe(
        self, source: int = ANY, tag: int = ANY, status: Status | None = None
    ) -> None:
        source, tag = source_of(source, self.size), tag_of(tag, True)
        if source == PROC_NULL:
            set_null(status)
        else:
            self.match_any().probe(source, tag, status)

    def Iprobe(
        self, source: int = ANY, tag: int = ANY, status: Status | None = None
    ) -> bool:
        source, tag = source_of(source, self.size), tag_of(tag, True)
        if source == PROC_NULL:
            return set_null(status)
        return self.match_any().iprobe(source, tag, status)

    def Waitany(
        self, requests: Sequence[VirtualRequest], status: Status | None = None
    ) -> int:
        """Wait for the first completion; return its index, or -1 if none is active."""
        process = self.process
        waiting = AnyOf([request for request in requests if request.active])
        if not waiting.requests:
            return -1
        if waiting.first().done < 0:
            for request in waiting.requests:
                request.check()
            process.wait(waiting)
        # A request that is not matched yet may still complete before `first`.
        process.order(max(process.clock, waiting.first().done))
        first = waiting.first()
        first.Wait(status)
        return requests.index(first)

    def Waitall(self, requests: Sequence[VirtualRequest]) -> None:
        for request in requests:
            request.Wait()
