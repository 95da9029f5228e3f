"""Asynchronous strategies on real ranks of unequal speed, as text."""

import sys
import time

import numpy as np
import optax

from dml.metrics.timer import Timer
from dml.strategies import strategy
from dml.types import Problem
from dml.wire.averaging.pairs import pair_averages
from dml.wire.comm import Metered
from dml.wire.comm.mpi import world
from dml.wire.plans.averaging.graphs import topology
from dml.wire.plans.averaging.sides import sides

LENGTH = 20_000  # 160 KB: longer than an eager message


def averaged(comm):
    """Return the sum of values after updates by integers, and the count of averages."""
    side = sides(topology("complete", comm.size))[comm.rank]
    values = np.zeros(LENGTH)
    pairs = pair_averages(comm, side, values)
    for t in range(8 - comm.rank):
        values += 1 + comm.rank
        time.sleep(1e-3 * comm.rank)
        pairs.exchange(values, t)
    pairs.settle(values)
    comm.Barrier()
    return [float(values.sum()), pairs.reset()[0]]


def trained(comm, name):
    """Return the number of updates, and the distance of the result to the minimum."""
    targets = np.arange(comm.size, dtype=np.float32)

    def gradient(params, batch):
        time.sleep(1e-3 * comm.rank)
        error = params["x"] - targets[batch]
        return float((error**2).mean()), {"x": error.mean(0, keepdims=True)}

    start = {"x": np.zeros(1, np.float32)}
    problem = Problem(start, comm.size, gradient, lambda params: {})
    batches = [np.arange(comm.size)] * 60
    *_, step = strategy(name, problem)(
        *(problem, batches, optax.sgd(0.05)),
        **{"comm": Metered(comm), "timer": Timer(), "barrier_every": 25},
    )
    found = float(step.params()["x"][0])
    return [step.number, abs(found - targets.mean())]


if __name__ == "__main__":
    comm = world()
    results = averaged(comm) + trained(comm, "ad_psgd") + trained(comm, "async_diloco")
    with open(f"{sys.argv[1]}{comm.rank}", "w") as file:
        file.write(" ".join(map(str, results)))
