"""Train edge by edge on real ranks; the argument is `well`, `raise` or `kill`.

well: compare with one worker's bits. raise, kill: one rank ends while all spin.
"""

import os
import signal
import sys
from functools import partial

import numpy as np

from dml import sim
from dml.models.sparse import problem as descent
from dml.strategies.shared.cyclades import cyclades
from dml.strategies.shared.hogwild import hogwild
from dml.wire.comm.mpi import world
from dml.wire.memory import atomic, global_lock, locked, round_robin
from dml.wire.memory.conflicts import hubs
from dml.wire.memory.shared import load_shared
from tests.strategies.shared.small import How, begin, documents
from tests.strategies.shared.tally import tally

EPOCHS = 2
# shares of the hubs, minibatches and threads of a rank
RUNS = (1.0, 16, 1), (0.05, 200, 1), (0.0, 16, 2), (0.05, 16, 2)


def train(comm, problem, way, how, threads=1, **more):
    *_, last = begin(way, problem, how, comm, EPOCHS, threads, **more)
    return last.params(), last.measures


def placed(comm, problem):
    """Return the problem with data that all ranks share."""
    shared = load_shared(comm, lambda: (problem.kernel.data, problem.params))
    return descent.problem(problem.kernel.model, *shared)


def agree(comm):
    problem = placed(comm, documents())
    count, rows = 0, len(problem.params)
    for share, batch, threads in RUNS:
        deferred = hubs(problem.kernel.data.edges, rows, share)
        how = How(lambda epoch: 0.3, batch, momentum=0.3)
        step = partial(train, way=cyclades, how=how, deferred=deferred)
        found, _ = step(comm, problem, threads=threads)
        if comm.rank == 0:
            one = sim.run(partial(step, problem=documents()), 1)[0][0]
            assert np.array_equal(found, one), (share, batch, threads)
        count += 1
    problem = placed(comm, tally(edges=4000))
    due = np.bincount(problem.kernel.data.edges.rows) * EPOCHS
    how = How(lambda epoch: 1.0, 8, counting=True)
    for policy in (atomic, locked, global_lock, round_robin):
        table, measures = train(comm, problem, hogwild, how, policy=policy)
        assert measures["rows_lost"] == 0, policy
        assert comm.rank or table.tolist() == due.tolist(), policy
        count += 1
    if comm.rank == 0:
        sys.stdout.write(f"{count} runs agree\n")


def main(end):
    comm = world(watchdog=300)
    if end == "well":
        agree(comm)
        return
    problem, how = placed(comm, documents()), How(lambda epoch: 0.3, 16)
    deferred = np.ones(90, np.bool_)
    for step in begin(cyclades, problem, how, comm, None, deferred=deferred):
        if step.epoch == 5 and comm.rank == comm.size - 1:
            if end == "raise":
                raise RuntimeError("as asked")
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1])
