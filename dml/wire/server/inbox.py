"""The receive buffer of a server."""

from typing import Any

import numpy as np

from dml.types import ANY, WITHDRAWN, Comm, RankFailed, Status
from dml.types.messages import check_nbytes
from dml.wire.comm.tags import Tag


class Inbox:
    """The last message to a server, and the posted receive of the next message.

    comm: the ranks.
    nbytes: size of the largest message.
    tag: tag of the messages.

    `buffer` contains the message; `status` contains its source and number of bytes.
    """

    def __init__(self, comm: Comm, nbytes: int, tag: Tag = Tag.SERVER):
        self.comm, self.tag = comm, tag
        self.buffer = np.empty(nbytes, np.uint8)
        self.status = Status()
        self.posted: Any = None  # request of the next message, or None

    def receive(self) -> None:
        """Wait for a message."""
        self.comm.Recv(self.buffer, ANY, self.tag, self.status)

    def content(self, least: int) -> np.ndarray:
        """Return the bytes of the message; refuse fewer than `least`, or cut ones."""
        check_nbytes(self.status, self.comm.rank, least, len(self.buffer))
        return self.buffer[: self.status.count]

    def post(self) -> Any:
        """Return the request of the next message; post the receive if necessary."""
        if self.posted is None:
            self.posted = self.comm.Irecv(self.buffer, ANY, self.tag)
        return self.posted

    def withdraw(self) -> bool:
        """Cancel the posted receive; return whether its message had already arrived."""
        request, self.posted = self.posted, None
        if request is None:
            return False
        request.Cancel()
        try:
            request.Wait(self.status)
        except RankFailed:  # the sender died while it sent the message
            return False
        # MPI ends such a receive; the status of its second Wait has no source
        return self.status.count != WITHDRAWN and self.status.source >= 0

    def poll(self) -> bool:
        """Receive a message if one has arrived; return whether it has."""
        if self.posted is not None:
            if not self.posted.Test(self.status):
                return False
            self.posted = None
        elif self.comm.Iprobe(ANY, self.tag):
            self.receive()
        else:
            return False
        return True
