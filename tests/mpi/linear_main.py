"""Linear models on MPI.COMM_WORLD have the bits of virtual ranks.

mpirun -n P python -m tests.mpi.linear_main
"""

import sys

import numpy as np

from dml import sim
from dml.metrics.timer import Timer
from dml.models.linear.problem import linear
from dml.strategies.linear.lbfgs import lbfgs
from dml.strategies.linear.prox_cocoa import prox_cocoa
from dml.strategies.linear.s_step import s_step
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.comm.mpi import world
from tests.strategies.linear.small import batches, table

METHODS = {
    "s_step": (s_step, batches(16), {"rate": 0.1, "steps": 8}),
    "grid": (s_step, batches(16), {"rate": 0.1, "steps": 2, "groups": 2}),
    "lbfgs": (lbfgs, range(8), {"pairs": 3}),
    "prox_cocoa": (prox_cocoa, range(8), {"l1": 0.01}),
}


def train(comm, name, kind):
    strategy, items, own = METHODS[name]
    problem = linear(*table(kind), "logistic", 1e-2)
    own = own | {
        "comm": Metered(comm),
        "timer": Timer(),
        "allreduce": ALLREDUCE["ring"],
    }
    steps = list(strategy(problem, items, **own))
    return steps[-1].params(), [step.words_sent for step in steps]


def main():
    comm = world(watchdog=300)
    for kind in ("dense", "sparse"):
        for name in METHODS:
            params, words = train(comm, name, kind)
            assert (params is None) == (comm.rank > 0)
            if comm.rank == 0:
                same = sim.run(lambda c, n=name, k=kind: train(c, n, k), comm.size)[0]
                assert np.array_equal(params, same[0]) and words == same[1], name
    refused = ""
    try:
        list(s_step(linear(*table()), batches(1), comm=comm, timer=Timer(), **WRONG))
    except BadInput as error:
        refused = str(error)
    assert "groups of equally many ranks" in refused
    if comm.rank == 0:
        sys.stdout.write(f"{len(METHODS)} methods have their bits\n")


WRONG = {"allreduce": ALLREDUCE["ring"], "rate": 0.1, "groups": 3}

if __name__ == "__main__":
    main()
