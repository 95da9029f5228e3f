"""The columns of the matrix: strategies with their arguments, a row each.

A new strategy is a new row of METHODS; the matrix and its tests then cover it. Methods
that share a minibatch among equally many workers, and add in their order, have the bits
of `serial`, which accumulates as many parts.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from matrix_problems import Entry

from dml.data.minibatches import minibatches
from dml.metrics.timer import Timer
from dml.strategies import strategy
from dml.strategies.server.roles import Roles
from dml.strategies.server.server import Setup
from dml.types import CountedComm, Step
from dml.wire.messages import ALLREDUCE
from dml.wire.messages.consistency import Choice, consistency
from dml.wire.reducers.exact import exact

WORKERS = 3
SEED = 1
ONE, RANKS, DEVICES = "one rank", "ranks", "devices"


class Method(NamedTuple):
    """A strategy and how it is called.

    strategy: its name in dml.strategies.
    own: (entry, communicator) -> its own arguments.
    fabric: one rank, ranks, or devices of one rank.
    ranks: how many.
    """

    strategy: str
    own: Callable[[Entry, CountedComm], dict[str, Any]]
    fabric: str = RANKS
    ranks: int = WORKERS


def accumulate(entry: Entry, comm: CountedComm) -> dict[str, Any]:
    return {"accumulate": WORKERS}


def reduced(name: str, entry: Entry, comm: CountedComm, **own: Any) -> dict[str, Any]:
    return {"reducer": exact(ALLREDUCE[name]), **own}


def served(name: str, entry: Entry, comm: CountedComm) -> dict[str, Any]:
    workers = comm.size - 1
    rule = consistency(name, Choice(staleness=1, softsync=2, backup=1), workers)
    return {"setup": Setup(Roles(workers, (workers,)), rule)}


def data_parallel(entry: Entry, comm: CountedComm) -> dict[str, Any]:
    from dml.wire.mesh import devices

    return {"axes": devices.mesh(data=0)}


METHODS: dict[str, Method] = {
    "serial": Method("serial", accumulate, ONE, 1),
    "synchronous star": Method("synchronous", partial(reduced, "star")),
    "synchronous ring": Method("synchronous", partial(reduced, "ring")),
    "local": Method("local", partial(reduced, "star", every=2)),
    "mesh": Method("mesh", data_parallel, DEVICES),
    **{
        f"server {name}": Method("server", partial(served, name), ranks=WORKERS + 1)
        for name in ("bsp", "async", "ssp", "essp", "softsync", "backup")
    },
}


def steps(
    method: Method, entry: Entry, comm: CountedComm, updates: int
) -> Iterator[Step]:
    """Return the Steps of so many updates; BadInput where the method does not fit."""
    problem = entry.make()
    train_by = strategy(method.strategy, problem)
    batches = minibatches(problem.examples, entry.batch, SEED)
    return train_by(
        problem,
        (next(batches) for _ in range(updates)),
        entry.update,
        comm=comm,
        timer=Timer(comm.Wtime),
        **method.own(entry, comm),
    )
