"""Compile before the ranks need it: on one rank of each host, which keeps the code."""

from functools import partial

import numpy as np

from dml import sim
from dml.data.cooccurrence import RECORD
from dml.metrics.timer import Timer
from dml.models.glove import glove
from dml.strategies.glove.serial import serial
from dml.strategies.glove.synchronous import synchronous
from dml.strategies.glove.tiling import Order, tiled
from dml.types import Comm
from dml.wire.messages import Metered, first_of_each_host, tree_allreduce


def rehearse(comm: Comm, dim: int, batched: bool) -> None:
    """Train two words on a virtual rank, so that all kernels for dim are compiled."""
    first_of_each_host(comm, lambda: sim.run(partial(program, dim, batched), 1))


def program(dim: int, batched: bool, comm: Comm) -> None:
    records = np.array([(1, 2, 1.0), (2, 1, 1.0)], RECORD)
    order = Order([(0, 0)], 1, 2, 16, 0, 1.0, 1.0)
    tiles, _ = tiled(comm, records, 2, order)
    state = glove(2, dim).init(0)
    if batched:
        way = partial(synchronous, allreduce=tree_allreduce, batch=2)
        steps = way(
            *(state, tiles, 0.1, Timer()), comm=Metered(comm), dense=lambda *_: False
        )
    else:
        steps = serial(state, tiles, 0.1, Timer())
    next(iter(steps))
