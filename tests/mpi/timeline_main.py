"""A ring traced on real ranks, and written; the argument is where."""

import sys
from pathlib import Path

import numpy as np

from dml.figures import timeline as timeline_figure
from dml.metrics import timeline
from dml.types import ANY
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered, Traced
from dml.wire.comm.mpi import world


def main(path):
    comm = Metered(Traced(world(watchdog=5)))
    comm.align()
    comm.begin()
    ALLREDUCE["ring"](comm, np.arange(1000.0))
    right = (comm.rank + 1) % comm.size
    request = comm.Irecv(np.empty(3, np.uint8), ANY, ANY)
    comm.Isend(np.zeros(3, np.uint8), right, 77).Wait()
    assert comm.Waitany([request]) == 0
    comm.end()
    found = comm.timeline()
    if found is None:
        return
    timeline.write(Path(path), found)
    timeline_figure.draw(Path(path), found)
    assert {interval.rank for interval in found.intervals} == set(range(comm.size))
    assert all(message.received > message.sent for message in found.messages)
    own = [message.nbytes for message in found.messages if message.source == 0]
    assert (len(own), sum(own)) == (comm.messages_sent, comm.bytes_sent)
    assert len(found.messages) == comm.size * len(own)
    spread = max(s.end for s in found.intervals) - min(s.start for s in found.intervals)
    assert 0 < spread < 60
    sys.stdout.write(f"{comm.size} ranks traced\n")


if __name__ == "__main__":
    main(sys.argv[1])
