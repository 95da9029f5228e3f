"""A communicator on which a rank's computation takes a given time."""

from collections.abc import Iterator

from dml.types import Comm
from dml.wire.comm.wrapper import Wrapper


class Delayed(Wrapper):
    """Wraps a communicator: `platform.work(share)` takes share times the next draw.

    A draw is in seconds and is multiplied by `scale`. The clock of a virtual rank
    advances, a real rank sleeps. A rank without work, of share 0, takes no draw.
    """

    def __init__(self, comm: Comm, draws: Iterator[float], scale: float = 1.0):
        super().__init__(comm)
        self.draws, self.scale = draws, scale
        self.platform = comm.platform._replace(work=self.work)

    def wrap(self, comm: Comm) -> "Delayed":
        return Delayed(comm, self.draws, self.scale)

    def work(self, share: float) -> None:
        if share:
            self.platform.compute(self.scale * share * next(self.draws))
