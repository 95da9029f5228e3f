"""Ranks profiled while they meet, twice in a step; the argument is where."""

import sys
import time
from pathlib import Path

sys.path.append(str(Path(__file__).parents[2] / "experiments"))
from lab import timelines  # noqa: E402

from dml.wire.comm import (
    Metered,  # noqa: E402
    Traced,  # noqa: E402
)
from dml.wire.comm.mpi import world  # noqa: E402


def steps(comm, timer):
    import jax.profiler

    for number in range(4):
        with timer("gradient"), jax.profiler.TraceAnnotation("gradient"):
            time.sleep(0.01 * (comm.rank + 1))
        comm.Barrier()
        yield number


def main(path):
    comm = Metered(Traced(world(watchdog=30)))
    timer = timelines.timer(comm, comm.Wtime)
    list(timelines.traced(steps(comm, timer), comm, 2, Path(path), profiled=True))


if __name__ == "__main__":
    main(sys.argv[1])
