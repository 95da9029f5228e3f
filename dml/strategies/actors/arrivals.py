"""Messages of one size from any rank, received in the order of arrival.

posted receives   ▢ ▢ ▢ ▢ ▢ ▢ ▢ ▢     messages arrive while the rank computes
                  └ the oldest completes first; another is posted in its place
"""

from collections import deque
from typing import Any

import numpy as np

from dml.types import ANY, Comm, RankFailed, Status
from dml.wire.comm.tags import Tag

POSTED = 8  # receives

Message = tuple[int, np.ndarray]  # rank of the sender, bytes


class Arrivals:
    """Receives that are always posted.

    Args:
      comm: Ranks.
      nbytes: Size of a message.
      tag: Tag of the messages.
    """

    def __init__(self, comm: Comm, nbytes: int, tag: Tag) -> None:
        self.comm, self.nbytes, self.tag = comm, nbytes, tag
        self.status = Status()
        self.posted: deque[tuple[Any, np.ndarray]] = deque()
        for _ in range(POSTED):
            self.post()

    def post(self) -> None:
        """Post a receive of a message into memory of its own."""
        buffer = np.empty(self.nbytes, np.uint8)
        self.posted.append((self.comm.Irecv(buffer, ANY, self.tag), buffer))

    def next(self, wait: bool) -> Message | None:
        """Return the next message; None: it has not arrived, and `wait` is false.

        Raises:
          RankFailed: A rank has died; see `Comm.Ack_failed`.
        """
        while True:
            request, buffer = self.posted[0]
            if wait:
                request.Wait(self.status)
            elif not request.Test(self.status):
                return None
            self.posted.popleft()
            self.post()
            if self.status.source >= 0:  # else the sender died while it sent
                return self.status.source, buffer

    def close(self) -> None:
        """Withdraw the receives; no message may be in transit."""
        for request, _ in self.posted:
            request.Cancel()
            try:
                request.Wait(self.status)
            except RankFailed:
                continue
        self.posted.clear()
