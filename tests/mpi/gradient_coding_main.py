"""Gradient coding on real ranks with a straggler: parameters and losses, as text."""

import sys
from functools import partial

import numpy as np

from dml.metrics.timer import Timer
from dml.strategies.gradient_coding import gradient_coding
from dml.types import Problem, Rows
from dml.update.table import table
from dml.wire.comm import Metered
from dml.wire.comm.delayed import Delayed
from dml.wire.comm.mpi import world

LENGTH, EXAMPLES, UPDATES = 30_000, 24, 6  # 120 KB: longer than an eager message


def gradient(table_Tx1, indices):
    """Return the gradient of a quadratic function that differs between examples."""
    centre = np.sin(np.arange(LENGTH) * (1 + indices.sum()), dtype=np.float32)
    errors = table_Tx1 - centre[:, None]
    return float((errors**2).mean()), Rows(np.arange(LENGTH, dtype=np.int32), errors)


PROBLEM = Problem(
    params=np.zeros((LENGTH, 1), np.float32),
    examples=EXAMPLES,
    gradient=gradient,
    evaluate=lambda params: {},
    touched=lambda indices: np.arange(LENGTH, dtype=np.int32),
)


def results(comm, code, work=None):
    """Return the loss of each update and a sum of the parameters."""
    comm = Metered(comm)
    batches = np.tile(np.arange(EXAMPLES), (UPDATES, 1))
    update, timer = partial(table, "sgd", rate=0.3), Timer(comm.Wtime)
    own = {"comm": comm, "timer": timer, "code": code, "work": work}
    steps = list(gradient_coding(PROBLEM, batches, update, **own))
    params = steps[-1].params().astype(np.float64)
    return [step.loss for step in steps], float(params.sum()), float(params[7, 0])


def straggling(comm):
    """Return the results with a straggler that does not stop, and one that stops."""
    draws = iter([0.3 if comm.rank == 1 else 0.001] * 1000)
    found = [results(Delayed(comm, draws), "repetition:1")]

    def work(share, unless):
        seconds = 0.3 if comm.rank == 2 else 0.001
        return comm.platform.compute(seconds, unless)

    return [*found, results(comm, "repetition:1", work)]


if __name__ == "__main__":
    comm = world()
    with open(f"{sys.argv[1]}{comm.rank}", "w") as file:
        file.write(repr(straggling(comm)))
