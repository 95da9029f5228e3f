"""A communicator on which a rank's computation takes a given time."""

from collections.abc import Iterator

from dml.types import Comm
from dml.wire.comm.wrapper import Wrapper


class Delayed(Wrapper):
    """Wraps a communicator: `platform.work(share)` takes scale · share · draw seconds.

    The clock of a virtual rank advances; a real rank sleeps. A share of 0 uses no draw.

    Args:
      comm: The communicator.
      draws: Random times of an even share of the computation of an update.
      scale: Seconds per unit of the draws.
    """

    def __init__(self, comm: Comm, draws: Iterator[float], scale: float = 1.0):
        super().__init__(comm)
        self.draws, self.scale = draws, scale
        self.platform = self.platform._replace(work=self.work)

    def wrap(self, comm: Comm) -> "Delayed":
        return Delayed(comm, self.draws, self.scale)

    def work(self, share: float) -> None:
        if share:
            self.platform.compute(self.scale * share * next(self.draws))
