"""Messages of one size from any rank, received in the order of arrival.

posted receives   ▢ ▢ ▢ ▢ ▢ ▢ ▢ ▢     messages arrive while the rank computes
                  └ the oldest receive completes first; a new receive replaces it
"""

from collections import deque
from typing import Any

import numpy as np

from dml.types import ANY, Comm, RankFailed, Status
from dml.types.messages import check_nbytes
from dml.wire.comm.tags import Tag

POSTED = 8  # receives

Message = tuple[int, np.ndarray]  # rank of the sender, bytes


class Arrivals:
    """Posted receives, POSTED at any time.

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
        """Post a receive of a message into a new buffer."""
        buffer = np.empty(self.nbytes, np.uint8)
        self.posted.append((self.comm.Irecv(buffer, ANY, self.tag), buffer))

    def next(self, wait: bool) -> Message | None:
        """Return the next message; None if `wait` is false and no message has arrived.

        Raises:
          RankFailed: A rank has died; see `Comm.Ack_failed`.
          BadInput: A message has another length.
        """
        while True:
            request, buffer = self.posted[0]
            if wait:
                request.Wait(self.status)
            elif not request.Test(self.status):
                return None
            self.posted.popleft()
            self.post()
            if self.status.source < 0:
                continue  # the sender died while it sent
            check_nbytes(self.status, self.comm.rank, self.nbytes)
            return self.status.source, buffer

    def close(self) -> None:
        """Cancel the receives; no message may be in transit."""
        for request, _ in self.posted:
            request.Cancel()
            try:
                request.Wait(self.status)
            except RankFailed:
                continue
        self.posted.clear()
