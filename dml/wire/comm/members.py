"""A communicator of some ranks of another one, made without communication."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dml.types import ANY, BadInput, Comm, Request
from dml.types.messages import dest_of, source_of
from dml.wire.comm.wrapper import Wrapper


class Members(Wrapper):
    """Point-to-point messages between the members of a group.

    Every member knows all members, so that no collective call makes the group, unlike
    Split. Collectives that consist of messages run on it. Hosts, windows and collective
    calls are those of `comm`.

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
        receiver = self.dest(dest)
        source = self.member(source)
        self.comm.Sendrecv(sendbuf, receiver, sendtag, recvbuf, source, recvtag, status)

    def Isend(self, buf: np.ndarray, dest: int, tag: int = 0) -> Request:
        return self.comm.Isend(buf, self.dest(dest), tag)

    def Irecv(self, buf: np.ndarray, source: int = ANY, tag: int = ANY) -> Request:
        return self.comm.Irecv(buf, self.member(source), tag)

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
