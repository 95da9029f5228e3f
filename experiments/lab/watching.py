"""watch.html of a run on virtual ranks: traces of all ranks, also of those that die.

recording = Recording(size)
sim.run(lambda comm: program(recording.wrap(comm)), size, network)
recording.write(path, title, text)
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from dml.figures import player
from dml.types import BadInput, Comm, Message, Timeline
from dml.wire.comm import Traced
from dml.wire.comm.rank_trace import TraceArrays, merged

MOST = 64  # ranks of a page


class Recording:
    """The traced communicators of all ranks, and the states of their chunks.

    Args:
      size: Number of virtual ranks.
    """

    def __init__(self, size: int):
        if not 2 <= size <= MOST:
            raise BadInput(
                f"expected 2 to {MOST} virtual ranks with --watch, got {size}; pass "
                "another number of them, such as --simulate=8"
            )
        self.size = size
        self.comms: dict[int, Traced] = {}
        self.states: list[player.State] = []

    def wrap(self, comm: Comm, kind: Callable[[Comm], Traced] = Traced) -> Any:
        """Return the communicator of a rank, traced from now on."""
        traced = self.comms[comm.rank] = kind(comm)
        traced.begin()
        return traced

    def show(self, rank: int, values: Any) -> None:
        """Record the values of a rank's chunks at its present time."""
        time = self.comms[rank].Wtime()
        self.states.append(player.State(rank, time, list(map(int, values))))

    def timeline(self) -> Timeline:
        """Return intervals and messages of all ranks; they share a clock."""
        traces = [
            TraceArrays.from_trace(self.comms[rank].trace) for rank in range(self.size)
        ]
        return merged(traces, [0] * self.size)

    def write(
        self,
        path: Path,
        title: str,
        text: str,
        timeline: Timeline | None = None,
        **look: Any,
    ) -> int:
        """Write the page; return its number of messages.

        Args:
          path: Path of the page.
          title: Heading.
          text: Sentences below it.
          timeline: Intervals and messages; None: all that were traced.
          **look: Further fields of the Film.
        """
        timeline = timeline or self.timeline()
        film = player.Film(title, text, self.size, timeline, self.states, **look)
        player.write(path, film)
        messages: list[Message] = list(timeline.messages)
        print(f"{len(messages)} messages of {title}: {path}")
        return len(messages)
