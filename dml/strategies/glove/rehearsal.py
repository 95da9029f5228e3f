"""Compile before the ranks need it: on one rank of each host, which keeps the code."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from dml import sim
from dml.data.cooccurrence import RECORD
from dml.metrics.timer import Timer
from dml.models.glove import glove
from dml.strategies.glove.serial import serial
from dml.strategies.glove.server import server
from dml.strategies.glove.synchronous import synchronous
from dml.strategies.glove.tiling import Order, tiled
from dml.strategies.server.roles import roles
from dml.types import Comm, CountedComm, Step
from dml.wire.messages import Metered, first_of_each_host, tree_allreduce
from dml.wire.messages.consistency import Consistency


def rehearse(comm: Comm, dim: int, way: str) -> None:
    """Train two words on virtual ranks, so that all kernels for dim are compiled."""
    begin, size = WAYS[way]
    first_of_each_host(comm, lambda: sim.run(partial(program, dim, begin), size))


def program(dim: int, begin: Callable[..., Iterator[Step]], comm: Comm) -> None:
    records = np.array([(1, 2, 1.0), (2, 1, 1.0)], RECORD)
    order = Order([(0, 0)], 1, 2, 16, 0, 1.0, 1.0)
    tiles, _ = tiled(comm, records, 2, order)
    state = glove(2, dim).init(0)
    next(begin(Metered(comm), state, tiles, 0.1, Timer()))


def alone(comm: CountedComm, *run: Any) -> Iterator[Step]:
    return serial(*run)


def batched(comm: CountedComm, *run: Any) -> Iterator[Step]:
    way = partial(synchronous, allreduce=tree_allreduce, batch=2)
    return way(*run, comm=comm, dense=lambda *_: False)


def served(comm: CountedComm, *run: Any) -> Iterator[Step]:
    return server(*run, comm=comm, batch=2, roles=roles(2), rule=Consistency())


WAYS = {"records": (alone, 1), "batches": (batched, 1), "servers": (served, 2)}
