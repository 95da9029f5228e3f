"""The messages that a server receives, one after another."""

from typing import Any

import numpy as np

from dml.types import ANY, WITHDRAWN, Comm, Status
from dml.wire.comm.tags import Tag


class Inbox:
    """The last message to a server, and the receive of the next one.

    comm: the ranks.
    nbytes: size of the largest message.

    `buffer` has the message, and `status` its rank and its number of bytes.
    """

    def __init__(self, comm: Comm, nbytes: int):
        self.comm = comm
        self.buffer = np.empty(nbytes, np.uint8)
        self.status = Status()
        self.posted: Any = None  # while values may arrive, too

    def receive(self) -> None:
        """Wait for a message."""
        self.comm.Recv(self.buffer, ANY, Tag.SERVER, self.status)

    def post(self) -> Any:
        """Return the posted receive of the next message; post it if necessary."""
        if self.posted is None:
            self.posted = self.comm.Irecv(self.buffer, ANY, Tag.SERVER)
        return self.posted

    def withdraw(self) -> bool:
        """Withdraw the posted receive; return whether its message came before."""
        if self.posted is None:
            return False
        self.posted.Cancel()
        self.posted.Wait(self.status)
        self.posted = None
        return self.status.count != WITHDRAWN

    def poll(self) -> bool:
        """Return whether a message has arrived, and receive it."""
        if self.posted is not None:
            if not self.posted.Test(self.status):
                return False
            self.posted = None
        elif self.comm.Iprobe(ANY, Tag.SERVER):
            self.receive()
        else:
            return False
        return True
