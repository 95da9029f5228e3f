"""Train GloVe each way on real ranks: mpirun -n P python -m tests.mpi.glove_main

Rank 0 asserts the bits that virtual ranks make, then says how many ways have them.
"""

import sys

from dml import sim
from dml.wire.comm.mpi import world
from tests.strategies.glove.lattice import digest, train

# each way with one or two tables
ROTATION = {"travel": 1, "stay": 2}  # serial's bits on any number of ranks
# bits of as many virtual ranks
SYNCHRONOUS = {"operation": 1, "sparse": 2, "dense": 1, "server": 2}


def virtual(size, how, tables):
    return sim.run(lambda comm: train(comm, how, tables), size)


def main():
    comm = world(watchdog=300)
    ways = ROTATION | SYNCHRONOUS
    for how, tables in ways.items():
        found = train(comm, how, tables)
        assert (found.state is None) == (comm.rank > 0), how
        words = comm.gather(found.words)
        if comm.rank == 0:
            same = virtual(comm.size, how, tables)
            assert words == [one.words for one in same], how
            want = virtual(1, "serial", tables)[0] if how in ROTATION else same[0]
            assert digest(found) == digest(want), how
    # Without locks no two runs are alike, but all learn.
    losses = train(comm, "hogwild", 2).losses
    assert list(losses) == sorted(losses, reverse=True)
    if comm.rank == 0:
        serial = virtual(1, "serial", 2)[0]
        assert abs(losses[-1] / serial.losses[-1] - 1) < 0.25
        sys.stdout.write(f"{len(ways)} ways have their bits on {comm.size} ranks\n")


if __name__ == "__main__":
    main()
