"""Timelines, profiles and energy of real ranks; the argument is a folder."""

import sys
import time
from itertools import count
from pathlib import Path

import numpy as np

sys.path.append(str(Path(__file__).parents[2] / "experiments"))
from lab import timelines  # noqa: E402

from dml.metrics import timeline  # noqa: E402
from dml.runs import counters, energy  # noqa: E402
from dml.types import ANY  # noqa: E402
from dml.wire.collectives import ALLREDUCE  # noqa: E402
from dml.wire.comm import Metered, Traced  # noqa: E402
from dml.wire.comm.mpi import world  # noqa: E402
from tests.mpi.conformance_main import Apart  # noqa: E402


def traced(comm, path):
    """Trace a ring and messages of any source, and write the timeline."""
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
    timeline.write(path, found)
    assert {interval.rank for interval in found.intervals} == set(range(comm.size))
    assert all(message.received > message.sent for message in found.messages)
    own = [message.nbytes for message in found.messages if message.source == 0]
    assert (len(own), sum(own)) == (comm.messages_sent, comm.bytes_sent)
    assert len(found.messages) == comm.size * len(own)
    spread = max(s.end for s in found.intervals) - min(s.start for s in found.intervals)
    assert 0 < spread < 1200


def steps(comm, timer):
    import jax.profiler

    for number in range(4):
        with timer("gradient"), jax.profiler.TraceAnnotation("gradient"):
            time.sleep(0.01 * (comm.rank + 1))
        comm.Barrier()
        yield number


def spent(comm):
    """Return joules by CPU seconds of rank + 1 and by GPUs of 5 J since the start."""
    looks = count()
    counters.gpus = lambda: counters.Gpus(5.0 * next(looks), 2, "V100")
    counters.process_cpu_seconds = lambda: comm.rank + 1.0
    found = energy.Meter(comm, energy.Terms(watts=10.0)).run_consumption()
    joules = found["energy_kwh"] * energy.JOULES_PER_KWH
    return f"{joules:.3f} J by {found['energy_source']}\n"


def main(folder):
    comm = Metered(Traced(world(watchdog=300)))
    traced(comm, Path(folder, "ring"))
    comm = Metered(Traced(world(watchdog=300)))
    timer = timelines.timer(comm, comm.Wtime)
    list(timelines.traced(steps(comm, timer), comm, 2, Path(folder), profiled=True))
    # on one host, and as if each rank had its own
    lines = [spent(one) for one in (world(), Apart(world()))]
    if comm.rank == 0:
        sys.stdout.write("".join(lines))


if __name__ == "__main__":
    main(sys.argv[1])
