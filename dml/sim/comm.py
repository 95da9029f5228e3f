"""A virtual communicator: mpi4py's method names, numpy buffers, virtual time.

Up to `network.eager` bytes a send is buffered and its sender goes on after α + mβ;
above, it waits for its receive, as MPI may. A receive takes α + mβ from the moment
when both ends are there and the in port is free.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dml.sim.network import Uniform
from dml.sim.world import Process
from dml.types import BadInput, Op


class VirtualRequest:
    """A send or receive under way; `done` is when its buffer is free, -1 before."""

    __slots__ = ("buffer", "done", "name", "peer", "posted", "process", "tag")

    def __init__(self, process: Process, name: str, buffer: Any, peer: int, tag: int):
        self.process, self.name, self.buffer = process, name, buffer
        self.peer, self.tag, self.posted, self.done = peer, tag, process.clock, -1.0

    def finish(self, done: float) -> None:
        self.done = done
        if self.process.waits is self:
            self.process.wake()
        else:
            self.process.world.progress()

    def describe(self) -> str:
        tag = getattr(self.tag, "name", self.tag)
        return f"{self.name}={self.peer}, tag={tag}, {self.buffer.nbytes} bytes)"

    def Wait(self, status: Any = None) -> bool:
        process = self.process
        if self.done < 0:
            process.wait(self)
        if self.done > process.clock:
            process.clock = self.done
        return True

    def Test(self, status: Any = None) -> bool:
        """Say whether it is done by now; if not, let the other ranks run first."""
        process = self.process
        if not 0 <= self.done <= process.clock:
            process.polls = self
            process.pause()
            process.polls = None
        return 0 <= self.done <= process.clock


class Meeting:
    """Ranks of one communicator that have come to a collective call."""

    def __init__(self, name: str, size: int):
        self.name = name
        self.values: list[Any] = [None] * size
        self.came: list[Process] = []
        self.done = -1.0
        self.result: Any = None

    def describe(self) -> str:
        return f"{self.name}(), where {len(self.came)} of {len(self.values)} ranks are"


class VirtualWindow:
    """Shared memory of a virtual host."""

    def __init__(self, comm: "VirtualComm", parts: list[np.ndarray]):
        self.comm, self.parts = comm, parts

    def meet(self, pause: Any = None) -> None:
        """Meet all ranks, as `Barrier` does; a pause of another kind is for polling."""
        if pause == self.comm.pause:
            pause = None
        self.comm._meet("meet", None, lambda values: None, pause=pause)

    def Free(self) -> None:
        self.parts = []


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

    def _meet(
        self,
        name: str,
        value: Any,
        conclude: Callable[[list], Any],
        cost: float = 0,
        pause: Any = None,
    ) -> Any:
        """Wait for all ranks; the last one concludes from their values."""
        process = self.process
        if not self.room:
            self.room.append(Meeting(name, self.size))
        meeting = self.room[0]
        if meeting.name != name:
            raise BadInput(
                f"rank {self.rank} calls {name}() where {len(meeting.came)} of "
                f"{self.size} ranks call {meeting.name}(); all must call the same"
            )
        process.world.progress()
        meeting.values[self.rank] = value
        meeting.came.append(process)
        if len(meeting.came) == self.size:
            self.room.clear()
            meeting.result = conclude(meeting.values)
            rounds = (self.size - 1).bit_length()
            start = max(process.clock for process in meeting.came)
            meeting.done = start + rounds * self.alpha + cost
            for other in meeting.came:
                if other.waits is meeting:
                    other.wake()
        elif pause is None:
            process.wait(meeting)
        if pause is None:
            process.clock = max(process.clock, meeting.done)
        while not 0 <= meeting.done <= process.clock:
            process.polls = meeting
            process.pause()
            if not 0 <= meeting.done <= process.clock:
                pause()
        process.polls = None
        return meeting.result

    def Barrier(self) -> None:
        self._meet("Barrier", None, lambda values: None)

    def Allreduce(self, sendbuf: Any, recvbuf: np.ndarray, op: Op = np.add) -> None:
        """Reduce in rank order, in the time of the lower bound (Chan 2007)."""
        share = (self.size - 1) / self.size * recvbuf.nbytes

        def conclude(buffers: list[np.ndarray]) -> np.ndarray:
            total = buffers[0].copy()
            for buffer in buffers[1:]:
                op(total, buffer, out=total)
            return total

        cost = share * (2 * self.beta + self.gamma)
        recvbuf[...] = self._meet("Allreduce", recvbuf, conclude, cost)

    def Split(self, color: int = 0, key: int = 0) -> "VirtualComm":
        def conclude(wishes: list[tuple[int, int]]) -> list["VirtualComm"]:
            mine: dict[int, VirtualComm] = {}
            for one in sorted({color for color, _ in wishes}):
                ranks = [r for r, wish in enumerate(wishes) if wish[0] == one]
                ranks.sort(key=lambda rank: (wishes[rank][1], rank))
                group = VirtualComm.group([self.peers[r].process for r in ranks])
                mine |= zip(ranks, group, strict=True)
            return [mine[rank] for rank in range(self.size)]

        return self._meet("Split", (color, key), conclude)[self.rank]

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

        return VirtualWindow(self, self._meet("Window", nbytes, conclude))

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


def arrive(receiver: Process, start: float, took: float, request: Any) -> float:
    """Take a message through the receiver's in port; return when it has arrived.

    A request is that of a sender that has waited for its receive: its own kind hold
    the out port one after another, from when they are met.
    """
    if start < receiver.in_free:
        start = receiver.in_free
    if request is not None and start < request.process.met_free:
        start = request.process.met_free
    done = start + took
    receiver.in_free = done
    if request is not None:
        sender = request.process
        sender.met_free = done
        sender.out_free = max(sender.out_free, done)
        request.finish(done)
    return done


def fill(into: np.ndarray, data: np.ndarray, rank: int, source: int, tag: int) -> None:
    """Copy a message into a receive buffer, by bytes as MPI does."""
    if into.dtype is data.dtype and into.shape == data.shape:
        into[...] = data
        return
    if data.nbytes > into.nbytes:
        raise BadInput(
            f"rank {rank}: message truncated: {data.nbytes} bytes from rank {source} "
            f"({tag=}) do not fit into a buffer of {into.nbytes}; pass --check to name "
            "ranks whose lengths or dtypes differ"
        )
    bytes_of(into)[: data.nbytes] = bytes_of(data)


def bytes_of(buffer: np.ndarray) -> np.ndarray:
    return buffer.reshape(-1).view(np.uint8)
