"""A communicator of some ranks of another one, made without communication."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dml.types import ANY, BadInput, Comm, Request
from dml.types.messages import dest_of, source_of
from dml.wire.comm.wrapper import WrappedRequest, Wrapper, unwrap


class Members(Wrapper):
    """Point-to-point messages between the members of a group.

    Every member knows all members, so that no collective call makes the group, unlike
    Split. Collectives that consist of messages run on it. Hosts, windows and collective
    calls are those of `comm`. Sources in a status are ranks of the group.

    Args:
      comm: Communicator of all ranks; this rank is a member.
      ranks: Ranks of the members, equal on all of them; the k-th becomes rank k.
    """

    def __init__(self, comm: Comm, ranks: Sequence[int]):
        super().__init__(comm)
        self.ranks = list(ranks)
        if self.rank not in self.ranks:
            raise BadInput(
                f"rank {self.rank}: expected a group with this rank, got {self.ranks}; "
                "call it on members only"
            )
        self.rank, self.size = self.ranks.index(self.rank), len(self.ranks)
        self.platform = self.platform._replace(compute=self.compute)

    def Get_rank(self) -> int:
        return self.rank

    def Get_size(self) -> int:
        return self.size

    def Send(self, buf: Any, dest: int, tag: int = 0) -> None:
        self.comm.Send(buf, self.dest(dest), tag)

    def Recv(
        self, buf: Any, source: int = ANY, tag: int = ANY, status: Any = None
    ) -> None:
        self.comm.Recv(buf, self.member(source), tag, status)
        set_source(status, source)

    def Sendrecv(
        self,
        sendbuf: Any,
        dest: int,
        sendtag: int = 0,
        recvbuf: Any = None,
        source: int = ANY,
        recvtag: int = ANY,
        status: Any = None,
    ) -> None:
        receiver, sender = self.dest(dest), self.member(source)
        self.comm.Sendrecv(sendbuf, receiver, sendtag, recvbuf, sender, recvtag, status)
        set_source(status, source)

    def Isend(self, buf: np.ndarray, dest: int, tag: int = 0) -> Request:
        return self.comm.Isend(buf, self.dest(dest), tag)

    def Irecv(self, buf: np.ndarray, source: int = ANY, tag: int = ANY) -> Request:
        request = self.comm.Irecv(buf, self.member(source), tag)
        return MemberReceive(self, request, source)

    def Probe(self, source: int = ANY, tag: int = ANY, status: Any = None) -> None:
        self.comm.Probe(self.member(source), tag, status)
        set_source(status, source)

    def Iprobe(self, source: int = ANY, tag: int = ANY, status: Any = None) -> bool:
        arrived = self.comm.Iprobe(self.member(source), tag, status)
        if arrived:
            set_source(status, source)
        return arrived

    def Waitany(self, requests: Sequence[Any], status: Any = None) -> int:
        index = self.comm.Waitany(unwrap(requests, MemberReceive), status)
        if index >= 0 and isinstance(requests[index], MemberReceive):
            set_source(status, requests[index].source)
        return index

    def Waitall(self, requests: Sequence[Any]) -> None:
        self.comm.Waitall(unwrap(requests, MemberReceive))

    def compute(self, seconds: float, unless: Any = None) -> bool:
        return self.comm.platform.compute(seconds, *unwrap([unless], MemberReceive))

    def dest(self, dest: int) -> int:
        """Return the destination as a rank of `comm`, or PROC_NULL."""
        dest = dest_of(dest, self.size)
        return self.ranks[dest] if dest >= 0 else dest

    def member(self, source: int) -> int:
        """Return the source as a rank of `comm`, or PROC_NULL; it must be named."""
        source = source_of(source, self.size)
        if source == ANY:
            raise BadInput("expected a source in a group of members, got ANY; name it")
        return self.ranks[source] if source >= 0 else source


class MemberReceive(WrappedRequest):
    """A receive from the member `source`."""

    def __init__(self, comm: Members, request: Request, source: int):
        super().__init__(comm, request)
        self.source = source

    def Wait(self, status: Any = None) -> bool:
        self.request.Wait(status)
        set_source(status, self.source)
        return True

    def Test(self, status: Any = None) -> bool:
        done = self.request.Test(status)
        if done:
            set_source(status, self.source)
        return done


def set_source(status: Any, source: int) -> None:
    """Replace the source, a rank of the wrapped communicator, by that of the member."""
    if status is not None and status.source >= 0:  # else PROC_NULL, or withdrawn
        status.source = source
