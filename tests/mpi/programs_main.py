"""Random programs on real ranks: FIRST LAST FILE; rank 0 writes what all ranks find."""

import pickle
import sys
from pathlib import Path

from mpi4py import MPI

from dml.wire.comm.mpi import world
from dml.wire.comm.sleeping import Sleeping
from tests.wire.comm.programs import Player, drawn
from tests.wire.comm.test_programs import WRAPPERS

WAYS = [lambda comm: comm, Sleeping, *WRAPPERS.values()]


def main(first, last, path):
    comm, found = world(watchdog=20), []
    for seed in range(int(first), int(last)):
        own = comm.Dup()
        wrapped = WAYS[seed // 2 % len(WAYS) if seed % 2 else 0](own)
        notes = Player(wrapped, drawn(seed, comm.size), MPI).notes
        found.append(comm.allgather(notes))
        own.Free()
    if comm.rank == 0:
        Path(path).write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
