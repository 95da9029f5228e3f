"""Strategies of GloVe by name, and their arguments from the flags."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

from lab import flags, readers
import numpy as np

from dml.metrics.timer import Timer
from dml.strategies import strategy
from dml.strategies.glove.compiled import compile_ahead
from dml.strategies.glove.problem import columns, minibatches, order
from dml.strategies.glove.served import on_servers
from dml.strategies.server.server import Setup as Servers
from dml.strategies.shared.workers import Descent
from dml.types import BadInput, CountedComm, Problem, Step
from dml.update.rows import AdaGrad
from dml.wire.collectives import ALLREDUCE
from dml.wire.collectives.all_gather_parts import dense_is_cheaper
from dml.wire.reducers.exact import exact
from studies.glove import flags as glove_flags
from studies.server import flags as server_flags


class Setup(NamedTuple):
    """The arguments of all strategies.

    epochs: epochs to train.
    batch: records of a minibatch.
    summary: dict that receives measures of the entire run.
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


def by_records(setup: Setup, name: str, **own: Any) -> Iterator[Step]:
    """Train by the fused kernel, record by record."""
    train = strategy(name, setup.problem)
    epochs = repeat(order(setup.problem.kernel.data), setup.epochs)
    update = Descent(lambda epoch: setup.flags.lr)
    return train(setup.problem, epochs, update, **setup.common, **own)


def by_batches(setup: Setup, name: str, **own: Any) -> Iterator[Step]:
    """Train by gradients of minibatches."""
    train = strategy(name, setup.problem, setup.comm.size)
    own |= setup.common | {"every": minibatches_per_epoch(setup)}
    update = partial(AdaGrad, rate=setup.flags.lr)
    return train(setup.problem, batches(setup), update, **own)


def batches(setup: Setup) -> Iterator[np.ndarray]:
    """Yield the minibatches of all epochs."""
    for _ in range(setup.epochs):
        yield from minibatches(setup.problem.examples, setup.batch)


def minibatches_per_epoch(setup: Setup) -> int:
    """Return the number of minibatches of an epoch."""
    return -(-setup.problem.examples // setup.batch)


def serial(setup: Setup) -> Iterator[Step]:
    # by_batches raises BadInput for several ranks
    if setup.flags.batch or setup.comm.size > 1:
        return by_batches(setup, "serial")
    return by_records(setup, "hogwild")


def hogwild(setup: Setup) -> Iterator[Step]:
    if setup.flags.simulate:
        raise BadInput(
            "expected real ranks with --strategy=hogwild, got --simulate, whose ranks "
            "never run at once; start it with mpirun"
        )
    return by_records(setup, "hogwild")


def rotation(setup: Setup) -> Iterator[Step]:
    by_messages = {"auto": None, "memory": False, "messages": True}[setup.flags.medium]
    return by_records(setup, "rotation", by_messages=by_messages)


def operation(setup: Setup) -> Iterator[Step]:
    allreduce = flags.allreduce(setup.flags.allreduce, setup.flags, setup.comm.size)
    return by_batches(setup, "operation", allreduce=allreduce, batch=setup.batch)


def synchronous(setup: Setup) -> Iterator[Step]:
    name = setup.flags.allreduce
    costed = name if name in ALLREDUCE else "auto"  # others have no cost formula
    dense = {
        "auto": partial(dense_is_cheaper, setup.comm, costed),
        "sparse": lambda buffer, nbytes: False,
        "dense": lambda buffer, nbytes: True,
    }[setup.flags.rows]
    reducer = exact(flags.allreduce(name, setup.flags, setup.comm.size))
    sent = columns(setup.flags.dim)
    return by_batches(setup, "synchronous", reducer=reducer, dense=dense, columns=sent)


def mesh(setup: Setup) -> Iterator[Step]:
    from dml.strategies.glove.mesh import mesh as train
    from dml.wire.mesh.devices import mesh, start

    start(setup.comm)
    own = {"axes": mesh(batch=0, dim=setup.flags.columns), "batch": setup.batch}
    epochs = range(setup.epochs)
    return train(setup.problem, epochs, setup.flags.lr, **setup.common, **own)


def server(setup: Setup) -> Iterator[Step]:
    values = setup.flags
    roles = server_flags.roles(values, setup.comm.size)
    servers = Servers(
        roles,
        server_flags.rule(values, roles.workers),
        worker_options=server_flags.worker_options(values),
        key_lists=values.key_lists,
    )
    return on_servers(
        setup.problem,
        batches(setup),
        values.lr,
        **setup.common,
        setup=servers,
        every=minibatches_per_epoch(setup),
        summary=setup.summary,
    )


def server_batch(values: flags.FlagValues, size: int) -> int:
    workers = server_flags.roles(values, size).workers
    by_clock = server_flags.rule(values, workers).by_clock
    return glove_flags.SERVER_BATCH if by_clock else glove_flags.STALE_BATCH


class GloveStrategy(NamedTuple):
    """A strategy of GloVe.

    Attributes:
      train: Setup -> the Steps.
      reads: Flags that not all strategies read.
      kernels: Compiled loops of a run: records, batches or servers.
      batch: (flags, number of ranks) -> the default number of records of a minibatch.
      least: Fewest ranks.
      alone: Whether the strategy runs on one rank only.
      devices: Whether the strategy runs on the devices of one rank.
      divided: Whether a rank has a part of each vector.
    """

    train: Callable[[Setup], Iterator[Step]]
    reads: Sequence[str] = ()
    kernels: str = "batches"
    batch: Callable[[flags.FlagValues, int], int] = lambda *_: glove_flags.BATCH
    least: int = 1
    alone: bool = False
    devices: bool = False
    divided: bool = False


STRATEGIES = {
    "serial": GloveStrategy(serial, ["batch"], "records", alone=True),
    "hogwild": GloveStrategy(hogwild, [], "records"),
    "rotation": GloveStrategy(rotation, ["medium"], "records"),
    "operation": GloveStrategy(operation, ["batch", "allreduce"], divided=True),
    "synchronous": GloveStrategy(synchronous, ["batch", "allreduce", "rows"]),
    "mesh": GloveStrategy(mesh, ["batch", "columns"], devices=True),
    "server": GloveStrategy(
        server, ["batch", *readers.SERVER], "servers", server_batch, least=2
    ),
}


def check(values: flags.FlagValues) -> None:
    """Raise BadInput for a flag that is set and that the strategy does not read."""
    by_flag: dict[str, list[str]] = {}
    for name, entry in STRATEGIES.items():
        for flag in entry.reads:
            by_flag.setdefault(flag, []).append(name)
    readers.check(values, "strategy", by_flag)
    readers.check_consistency(values)


def sizes(name: str, ranks: Iterable[int]) -> list[int]:
    """Return the numbers of ranks on which a strategy can train."""
    entry = STRATEGIES[name]
    return [1] if entry.alone else [size for size in ranks if size >= entry.least]


def compile_kernels(values: flags.FlagValues, comm: CountedComm) -> None:
    """Compile the loops of --strategy once per host."""
    entry = STRATEGIES[values.strategy]
    by_batches = values.batch and entry.kernels == "records"  # serial
    dim = values.dim // comm.size if entry.divided else values.dim
    compile_ahead(comm, dim, "batches" if by_batches else entry.kernels)


def batch(values: flags.FlagValues, size: int) -> int:
    """Return the records of a minibatch."""
    default = STRATEGIES[values.strategy].batch(values, size)
    return values.batch or default


def steps(setup: Setup, done: int) -> Iterator[Step]:
    """Yield the Steps of --strategy, numbered from the start of the first run.

    All epochs have equally many updates.
    """
    for step in STRATEGIES[setup.flags.strategy].train(setup) if setup.epochs else ():
        assert step.epoch
        before = done * (step.number // step.epoch)
        yield step._replace(number=before + step.number, epoch=done + step.epoch)
