"""The columns of the matrix: a table of strategies with their arguments.

A new strategy is a new row of METHODS; the matrix and its tests then cover it.
Strategies whose batches actors make have no indices of examples; see rl.py. Methods
that divide a minibatch among equally many workers, and add in their order, are
bit-identical to `serial`, which accumulates equally many parts.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dml import extend
from dml.case import Case
from dml.problems import Entry
from dml.sim.delays import delay_distribution
from dml.strategies import DECENTRALISED, rotation, strategy
from dml.strategies.server.roles import Roles
from dml.strategies.server.server import Setup
from dml.strategies.shared.workers import Descent
from dml.types import identity
from dml.wire.collectives import ALLREDUCE
from dml.wire.reducers.exact import exact
from dml.wire.server.consistency import Choice, consistency

WORKERS = 3
EPOCHS = 2  # of methods that yield a Step per epoch
SEED = 1
ONE_RANK, RANKS, DEVICES, THREADS = "one rank", "ranks", "devices", "threads"
Own = Mapping[str, Any]


def by_equal_minibatches(entry: Entry) -> Entry:
    def batches(*arguments: Any) -> Iterator[Any]:
        made = entry.batches(*arguments)
        return (batch for batch in made if len(batch) == entry.batch)

    return entry._replace(batches=batches)


def on_servers(entry: Entry) -> Entry:
    return entry._replace(update=entry.served or entry.update)


def by_examples(entry: Entry) -> Entry:
    return entry._replace(
        batches=lambda problem, batch, seed: entry.orders(problem, seed),
        update=Descent(lambda epoch: entry.rate),
    )


def by_blocks(entry: Entry) -> Entry:
    if not entry.blocks:
        return by_examples(entry)
    problem, cells = rotation.in_blocks(entry.make(), WORKERS)
    return by_examples(entry)._replace(
        make=lambda: problem, batches=lambda *_: rotation.orders(cells, SEED)
    )


class Method(NamedTuple):
    """A strategy and the arguments of its call.

    Attributes:
      strategy: Name in dml.strategies.
      own: Options of the strategy, or a function of the entry that returns them.
      fabric: One rank, ranks, or the devices or threads of one rank.
      ranks: Number of ranks.
      reads: Returns the entry with the batches and the update of the strategy.
    """

    strategy: str
    own: Own | Callable[[Entry], Own] = {}
    fabric: str = RANKS
    ranks: int = WORKERS
    reads: Callable[[Entry], Entry] = identity

    def case(self, entry: Entry, updates: int) -> Case:
        """Return the training of a problem with a number of updates."""
        own = self.own(entry) if callable(self.own) else self.own
        return Case(
            self.reads(entry),
            self.strategy,
            {**own, **entry.own.get(self.strategy, {})},
            ranks=self.ranks,
            steps=EPOCHS if self.reads in (by_examples, by_blocks) else updates,
        )


def reducing(name: str, **own: Any) -> Own:
    return {"reducer": exact(ALLREDUCE[name]), **own}


def attacked(entry: Entry) -> Own:
    from dml.wire.reducers.robust.attacks import byzantine

    attack = byzantine("sign_flip:10", WORKERS)  # one worker of each group
    return CODED | {"byzantine": attack}


def served(name: str) -> Method:
    rule = consistency(name, Choice(staleness=1, softsync=2, backup=1), WORKERS)
    own = {"setup": Setup(Roles(WORKERS, (WORKERS,)), rule)}
    return Method("server", own, RANKS, WORKERS + 1, on_servers)


def on_mesh(entry: Entry) -> Own:
    from dml.wire.mesh import devices

    return {"axes": devices.mesh(data=0)}


def on_stages(pipeline: str, entry: Entry) -> Own:
    from dml.strategies.hybrid.parts import Pipeline
    from dml.wire.mesh import devices

    axes = devices.mesh(data=1, stage=WORKERS, tensor=1)
    return {"axes": axes, "pipeline": Pipeline(pipeline, 4)}


def deferring(fill: Callable[..., np.ndarray], entry: Entry) -> Own:
    deferred = fill(len(entry.make().params), np.bool_)
    return {"deferred": deferred, "batch": 1, "threads": WORKERS}


def private(entry: Entry) -> Own:
    return {"hot": np.ones(len(entry.make().params), np.bool_), "period": 1}


CODED = {"code": "repetition:1", "workers": 3 * WORKERS}
DELAYED = {"distribution": delay_distribution("constant:3"), "seed": SEED}
METHODS: dict[str, Method] = {
    "serial": Method("serial", {"accumulate": WORKERS}, ONE_RANK, 1),
    "synchronous star": Method("synchronous", reducing("star")),
    "synchronous ring": Method("synchronous", reducing("ring")),
    "local": Method("local", reducing("star", every=2)),
    "poseidon": Method(
        "poseidon", {"allreduce": ALLREDUCE["star"], "scheme": "factors"}
    ),
    "owned": Method("owned", reducing("star")),
    "kfac": Method("kfac", reducing("star")),
    "coded": Method("coded", CODED),
    "coded under attack": Method("coded", attacked),
    "zeno": Method("zeno", lambda entry: {"rate": entry.rate, "seed": SEED}),
    "gradient_coding": Method(  # six workers in three groups
        "gradient_coding", {"code": "repetition:1"}, RANKS, 2 * WORKERS + 1
    ),
    **{
        name: Method(name)
        for name in DECENTRALISED
        if name not in ("easgd", "diloco", "async_diloco")
    },
    "easgd": Method("easgd", {"allreduce": ALLREDUCE["star"]}),
    "diloco": Method("diloco", reducing("star", outer_every=2)),
    "async_diloco": Method("async_diloco", {"outer_every": 2}),
    "mesh": Method("mesh", on_mesh, DEVICES, 1),
    "hybrid gpipe": Method("hybrid", partial(on_stages, "gpipe"), DEVICES, 1),
    "hybrid 1f1b": Method("hybrid", partial(on_stages, "1f1b"), DEVICES, 1),
    "sharded": Method("sharded", on_mesh, DEVICES, 1),
    "offload": Method("offload", reducing("star", device_mb=1.0)),
    "scan": Method("scan", {}, ONE_RANK, 1, by_equal_minibatches),
    **{
        f"server {name}": served(name)
        for name in ("bsp", "async", "ssp", "essp", "softsync", "backup")
    },
    "hogwild on 1 worker": Method("hogwild", {}, ONE_RANK, 1, by_examples),
    "hogwild_private": Method("hogwild_private", private, ONE_RANK, 1, by_examples),
    "delayed": Method("delayed", DELAYED, ONE_RANK, 1, by_examples),
    "average": Method("average", {"threads": WORKERS}, THREADS, 1, by_examples),
    "cyclades": Method(
        "cyclades", partial(deferring, np.zeros), THREADS, 1, by_examples
    ),
    "minibatch": Method(
        "cyclades", partial(deferring, np.ones), THREADS, 1, by_examples
    ),
    "rotation on 1 rank": Method("rotation", {}, ONE_RANK, 1, by_blocks),
    "rotation": Method("rotation", reads=by_blocks),
    "operation": Method(
        "operation",
        lambda entry: {"allreduce": ALLREDUCE["ring"], "batch": entry.batch},
    ),
    "s_step": Method(
        "s_step", lambda entry: {"allreduce": ALLREDUCE["ring"], "rate": entry.rate}
    ),
    "lbfgs": Method("lbfgs", {"allreduce": ALLREDUCE["ring"]}),
    "prox_cocoa": Method("prox_cocoa", {"allreduce": ALLREDUCE["ring"]}),
}


def find_method(name: str) -> Method:
    """Return the row of a name in METHODS, or a row for a function of a user.

    `synchronous NAME` sums gradients by any all-reduce; other names are strategies of a
    user, which receive those offered options that are their parameters.
    """
    if name in METHODS:
        return METHODS[name]
    strategy_name, _, allreduce = name.partition(" ")
    if strategy_name == "synchronous" and allreduce:
        function = extend.find(allreduce, ALLREDUCE, extend.ALLREDUCES)
        return Method(strategy_name, {"reducer": exact(function)})
    extend.find(name, {}, extend.STRATEGIES)

    def own(entry: Entry) -> Own:
        ring = ALLREDUCE["ring"]
        offered = {"reducer": exact(ring), "allreduce": ring, "batch": entry.batch}
        return extend.accepted(strategy(name, entry.make()), offered)

    return Method(name, own)
