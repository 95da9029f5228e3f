"""Train edge by edge on real ranks: mpirun -n P python -m tests.mpi.sparse_main [end]

Rank 0 compares with one worker's bits. `end` says how the run shall end: well; `raise`:
one rank raises; `kill`: one is killed while all spin.
"""

import os
import signal
import sys

import numpy as np

from dml import sim
from dml.models.sparse import problem as descent
from dml.strategies.shared.cyclades import cyclades
from dml.strategies.shared.hogwild import hogwild
from dml.wire.comm.mpi import world
from dml.wire.memory import atomic, locked, round_robin
from dml.wire.memory import global_lock as whole
from dml.wire.memory.conflicts import hubs
from dml.wire.memory.shared import load_shared
from tests.strategies.shared.small import How, begin, documents
from tests.strategies.shared.tally import tally

EPOCHS = 2


def train(comm, threads, problem, way, how, **more):
    *_, last = begin(way, problem, how, comm, EPOCHS, threads, **more)
    return last.params(), last.measures


def placed(comm, make):
    """Return a problem whose data all ranks share."""
    problem = make()
    shared = load_shared(comm, lambda: (problem.kernel.data, problem.params))
    return descent.problem(problem.kernel.model, *shared)


def agree(comm):
    problem = placed(comm, documents)
    count = 0
    for share in (1.0, 0.05, 0.0):
        deferred = hubs(problem.kernel.data.edges, len(problem.params), share)
        for batch in (16, 200):
            how = How(lambda epoch: 0.3, batch, momentum=0.3)
            for threads in (1, 2):
                found = train(comm, threads, problem, cyclades, how, deferred=deferred)[
                    0
                ]
                if comm.rank == 0:
                    one = sim.run(
                        lambda c, how=how, deferred=deferred: train(
                            c, 1, documents(), cyclades, how, deferred=deferred
                        ),
                        1,
                    )[0][0]
                    assert np.array_equal(found, one), (share, batch, threads)
                count += 1
    problem = placed(comm, lambda: tally(edges=4000))
    due = np.bincount(problem.kernel.data.edges.rows) * EPOCHS
    for policy in (atomic, locked, whole, round_robin):
        how = How(lambda epoch: 1.0, 8, counting=True)
        table, measures = train(comm, 1, problem, hogwild, how, policy=policy)
        assert measures["rows_lost"] == 0, policy
        assert comm.rank or table.tolist() == due.tolist(), policy
        count += 1
    if comm.rank == 0:
        sys.stdout.write(f"{count} runs agree\n")


def main():
    comm, end = world(watchdog=50), sys.argv[1]
    if end == "well":
        agree(comm)
        return
    problem = placed(comm, documents)
    how = How(lambda epoch: 0.3, 16)
    deferred = np.ones(90, np.bool_)
    for step in begin(cyclades, problem, how, comm, None, deferred=deferred):
        if step.epoch == 5 and comm.rank == comm.size - 1:
            if end == "raise":
                raise RuntimeError("as asked")
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
