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
from dml.wire.memory import atomic, global_lock, hogwild, locked, round_robin
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
      counting: Whether lost changes of rows are counted.
      delay: Number of extra reads by which each gradient is delayed.
      blocks: Number of blocks of rows on each side, in rotation.
      hot: hogwild_private sums the changes of rows in more than this share of the
        examples in private memory.
      period: Number of edges after which a worker of hogwild_private adds its sums to
        the table.
    """

    update: Descent
    batch: int
    seed: int = 0
    hubs: float = 1.0
    threads: int = 1
    counting: bool = False
    delay: int = 0
    blocks: int = 8
    hot: float = 0.05
    period: int = 256


Arguments = Callable[[Problem, Settings], dict[str, Any]]


def hogwild_arguments(
    policy: ModuleType, problem: Problem, options: Settings
) -> dict[str, Any]:
    """Return the arguments of strategy hogwild with a locking policy."""
    return {
        "policy": policy,
        "threads": options.threads,
        "counting": options.counting,
        "delay": options.delay,
    }


def private_arguments(problem: Problem, options: Settings) -> dict[str, Any]:
    """Return the arguments of strategy hogwild_private."""
    hot = hubs(problem.kernel.data.edges, len(problem.params), options.hot)
    return {"hot": hot, "period": options.period, "threads": options.threads}


def cyclades_arguments(problem: Problem, options: Settings) -> dict[str, Any]:
    """Return the arguments of strategy cyclades that defer the updates of hubs."""
    deferred = hubs(problem.kernel.data.edges, len(problem.params), options.hubs)
    return {"deferred": deferred, "batch": options.batch, "threads": options.threads}


def minibatch_arguments(problem: Problem, options: Settings) -> dict[str, Any]:
    """Return the arguments of strategy cyclades that defer the updates of all rows."""
    deferred = np.ones(len(problem.params), np.bool_)
    return {"deferred": deferred, "batch": options.batch, "threads": options.threads}


def average_arguments(problem: Problem, options: Settings) -> dict[str, Any]:
    return {"threads": options.threads}


# By the names of --updates: name of the strategy, function that makes its arguments.
UPDATES: dict[str, tuple[str, Arguments]] = {
    "serial": ("hogwild", partial(hogwild_arguments, hogwild)),
    "hogwild": ("hogwild", partial(hogwild_arguments, hogwild)),
    "hogwild_private": ("hogwild_private", private_arguments),
    "atomic": ("hogwild", partial(hogwild_arguments, atomic)),
    "locked": ("hogwild", partial(hogwild_arguments, locked)),
    "global": ("hogwild", partial(hogwild_arguments, global_lock)),
    "roundrobin": ("hogwild", partial(hogwild_arguments, round_robin)),
    "cyclades": ("cyclades", cyclades_arguments),
    "average": ("average", average_arguments),
    "minibatch": ("cyclades", minibatch_arguments),
}


def begin(
    updates: str, problem: Problem, options: Settings, comm: CountedComm, timer: Timer
) -> Iterator[Step]:
    """Return an endless iterator of the Steps of --updates, one per epoch."""
    if updates == "serial" and comm.size * options.threads > 1:
        raise BadInput(
            "expected one worker with --updates=serial, got "
            f"{comm.size * options.threads}; pass --updates=cyclades, which is "
            "bit-identical to serial if no row is deferred"
        )
    if updates in FACTORISING:
        return FACTORISING[updates](problem, options, comm, timer)
    name, make_arguments = UPDATES[updates]
    return strategy(name, problem)(
        problem,
        orders(problem.examples, options.batch, options.seed),
        options.update,
        comm=comm,
        timer=timer,
        **make_arguments(problem, options),
    )


def require_one_thread(updates: str, options: Settings) -> None:
    if options.threads > 1:
        raise BadInput(
            f"expected --threads=1 with --updates={updates}, got {options.threads}; "
            "start more ranks, with --threads=1"
        )


def start_rotation(
    problem: Problem, options: Settings, comm: CountedComm, timer: Timer
) -> Iterator[Step]:
    """Return the Steps of rotation, with the ratings divided into blocks."""
    require_one_thread("rotation", options)
    problem, cells = rotation.in_blocks(problem, options.blocks)
    orders = rotation.orders(cells, options.seed)
    train = strategy("rotation", problem)
    return train(problem, orders, options.update, comm=comm, timer=timer)


def start_operation(
    problem: Problem, options: Settings, comm: CountedComm, timer: Timer
) -> Iterator[Step]:
    """Return the Steps of operation, with gradients summed over a minibatch."""
    require_one_thread("operation", options)
    if options.update.momentum:
        raise BadInput(
            "expected no momentum with --updates=operation, got "
            f"{options.update.momentum:g}; pass --momentum=0"
        )
    batch = min(options.batch, problem.examples)
    problem = with_products(problem)
    updates_per_epoch = -(-problem.examples // batch)

    def rate(update: int) -> float:
        """Return the rate of an update; updates and epochs are counted from 1."""
        return batch * options.update.rate(1 + (update - 1) // updates_per_epoch)

    return strategy("operation", problem)(
        problem,
        minibatches(problem.examples, batch, options.seed),
        partial(Moves, move=problem.kernel.model.move, rate=rate),
        comm=comm,
        timer=timer,
        allreduce=ALLREDUCE["ring"],
        batch=batch,
        every=updates_per_epoch,
    )


# --updates of matrix factorisation only, where an example has a user and an item row.
FACTORISING = {"rotation": start_rotation, "operation": start_operation}
