"""Compilation of GloVe's kernels ahead of time; numba caches the code."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dml import sim
from dml.data.text.cooccurrence import RECORD
from dml.metrics.timer import Timer
from dml.models.networks.glove import glove
from dml.strategies import strategy
from dml.strategies.glove.problem import columns, minibatches, order, problem
from dml.strategies.glove.served import on_servers
from dml.strategies.glove.tiling import Order, tiled
from dml.strategies.server.roles import roles
from dml.strategies.server.server import Setup
from dml.strategies.shared.workers import Descent
from dml.types import Comm, Problem, Step
from dml.update.rows import AdaGrad
from dml.wire.collectives import tree_allreduce
from dml.wire.comm import Metered, first_of_each_host
from dml.wire.reducers.exact import exact
from dml.wire.server.consistency import Consistency

RATE = 0.1


def compile_ahead(comm: Comm, dim: int, kernels: str) -> None:
    """Train two words on virtual ranks to compile the kernels, once per host.

    Args:
      comm: Ranks.
      dim: Length of a word vector.
      kernels: Key of KERNELS: "records", "batches" or "servers".
    """
    begin, size = KERNELS[kernels]
    first_of_each_host(comm, lambda: sim.run(partial(program, dim, begin), size))


def program(dim: int, begin: Callable[..., Iterator[Step]], comm: Comm) -> None:
    records = np.array([(1, 2, 1.0), (2, 1, 1.0)], RECORD)
    tiles, blocks = tiled(comm, records, 2, Order([(0, 0)], 1, 2, 16, 0, 1.0, 1.0))
    two_words = problem(glove(2, dim).init(0), tiles, blocks, batch=2)
    next(begin(two_words, comm=Metered(comm), timer=Timer()))


def by_records(problem: Problem, **common: Any) -> Iterator[Step]:
    epochs = [order(problem.kernel.data)]
    return strategy("hogwild", problem)(
        problem, epochs, Descent(lambda epoch: RATE), **common
    )


def by_batches(problem: Problem, **common: Any) -> Iterator[Step]:
    train = strategy("synchronous", problem)
    own: dict[str, Any] = {"columns": columns(problem.products.dim)}
    own["reducer"] = exact(tree_allreduce)
    update = partial(AdaGrad, rate=RATE)
    return train(problem, minibatches(2, 2), update, **own, **common)


def by_servers(problem: Problem, **common: Any) -> Iterator[Step]:
    setup = Setup(roles(2), Consistency())
    return on_servers(problem, minibatches(2, 2), RATE, setup=setup, every=1, **common)


KERNELS = {"records": (by_records, 1), "batches": (by_batches, 1)}
KERNELS |= {"servers": (by_servers, 2)}
