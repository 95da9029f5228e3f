"""Ape-X on real ranks, recorded; arguments: the file of the record, and of the bits."""

import sys
import time
from itertools import repeat
from pathlib import Path

from dml.metrics.timer import Timer
from dml.runs import records
from dml.strategies import strategy
from dml.wire.comm import Delayed, Log, Metered, Recorded
from dml.wire.comm.mpi import world
from dml.wire.comm.sleeping import sleep_if_oversubscribed
from tests.strategies.actors.q_chain import UPDATE, problem


def train(comm):
    """Return the bits of the table on rank 0, else None."""
    chain = problem()
    *_, step = strategy("apex", chain)(
        chain,
        repeat(0, 300),
        UPDATE,
        comm=Metered(comm),
        timer=Timer(),
        batch=16,
        warmup=50,
        ratio=4.0,
        target_every=10,
    )
    return None if comm.rank else step.params().tobytes()


def delays(rank):
    """Yield the seconds of each message of a rank, other ones in every run."""
    while True:
        yield 1e-3 * rank * (time.time() % 1)


def main(path, result):
    comm, log = sleep_if_oversubscribed(world(watchdog=300)), Log()
    found = train(Recorded(Delayed(comm, delays(comm.rank)), log))
    every = log.collect(comm)
    if every is not None:
        records.write(Path(path), {}, every)
        Path(result).write_bytes(found)


if __name__ == "__main__":
    main(*sys.argv[1:])
