"""A virtual communicator: mpi4py's method names, numpy buffers, virtual time.

Up to `network.eager` bytes a send is buffered and its sender goes on after α + mβ;
above, it waits for its receive, as MPI may. A receive takes α + mβ from the moment
when both ends are there and the in port is free.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dml.sim.meeting import Meeting, VirtualWindow, meet
from dml.sim.networks.uniform import Uniform
from dml.sim.transfer import VirtualRequest, arrive, fill
from dml.sim.world import Process
from dml.types import BadInput, Op


class VirtualComm:
    """One rank's end of a virtual communicator."""

    __slots__ = (
        *("alpha", "beta", "eager", "gamma", "inbox", "kept", "peers", "posted"),
        *("process", "rank", "room", "size"),
    )

    def __init__(self, process: Process, rank: int, peers: list["VirtualComm"]):
        self.process, self.rank, self.peers = process, rank, peers
        self.size = 0  # known when the group is complete
        self.inbox: dict[int, list[tuple]] = {}  # by source: sends that wait
        self.posted: dict[int, list[VirtualRequest]] = {}  # by source: receives
        self.kept: dict[Any, Any] = {}
        network = self.network
        self.alpha, self.beta = float(network.alpha), float(network.beta)
        self.gamma, self.eager = float(network.gamma), network.eager
        self.room: list[Meeting] = []  # the meeting that the group is coming to

    @staticmethod
    def group(processes: Sequence[Process]) -> list["VirtualComm"]:
        """Connect processes; the k-th becomes rank k."""
        peers: list[VirtualComm] = []
        room: list[Meeting] = []
        for rank, process in enumerate(processes):
            peers.append(VirtualComm(process, rank, peers))
        for comm in peers:
            comm.size, comm.room = len(peers), room
        return peers

    # Messages. Those between two ranks with one tag never overtake each other.

    def _send(self, name: str, buffer: np.ndarray, dest: int, tag: int) -> Any:
        """Post a send; return its request, or None where it is buffered or done."""
        process, peer, rank = self.process, self.peers[dest], self.rank
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
        waiting = peer.posted.get(rank)
        if waiting:
            for i, receive in enumerate(waiting):
                if receive.tag == tag:
                    del waiting[i]
                    if not waiting:
                        del peer.posted[rank]
                    fill(receive.buffer, buffer, peer.rank, rank, tag)
                    if start < receive.posted:
                        start = receive.posted
                    receive.finish(arrive(peer.process, start, took, request))
                    return request
        data = buffer.copy() if request is None else buffer
        queue = peer.inbox.get(rank)
        if queue is None:
            peer.inbox[rank] = [(tag, start, took, data, request)]
        else:
            queue.append((tag, start, took, data, request))
        return request

    def _receive(self, name: str, buffer: np.ndarray, source: int, tag: int) -> Any:
        """Post a receive; return its request, or when it is done."""
        process = self.process
        queue = self.inbox.get(source)
        if queue:
            i = 0
            if queue[0][0] != tag:
                i = next((i for i, m in enumerate(queue) if m[0] == tag), -1)
            if i >= 0:
                message = queue.pop(i)
                if not queue:
                    del self.inbox[source]
                _, start, took, data, request = message
                fill(buffer, data, self.rank, source, tag)
                if start < process.clock:
                    start = process.clock
                return arrive(process, start, took, request)
        receive = VirtualRequest(process, name, buffer, source, tag)
        self.posted.setdefault(source, []).append(receive)
        return receive

    def Send(self, buf: np.ndarray, dest: int, tag: int = 0) -> None:
        request = self._send("Send(dest", buf, dest, tag)
        if request is not None:
            request.Wait()
        elif self.process.out_free > self.process.clock:
            self.process.clock = self.process.out_free

    def Recv(self, buf: np.ndarray, source: int, tag: int = 0) -> None:
        done = self._receive("Recv(source", buf, source, tag)
        if done.__class__ is not float:
            done.Wait()
        elif done > self.process.clock:
            self.process.clock = done

    def Sendrecv(
        self,
        sendbuf: np.ndarray,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = 0,
        recvtag: int = 0,
    ) -> None:
        # The hot path of every collective, a million a second: a buffered send to a
        # rank that does not wait for it, and a message that is there, without calls.
        process, peer = self.process, self.peers[dest]
        nbytes = sendbuf.nbytes
        if nbytes > self.eager or peer.posted:
            request = self._send("Sendrecv(dest", sendbuf, dest, sendtag)
            sent = process.out_free
        else:
            request = None
            start = process.clock
            if start < process.out_free:
                start = process.out_free
            took = self.alpha + self.beta * nbytes
            process.out_free = sent = start + took
            message = (sendtag, start, took, sendbuf.copy(), None)
            if self.rank in peer.inbox:
                peer.inbox[self.rank].append(message)
            else:
                peer.inbox[self.rank] = [message]
        queue = self.inbox.get(source)
        if queue is None or queue[0][0] != recvtag or queue[0][4] is not None:
            done = self._receive("Sendrecv(source", recvbuf, source, recvtag)
            if done.__class__ is not float:
                done.Wait()
                done = process.clock
        else:
            _, start, took, data, _ = queue.pop(0)
            if not queue:
                del self.inbox[source]
            if (
                data.size == recvbuf.size
                and data.dtype is recvbuf.dtype
                and data.ndim == recvbuf.ndim == 1
            ):
                recvbuf[...] = data
            else:
                fill(recvbuf, data, self.rank, source, recvtag)
            if start < process.clock:
                start = process.clock
            if start < process.in_free:
                start = process.in_free
            process.in_free = done = start + took
        if request is not None:
            request.Wait()
        process.clock = sent if sent > done else done

    def Isend(self, buf: np.ndarray, dest: int, tag: int = 0) -> VirtualRequest:
        request = self._send("Isend(dest", buf, dest, tag)
        if request is None:
            request = VirtualRequest(self.process, "Isend(dest", buf, dest, tag)
            request.done = self.process.out_free
        return request

    def Irecv(self, buf: np.ndarray, source: int, tag: int = 0) -> VirtualRequest:
        done = self._receive("Irecv(source", buf, source, tag)
        if done.__class__ is not float:
            return done
        request = VirtualRequest(self.process, "Irecv(source", buf, source, tag)
        request.done = done
        return request

    # Collective calls, as a perfect MPI would have them.

    def Barrier(self) -> None:
        meet(self, "Barrier", None, lambda values: None)

    def Allreduce(self, sendbuf: Any, recvbuf: np.ndarray, op: Op = np.add) -> None:
        """Reduce in rank order, in the time of the lower bound (Chan 2007)."""
        share = (self.size - 1) / self.size * recvbuf.nbytes

        def conclude(buffers: list[np.ndarray]) -> np.ndarray:
            total = buffers[0].copy()
            for buffer in buffers[1:]:
                op(total, buffer, out=total)
            return total

        cost = share * (2 * self.beta + self.gamma)
        recvbuf[...] = meet(self, "Allreduce", recvbuf, conclude, cost)

    def Split(self, color: int = 0, key: int = 0) -> "VirtualComm":
        def conclude(wishes: list[tuple[int, int]]) -> list["VirtualComm"]:
            mine: dict[int, VirtualComm] = {}
            for one in sorted({color for color, _ in wishes}):
                ranks = [r for r, wish in enumerate(wishes) if wish[0] == one]
                ranks.sort(key=lambda rank: (wishes[rank][1], rank))
                group = VirtualComm.group([self.peers[r].process for r in ranks])
                mine |= zip(ranks, group, strict=True)
            return [mine[rank] for rank in range(self.size)]

        return meet(self, "Split", (color, key), conclude)[self.rank]

    def Dup(self) -> "VirtualComm":
        return self.Split(0, self.rank)

    def Free(self) -> None:
        self.kept.clear()

    def around(self, comm: "VirtualComm") -> "VirtualComm":
        return comm

    def hosts(self) -> list[int]:
        """The host of every rank, numbered by their lowest rank."""
        width = self.network.host or len(self.process.world.processes)
        names = [peer.process.rank // width for peer in self.peers]
        order = {name: i for i, name in enumerate(dict.fromkeys(names))}
        return [order[name] for name in names]

    def shared_window(self, nbytes: int) -> VirtualWindow:
        if max(self.hosts()):
            raise BadInput(f"rank {self.rank}: a shared window needs one host")

        def conclude(sizes: list[int]) -> list[np.ndarray]:
            return [np.zeros(size, np.uint8) for size in sizes]

        return VirtualWindow(self, meet(self, "Window", nbytes, conclude))

    # Time.

    machine = ""

    @property
    def raw(self) -> "VirtualComm":
        return self

    @property
    def network(self) -> Uniform:
        return self.process.world.network

    @property
    def pause(self) -> Callable[[], None]:
        return self.process.pause

    def Wtime(self) -> float:
        return self.process.clock

    def compute(self, seconds: float) -> None:
        """Let this rank's clock advance."""
        self.process.world.progress()
        self.process.clock += seconds

    def Reduce_local(
        self,
        inbuf: np.ndarray,
        inoutbuf: np.ndarray,
        op: Op,
        out: np.ndarray | None = None,
    ) -> None:
        op(inoutbuf, inbuf, out=inoutbuf if out is None else out)
        self.process.clock += self.gamma * inoutbuf.nbytes
