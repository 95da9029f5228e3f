"""Train edge by edge on real ranks: mpirun -n P python -m tests.mpi.sparse_main [end]

Rank 0 compares with one worker's bits. `end` says how the run shall end: well; `raise`:
one rank raises; `kill`: one is killed while all spin.
"""

import os
import signal
import sys
from itertools import islice

import numpy as np

from dml import sim
from dml.metrics.timer import Timer
from dml.strategies.sparse.batched import batched
from dml.strategies.sparse.free import free
from dml.strategies.sparse.workers import Settings, Sparse, workers
from dml.wire.memory import atomic, locked, round_robin, whole
from dml.wire.memory.conflicts import hubs
from dml.wire.memory.shared import place
from dml.wire.messages import Metered
from dml.wire.messages.comm import world
from tests.strategies.sparse.small import documents
from tests.strategies.sparse.tally import tally

EPOCHS = 2


def train(comm, threads, problem, way, how, **more):
    with workers(Metered(comm), threads) as crew:
        steps = islice(way(problem, how, Timer(), crew=crew, **more), EPOCHS)
        *_, last = steps
        return last.params(), last.measures


def placed(comm, make):
    """Return a problem whose data all ranks share."""
    problem = make()
    data, start = place(comm, lambda: (problem.data, problem.start))
    return Sparse(problem.model, data, start)


def agree(comm):
    problem = placed(comm, documents)
    count = 0
    for share in (1.0, 0.05, 0.0):
        apart = hubs(problem.data.edges, len(problem.start), share)
        for batch in (16, 200):
            how = Settings(lambda epoch: 0.3, batch, momentum=0.3)
            for threads in (1, 2):
                found = train(comm, threads, problem, batched, how, apart=apart)[0]
                if comm.rank == 0:
                    one = sim.run(
                        lambda c, how=how, apart=apart: train(
                            c, 1, documents(), batched, how, apart=apart
                        ),
                        1,
                    )[0][0]
                    assert np.array_equal(found, one), (share, batch, threads)
                count += 1
    problem = placed(comm, lambda: tally(edges=4000))
    due = np.bincount(problem.data.edges.rows) * EPOCHS
    for guard in (atomic, locked, whole, round_robin):
        how = Settings(lambda epoch: 1.0, 8, counting=True)
        table, measures = train(comm, 1, problem, free, how, guard=guard)
        assert measures["rows_lost"] == 0, guard
        assert comm.rank or table.tolist() == due.tolist(), guard
        count += 1
    if comm.rank == 0:
        sys.stdout.write(f"{count} runs agree\n")


def main():
    comm, end = world(watchdog=50), sys.argv[1]
    if end == "well":
        agree(comm)
        return
    problem = placed(comm, documents)
    how = Settings(lambda epoch: 0.3, 16)
    with workers(Metered(comm), 1) as crew:
        for step in batched(
            problem, how, Timer(), crew=crew, apart=np.ones(90, np.bool_)
        ):
            if step.number == 5 and comm.rank == comm.size - 1:
                if end == "raise":
                    raise RuntimeError("as asked")
                os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
