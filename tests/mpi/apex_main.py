"""Ape-X on real ranks, recorded; arguments: the file of the record, and of the bits."""

import sys
import time
from pathlib import Path

from dml.runs import records
from dml.wire.comm import Log, Recorded
from dml.wire.comm.delayed import Delayed
from dml.wire.comm.mpi import world
from dml.wire.comm.sleeping import sleep_if_oversubscribed
from tests.strategies.actors.test_apex import bits, train

CONFIG = {"experiment": "apex_main"}
OWN = {"updates": 60, "prefetch": 2, "pull_every": 1}


def delays(rank):
    """Yield the seconds of each message of a rank, other ones in every run."""
    while True:
        yield 1e-3 * rank * (time.time() % 1)


def main(path, result):
    comm, log = sleep_if_oversubscribed(world(watchdog=20)), Log()
    steps = train(Recorded(Delayed(comm, delays(comm.rank)), log), **OWN)
    every = log.collect(comm)
    if every is not None:
        records.write(Path(path), CONFIG, every)
        Path(result).write_bytes(bits(steps[-1].params))


if __name__ == "__main__":
    main(*sys.argv[1:])
