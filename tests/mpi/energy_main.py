"""What a meter finds on real ranks: on one host, and as if each had its own."""

import sys
from itertools import count

from dml.runs import counters, energy
from dml.wire.comm.mpi import world
from tests.mpi.conformance_main import Apart


def main():
    comm = world(20)
    counters.worked = lambda: comm.rank + 1.0
    for one in (comm, Apart(comm)):
        looks = count()
        counters.gpus = lambda looks=looks: counters.Gpus(5.0 * next(looks), 2, "V100")
        found = energy.Meter(one, energy.Terms(watts=10.0)).spent()
        if comm.rank == 0:
            joules = found["energy_kwh"] * energy.JOULES
            sys.stdout.write(f"{joules:.3f} J by {found['energy_source']}\n")


if __name__ == "__main__":
    main()
