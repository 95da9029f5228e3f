"""The columns of the matrix: a table of strategies with their arguments.

A new strategy is a new row of METHODS; the matrix and its tests then cover it.
Strategies whose batches actors make have no indices of examples; see rl.py. Methods
that divide a minibatch among equally many workers, and add in their order, are
bit-identical to `serial`, which accumulates equally many parts.
"""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from dml import extend
from dml.metrics.timer import Timer
from dml.sim.delays import delay_distribution
from dml.strategies import DECENTRALISED, rotation, strategy
from dml.strategies.server.roles import Roles
from dml.strategies.server.server import Setup
from dml.strategies.shared.workers import Descent
from dml.types import CountedComm, Problem, Step
from dml.wire.collectives import ALLREDUCE
from dml.wire.reducers.exact import exact
from dml.wire.server.consistency import Choice, consistency
from studies.matrix.problems import Entry

WORKERS = 3
EPOCHS = 2  # of methods that yield a Step per epoch
SEED = 1
ONE_RANK, RANKS, DEVICES, THREADS = "one rank", "ranks", "devices", "threads"
Own = dict[str, Any]
Arguments = tuple[Problem, Iterator[Any], Any]


def by_minibatches(entry: Entry, problem: Problem, updates: int) -> Arguments:
    batches = islice(entry.batches(problem, entry.batch), updates)
    return problem, batches, entry.update


def by_equal_minibatches(entry: Entry, problem: Problem, updates: int) -> Arguments:
    batches = entry.batches(problem, entry.batch)
    equal = (batch for batch in batches if len(batch) == entry.batch)
    return problem, islice(equal, updates), entry.update


def on_servers(entry: Entry, problem: Problem, updates: int) -> Arguments:
    *problem_and_batches, update = by_minibatches(entry, problem, updates)
    return *problem_and_batches, entry.served or update


def by_examples(entry: Entry, problem: Problem, updates: int) -> Arguments:
    epochs = islice(entry.orders(problem), EPOCHS)
    return problem, epochs, Descent(lambda epoch: entry.rate)


def by_blocks(entry: Entry, problem: Problem, updates: int) -> Arguments:
    if not entry.blocks:
        return by_examples(entry, problem, updates)
    problem, cells = rotation.in_blocks(problem, WORKERS)
    epochs = islice(rotation.orders(cells, SEED), EPOCHS)
    return problem, epochs, Descent(lambda epoch: entry.rate)


class Method(NamedTuple):
    """A strategy and the arguments of its call.

    Attributes:
      strategy: Name in dml.strategies.
      own: (entry, communicator) -> keyword arguments of the strategy.
      fabric: One rank, ranks, or the devices or threads of one rank.
      ranks: Number of ranks.
      arguments: (entry, problem, updates) -> positional arguments.
    """

    strategy: str
    own: Callable[[Entry, CountedComm], Own]
    fabric: str = RANKS
    ranks: int = WORKERS
    arguments: Callable[[Entry, Problem, int], Arguments] = by_minibatches


def no_options(entry: Entry, comm: CountedComm) -> Own:
    return {}


def accumulate_options(entry: Entry, comm: CountedComm) -> dict[str, Any]:
    return {"accumulate": WORKERS}


def allreduce_options(
    name: str, entry: Entry, comm: CountedComm, **own: Any
) -> dict[str, Any]:
    return {"reducer": exact(ALLREDUCE[name]), **own}


def poseidon_options(entry: Entry, comm: CountedComm) -> Own:
    return {"allreduce": ALLREDUCE["star"], "scheme": "factors"}


def coded_options(entry: Entry, comm: CountedComm) -> Own:
    return {"code": "repetition:1", "workers": 3 * WORKERS}


def attacked_options(entry: Entry, comm: CountedComm) -> Own:
    from dml.wire.reducers.robust.attacks import byzantine

    attack = byzantine("sign_flip:10", WORKERS)  # one worker of each group
    return coded_options(entry, comm) | {"byzantine": attack}


def coding_options(entry: Entry, comm: CountedComm) -> Own:
    return {"code": "repetition:1"}  # six workers in three groups


def zeno_options(entry: Entry, comm: CountedComm) -> Own:
    return {"rate": entry.rate, "seed": SEED}


def server_options(name: str, entry: Entry, comm: CountedComm) -> dict[str, Any]:
    workers = comm.size - 1
    rule = consistency(name, Choice(staleness=1, softsync=2, backup=1), workers)
    return {"setup": Setup(Roles(workers, (workers,)), rule)}


def mesh_options(entry: Entry, comm: CountedComm) -> dict[str, Any]:
    from dml.wire.mesh import devices

    return {"axes": devices.mesh(data=0)}


def cyclades_options(name: str, entry: Entry, comm: CountedComm) -> Own:
    rows = len(entry.make().params)
    deferred = (
        np.zeros(rows, np.bool_) if name == "cyclades" else np.ones(rows, np.bool_)
    )
    return {"deferred": deferred, "batch": 1, "threads": WORKERS}


def private_options(entry: Entry, comm: CountedComm) -> Own:
    return {"hot": np.ones(len(entry.make().params), np.bool_), "period": 1}


def thread_options(entry: Entry, comm: CountedComm) -> Own:
    return {"threads": WORKERS}


def delay_options(entry: Entry, comm: CountedComm) -> Own:
    return {"distribution": delay_distribution("constant:3"), "seed": SEED}


def operation_options(entry: Entry, comm: CountedComm) -> Own:
    return {"allreduce": ALLREDUCE["ring"], "batch": entry.batch}


def hybrid_options(pipeline: str, entry: Entry, comm: CountedComm) -> Own:
    from dml.strategies.hybrid.parts import Pipeline
    from dml.wire.mesh import devices

    axes = devices.mesh(data=1, stage=WORKERS, tensor=1)
    return {"axes": axes, "pipeline": Pipeline(pipeline, 4)}


METHODS: dict[str, Method] = {
    "serial": Method("serial", accumulate_options, ONE_RANK, 1),
    "synchronous star": Method("synchronous", partial(allreduce_options, "star")),
    "synchronous ring": Method("synchronous", partial(allreduce_options, "ring")),
    "local": Method("local", partial(allreduce_options, "star", every=2)),
    "poseidon": Method("poseidon", poseidon_options),
    "owned": Method("owned", partial(allreduce_options, "star")),
    "kfac": Method("kfac", partial(allreduce_options, "star")),
    "coded": Method("coded", coded_options),
    "coded under attack": Method("coded", attacked_options),
    "zeno": Method("zeno", zeno_options),
    "gradient_coding": Method(
        *("gradient_coding", coding_options, RANKS, 2 * WORKERS + 1)
    ),
    **{
        name: Method(name, no_options)
        for name in DECENTRALISED
        if name not in ("easgd", "diloco", "async_diloco")
    },
    "easgd": Method("easgd", lambda entry, comm: {"allreduce": ALLREDUCE["star"]}),
    "diloco": Method("diloco", partial(allreduce_options, "star", outer_every=2)),
    "async_diloco": Method("async_diloco", lambda entry, comm: {"outer_every": 2}),
    "mesh": Method("mesh", mesh_options, DEVICES, 1),
    "hybrid gpipe": Method("hybrid", partial(hybrid_options, "gpipe"), DEVICES, 1),
    "hybrid 1f1b": Method("hybrid", partial(hybrid_options, "1f1b"), DEVICES, 1),
    "sharded": Method("sharded", mesh_options, DEVICES, 1),
    "offload": Method("offload", partial(allreduce_options, "star", device_mb=1.0)),
    "scan": Method("scan", no_options, ONE_RANK, 1, by_equal_minibatches),
    **{
        f"server {name}": Method(
            *("server", partial(server_options, name), RANKS, WORKERS + 1, on_servers)
        )
        for name in ("bsp", "async", "ssp", "essp", "softsync", "backup")
    },
    "hogwild on 1 worker": Method("hogwild", no_options, ONE_RANK, 1, by_examples),
    "hogwild_private": Method(
        "hogwild_private", private_options, ONE_RANK, 1, by_examples
    ),
    "delayed": Method("delayed", delay_options, ONE_RANK, 1, by_examples),
    "average": Method("average", thread_options, THREADS, 1, by_examples),
    **{
        name: Method(
            "cyclades", partial(cyclades_options, name), THREADS, 1, by_examples
        )
        for name in ("cyclades", "minibatch")
    },
    "rotation on 1 rank": Method("rotation", no_options, ONE_RANK, 1, by_blocks),
    "rotation": Method("rotation", no_options, arguments=by_blocks),
    "operation": Method("operation", operation_options),
}


def steps(
    method: Method, entry: Entry, comm: CountedComm, updates: int
) -> Iterator[Step]:
    """Return the Steps of a number of updates; raise BadInput if the method cannot."""
    problem, batches, update = method.arguments(entry, entry.make(), updates)
    train_by = strategy(method.strategy, problem)
    own = method.own(entry, comm) | entry.own.get(method.strategy, {})
    ranks = {"comm": comm, "timer": Timer(comm.Wtime)}
    return train_by(problem, batches, update, **ranks, **own)


def find_method(name: str) -> Method:
    """Return the row of a name in METHODS, or a row for a function of a user.

    `synchronous NAME` sums gradients by any all-reduce; other names are strategies of a
    user.
    """
    if name in METHODS:
        return METHODS[name]
    strategy_name, _, allreduce = name.partition(" ")
    if strategy_name == "synchronous" and allreduce:
        function = extend.find(allreduce, ALLREDUCE, extend.ALLREDUCES)
        return Method(strategy_name, lambda entry, comm: {"reducer": exact(function)})
    extend.find(name, {}, extend.STRATEGIES)
    return Method(name, partial(user_options, name))


def user_options(name: str, entry: Entry, comm: CountedComm) -> Own:
    """Return those options that a user's strategy has as parameters."""
    ring = ALLREDUCE["ring"]
    offered = {"reducer": exact(ring), "allreduce": ring, "batch": entry.batch}
    return extend.accepted(strategy(name, entry.make()), offered)
