"""Strategies of GloVe by name, their arguments from the flags, and the start value."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

from lab import flags
import numpy as np

from dml.metrics.timer import Timer
from dml.models.networks.glove import glove
from dml.runs import checkpoints, results
from dml.strategies import strategy
from dml.strategies.glove.problem import columns, minibatches, order
from dml.strategies.glove.served import on_servers
from dml.strategies.server.server import Setup as Servers
from dml.strategies.shared.workers import Descent
from dml.train import last_step
from dml.types import BadInput, CountedComm, Embeddings, Problem, Step
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


STRATEGIES: dict[str, Callable[[Setup], Iterator[Step]]] = {
    "serial": serial,
    "hogwild": hogwild,
    "rotation": rotation,
    "operation": operation,
    "synchronous": synchronous,
    "mesh": mesh,
    "server": server,
}
MIN_RANKS = {"server": 2}  # fewest ranks of a strategy; default 1


def sizes(name: str, ranks: Iterable[int]) -> list[int]:
    """Return the numbers of ranks on which a strategy can train."""
    if name == "serial":
        return [1]
    return [size for size in ranks if size >= MIN_RANKS.get(name, 1)]


def batch(values: flags.FlagValues, size: int) -> int:
    """Return the records of a minibatch."""
    if values.strategy != "server":
        return values.batch or glove_flags.BATCH
    workers = server_flags.roles(values, size).workers
    by_clock = server_flags.rule(values, workers).by_clock
    return values.batch or (
        glove_flags.SERVER_BATCH if by_clock else glove_flags.STALE_BATCH
    )


# Flags that a resumed run may change. Results of rotation do not depend on the medium.
FREE = {"out", "epochs", "resume", "save_every", "watchdog", "check", "neighbours"}
FREE |= {"simulate", "network", "medium", "memory", "profile", *flags.WRITTEN}


def rules(values: flags.FlagValues, words: int, records: int) -> dict[str, Any]:
    """Return the flags and sizes that a resumed run must share."""
    chosen = flags.chosen(values).items()
    fixed = {f"--{k}": v for k, v in chosen if k not in FREE}
    return fixed | {"words": words, "records": records}


def begin(
    values: flags.FlagValues, rank: int, words: int, rules: Mapping[str, Any]
) -> tuple[int, Embeddings]:
    """Return the number of completed epochs and the state after them."""
    if not values.resume:
        return 0, glove(words, values.dim, values.tables).init(values.seed)

    def warn(line: str) -> None:
        if rank == 0:
            sys.stderr.write(f"{line}\n")

    folder = Path(values.resume, checkpoints.FOLDER)
    shapes = state_shapes(words * values.tables, values.dim)
    epoch, arrays, _ = checkpoints.load(folder, rules, shapes, warn)
    complete = results.folder_status(Path(values.resume)) == results.DONE
    if epoch > values.epochs or (epoch == values.epochs and complete):
        raise BadInput(
            f"expected more epochs than the {epoch} of the run in {values.resume}, got "
            f"--epochs={values.epochs}; the run is complete: pass a larger --epochs"
        )
    return epoch, Embeddings(**arrays)


def state_shapes(rows: int, dim: int) -> dict[str, str]:
    """Return the dtypes and shapes of the state of `rows` words and contexts."""
    matrix, vector = f"float32[{rows}, {dim}]", f"float32[{rows}]"
    return dict(zip(Embeddings._fields, (matrix, vector, matrix, vector), strict=True))


def finished(setup: Setup, done: int) -> Step | None:
    """Return the last step of an earlier run if it had all epochs."""
    if setup.epochs:
        return None
    return last_step(setup.flags.resume, setup.problem.params, epoch=done)


def steps(setup: Setup, done: int) -> Iterator[Step]:
    """Yield the Steps of --strategy, numbered from the start of the first run.

    All epochs have equally many updates.
    """
    for step in STRATEGIES[setup.flags.strategy](setup) if setup.epochs else ():
        assert step.epoch
        before = done * (step.number // step.epoch)
        yield step._replace(number=before + step.number, epoch=done + step.epoch)
