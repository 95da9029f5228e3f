"""Trainings of NumPy gradients by strategies of dml on virtual ranks."""

import jax
import numpy as np
import optax

from dml.metrics.timer import Timer
from dml.strategies import DECENTRALISED, strategy
from dml.types import Problem
from tests.experiments.single.proof import ran


def trained(name, problem, batches, rate, size, **own):
    """Return the losses, the vector of this rank, and its bytes sent, for each rank.

    The rate is a power of 2, so that rate x gradient is exact: XLA, which may fuse the
    product with a sum, then rounds as NumPy does.
    """
    assert np.log2(rate) % 1 == 0

    def program(comm):
        losses, step = [], None
        for step in strategy(name, problem)(
            problem,
            batches,
            optax.sgd(rate),
            comm=comm,
            timer=Timer(comm.Wtime),
            **own,
        ):
            losses.append(step.loss)
        if name in DECENTRALISED:
            vector = np.copy(jax.tree.leaves(step.memory())[1])
        else:
            vector = np.array(step.params()["x"])
        return losses, vector

    return ran(program, size)


def regression(gradient, x, y, start=None):
    """Return the problem of an array and minibatches of some examples (x, y)."""

    def mean_gradient(params, batch):
        loss, grad = gradient(*map(np.asarray, (params["x"], *batch)))
        return loss, {"x": grad}

    start = np.zeros(x.shape[1], np.float32) if start is None else start
    return Problem(
        {"x": start},
        len(y),
        mean_gradient,
        lambda params: {},
        lambda index: (x[index], y[index]),
    )
