"""Train GloVe each way on real ranks: mpirun -n P python -m tests.mpi.glove_main

Rank 0 asserts the bits that virtual ranks make, then says how many ways have them.
"""

import sys

from dml import sim
from dml.wire.comm.mpi import world
from tests.strategies.glove.lattice import digest, train

ROTATION = ("travel", "stay")  # serial's bits on any number of ranks
SYNCHRONOUS = "operation", "sparse", "dense", "server"  # bits of as many virtual ranks


def virtual(size, how, tables):
    return sim.run(lambda comm: train(comm, how, tables), size)


def main():
    comm = world(watchdog=300)
    for tables in (1, 2):
        serial = virtual(1, "serial", tables)[0]
        for how in ROTATION + SYNCHRONOUS:
            found = train(comm, how, tables)
            same = virtual(comm.size, how, tables)[comm.rank]
            assert found.words == same.words, (how, tables)
            assert (found.state is None) == (comm.rank > 0), (how, tables)
            if comm.rank == 0:
                want = serial if how in ROTATION else same
                assert digest(found) == digest(want), (how, tables)
        # Without locks no two runs are alike, but all learn.
        losses = train(comm, "hogwild", tables).losses
        assert list(losses) == sorted(losses, reverse=True)
        assert abs(losses[-1] / serial.losses[-1] - 1) < 0.25
    if comm.rank == 0:
        ways = len(ROTATION + SYNCHRONOUS)
        sys.stdout.write(f"{ways} ways have their bits on {comm.size} ranks\n")


if __name__ == "__main__":
    main()
