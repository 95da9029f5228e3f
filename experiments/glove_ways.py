"""The strategies for GloVe by name, and the arguments that each gets from the flags."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import flags
import glove_flags
import server_flags

from dml.metrics.timer import Timer
from dml.strategies import strategy
from dml.strategies.glove.problem import columns, minibatches, order
from dml.strategies.glove.server import server as train_on_servers
from dml.strategies.server.server import Setup as Servers
from dml.strategies.shared.workers import Descent
from dml.types import BadInput, CountedComm, Problem, Step
from dml.update.rows import AdaGrad
from dml.wire.messages.gather_parts import dense_is_cheaper
from dml.wire.reducers.exact import exact


class Setup(NamedTuple):
    """The arguments of all strategies.

    epochs: to train for.
    batch: records of a minibatch.
    summary: receives what a strategy measures over the whole run.
    """

    flags: flags.FlagValues
    comm: CountedComm
    problem: Problem
    timer: Timer
    epochs: int
    batch: int
    summary: dict[str, Any]

    @property
    def common(self) -> dict[str, Any]:
        return {"comm": self.comm, "timer": self.timer}


def by_records(setup: Setup, train: Callable[..., Any], **own: Any) -> Iterator[Step]:
    epochs = repeat(order(setup.problem.kernel.data), setup.epochs)
    update = Descent(lambda epoch: setup.flags.lr)
    return train(setup.problem, epochs, update, **setup.common, **own)


def by_batches(setup: Setup, train: Callable[..., Any], **own: Any) -> Iterator[Step]:
    count, batch = setup.problem.examples, setup.batch
    batches = (b for _ in range(setup.epochs) for b in minibatches(count, batch))
    update = partial(AdaGrad, rate=setup.flags.lr)
    own["every"] = -(-count // batch)
    return train(setup.problem, batches, update, **setup.common, **own)


def serial(setup: Setup) -> Iterator[Step]:
    if setup.flags.batch or setup.comm.size > 1:  # the table refuses several ranks
        return by_batches(setup, strategy("serial", setup.problem, setup.comm.size))
    return by_records(setup, strategy("hogwild", setup.problem))


def hogwild(setup: Setup) -> Iterator[Step]:
    if setup.flags.simulate:
        raise BadInput(
            "expected real ranks with --strategy=hogwild, got --simulate, whose ranks "
            "never run at once; start it with mpirun"
        )
    return by_records(setup, strategy("hogwild", setup.problem))


def rotation(setup: Setup) -> Iterator[Step]:
    travel = {"auto": None, "memory": False, "messages": True}[setup.flags.medium]
    return by_records(setup, strategy("rotation", setup.problem), travel=travel)


def operation(setup: Setup) -> Iterator[Step]:
    allreduce = flags.allreduce(setup.flags.allreduce, setup.flags, setup.comm.size)
    train = strategy("operation", setup.problem)
    return by_batches(setup, train, allreduce=allreduce, batch=setup.batch)


def synchronous(setup: Setup) -> Iterator[Step]:
    name = setup.flags.allreduce
    dense = {
        "auto": partial(dense_is_cheaper, setup.comm, name),
        "sparse": lambda buffer, nbytes: False,
        "dense": lambda buffer, nbytes: True,
    }[setup.flags.rows]
    allreduce = flags.allreduce(name, setup.flags, setup.comm.size)
    return by_batches(
        setup,
        strategy("synchronous", setup.problem),
        reducer=exact(allreduce),
        dense=dense,
        columns=columns(setup.flags.dim),
    )


def mesh(setup: Setup) -> Iterator[Step]:
    from dml.strategies.glove.mesh import mesh as train
    from dml.wire.mesh.devices import mesh, start

    start(setup.comm)
    own = {"axes": mesh(batch=0, dim=setup.flags.columns), "batch": setup.batch}
    epochs = range(setup.epochs)
    return train(setup.problem, epochs, setup.flags.lr, **setup.common, **own)


def server(setup: Setup) -> Iterator[Step]:
    values, count = setup.flags, setup.problem.examples
    roles = server_flags.roles(values, setup.comm.size)
    servers = Servers(
        roles,
        server_flags.rule(values, roles.workers),
        habits=server_flags.habits(values),
        known=values.key_lists,
    )
    return train_on_servers(
        setup.problem,
        (minibatches(count, setup.batch) for _ in range(setup.epochs)),
        values.lr,
        **setup.common,
        setup=servers,
        summary=setup.summary,
    )


STRATEGIES: dict[str, Callable[[Setup], Iterator[Step]]] = {
    "serial": serial,
    "hogwild": hogwild,
    "rotation": rotation,
    "operation": operation,
    "synchronous": synchronous,
    "mesh": mesh,
    "server": server,
}
FEWEST = {"server": 2}  # ranks that a strategy needs, where it is not one


def sizes(name: str, ranks: Iterable[int]) -> list[int]:
    """Return on how many of these ranks a strategy can train."""
    if name == "serial":
        return [1]
    return [size for size in ranks if size >= FEWEST.get(name, 1)]


def batch(values: flags.FlagValues, size: int) -> int:
    """Return the records of a minibatch."""
    if values.strategy != "server":
        return values.batch or glove_flags.BATCH
    workers = server_flags.roles(values, size).workers
    stale = server_flags.rule(values, workers).aggregation_count
    return values.batch or (glove_flags.STALE if stale else glove_flags.SERVED)
