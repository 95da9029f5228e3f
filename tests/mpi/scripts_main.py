"""Scripts of mpi4py on real ranks: an example, or random programs."""

import hashlib
import runpy
import sys

from tests.sim.mpi.collective_programs import play


def digests(comm, module, seeds):
    """Return a hash of what all ranks find in each program, on rank 0."""
    found = [comm.gather(play(module, comm, seed)) for seed in range(seeds)]
    return [hashlib.sha256(repr(one).encode()).hexdigest() for one in found]


if __name__ == "__main__":
    from mpi4py import MPI

    if sys.argv[1] == "programs":
        lines = digests(MPI.COMM_WORLD, MPI, int(sys.argv[2]))
        if MPI.COMM_WORLD.rank == 0:
            print("\n".join(lines))
    else:
        sys.argv = sys.argv[1:]
        runpy.run_path(sys.argv[0], run_name="__main__")
