"""The strategies in shared memory by the names of --updates, and their arguments."""

from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from dml.data.minibatches import minibatches
from dml.metrics.timer import Timer
from dml.models.sparse.completion import with_products
from dml.strategies import rotation, strategy
from dml.strategies.shared.workers import Descent, orders
from dml.types import BadInput, CountedComm, Problem, Step
from dml.update.moves import Moves
from dml.wire.collectives import ALLREDUCE
from dml.wire.memory import atomic, hogwild, locked, round_robin
from dml.wire.memory import global_lock as whole
from dml.wire.memory.conflicts import hubs


class Settings(NamedTuple):
    """The arguments of all strategies in shared memory.

    Attributes:
      update: Learning rates and momentum.
      batch: Number of examples of a block.
      seed: Random seed of the order of blocks.
      hubs: cyclades defers rows in more than this share of the examples to the end of
        a block.
      threads: Number of workers of each rank.
      counting: Whether lost changes of rows are measured.
      delay: Number of extra reads by which each gradient is delayed.
      blocks: Number of blocks of rows on each side, in rotation.
    """

    update: Descent
    batch: int
    seed: int = 0
    hubs: float = 1.0
    threads: int = 1
    counting: bool = False
    delay: int = 0
    blocks: int = 8


Own = Callable[[Problem, Settings], dict[str, Any]]


def by_policy(policy: ModuleType, problem: Problem, how: Settings) -> dict[str, Any]:
    own = {"counting": how.counting, "delay": how.delay}
    return {"policy": policy, "threads": how.threads, **own}


def hubs_apart(problem: Problem, how: Settings) -> dict[str, Any]:
    deferred = hubs(problem.kernel.data.edges, len(problem.params), how.hubs)
    return {"deferred": deferred, "batch": how.batch, "threads": how.threads}


def all_apart(problem: Problem, how: Settings) -> dict[str, Any]:
    deferred = np.ones(len(problem.params), np.bool_)
    return {"deferred": deferred, "batch": how.batch, "threads": how.threads}


def own_tables(problem: Problem, how: Settings) -> dict[str, Any]:
    return {"threads": how.threads}


# Strategies by the names of --updates, with their arguments.
UPDATES: dict[str, tuple[str, Own]] = {
    "serial": ("hogwild", partial(by_policy, hogwild)),
    "hogwild": ("hogwild", partial(by_policy, hogwild)),
    "atomic": ("hogwild", partial(by_policy, atomic)),
    "locked": ("hogwild", partial(by_policy, locked)),
    "global": ("hogwild", partial(by_policy, whole)),
    "roundrobin": ("hogwild", partial(by_policy, round_robin)),
    "cyclades": ("cyclades", hubs_apart),
    "average": ("average", own_tables),
    "minibatch": ("cyclades", all_apart),
}


def begin(
    updates: str, problem: Problem, how: Settings, comm: CountedComm, timer: Timer
) -> Iterator[Step]:
    """Return an endless iterator of the Steps of --updates, one per epoch."""
    if updates == "serial" and comm.size * how.threads > 1:
        raise BadInput(
            f"expected one worker with --updates=serial, got {comm.size * how.threads};"
            " pass --updates=cyclades, which has the same bits where no row waits"
        )
    if updates in FACTORISING:
        return FACTORISING[updates](problem, how, comm, timer)
    name, own = UPDATES[updates]
    return strategy(name, problem)(
        problem,
        orders(problem.examples, how.batch, how.seed),
        how.update,
        comm=comm,
        timer=timer,
        **own(problem, how),
    )


def one_thread(updates: str, how: Settings) -> None:
    if how.threads > 1:
        raise BadInput(
            f"expected one thread a rank with --updates={updates}, got {how.threads}; "
            "start more ranks, with --threads=1"
        )


def rotating(
    problem: Problem, how: Settings, comm: CountedComm, timer: Timer
) -> Iterator[Step]:
    """Return the Steps of rotation, which visits one cell after another."""
    one_thread("rotation", how)
    problem, cells = rotation.in_blocks(problem, how.blocks)
    orders = rotation.orders(cells, how.seed)
    train = strategy("rotation", problem)
    return train(problem, orders, how.update, comm=comm, timer=timer)


def by_columns(
    problem: Problem, how: Settings, comm: CountedComm, timer: Timer
) -> Iterator[Step]:
    """Return the Steps of operation, with gradients summed over a minibatch."""
    one_thread("operation", how)
    if how.update.momentum:
        raise BadInput(
            "expected no momentum with --updates=operation, got "
            f"{how.update.momentum:g}; pass --momentum=0"
        )
    batch, problem = min(how.batch, problem.examples), with_products(problem)
    every = -(-problem.examples // batch)

    def rate(number: int) -> float:
        return batch * how.update.rate(1 + (number - 1) // every)

    return strategy("operation", problem)(
        problem,
        minibatches(problem.examples, batch, how.seed),
        partial(Moves, move=problem.kernel.model.move, rate=rate),
        comm=comm,
        timer=timer,
        allreduce=ALLREDUCE["ring"],
        batch=batch,
        every=every,
    )


# --updates of matrix factorisation only: an example has a row of each side.
FACTORISING = {"rotation": rotating, "operation": by_columns}
