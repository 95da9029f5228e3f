"""The columns of the matrix: a table of strategies with their arguments.

A strategy without a row in ROWS is a column without options; the matrix and its tests
cover it. Strategies whose batches actors make have no indices of examples; see rl.py.
Methods that divide a minibatch among equally many workers, and add in their order, are
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
from dml.strategies import DECENTRALISED, STRATEGIES, entry_of, load, rotation
from dml.strategies.server.roles import Roles
from dml.strategies.server.server import Setup
from dml.strategies.shared.workers import Descent
from dml.types import identity
from dml.wire.collectives import ALLREDUCE
from dml.wire.mesh import devices
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
      strategy: Name of a strategy.
      own: Options of the strategy, or a function of the entry that returns them. Others
        follow from its signature, see `offered`.
      fabric: One rank, ranks, or the devices or threads of one rank.
      ranks: Number of ranks.
      reads: Returns the entry with the batches and the update of the strategy.
      allreduce: Name of the all-reduce of sums.
    """

    strategy: str
    own: Own | Callable[[Entry], Own]
    fabric: str
    ranks: int
    reads: Callable[[Entry], Entry]
    allreduce: str

    def case(self, entry: Entry, updates: int) -> Case:
        """Return the training of a problem with a number of updates."""
        own = self.own(entry) if callable(self.own) else self.own
        return Case(
            self.reads(entry),
            self.strategy,
            {**self.offered(entry), **own, **entry.own.get(self.strategy, {})},
            ranks=self.ranks,
            steps=EPOCHS if self.reads in (by_examples, by_blocks) else updates,
        )

    def offered(self, entry: Entry) -> Own:
        """Return the values of those parameters that the strategy has."""
        allreduce = extend.find(self.allreduce, ALLREDUCE, extend.ALLREDUCES)
        offered = {
            "reducer": lambda: exact(allreduce),
            "allreduce": lambda: allreduce,
            "batch": lambda: entry.batch,
            "axes": lambda: devices.mesh(data=0),
        }
        named = extend.accepted(load(self.strategy), offered)
        return {name: value() for name, value in named.items()}


def method(
    strategy: str,
    own: Own | Callable[[Entry], Own] = {},  # noqa: B006
    *,
    fabric: str = "",
    ranks: int = 0,
    reads: Callable[[Entry], Entry] | None = None,
    allreduce: str = "star",
) -> Method:
    """Return a Method whose other fields follow from the strategy's record."""
    record = entry_of(strategy)
    ranks = ranks or (1 if record.alone or record.devices else WORKERS)
    if not fabric:
        fabric = DEVICES if record.devices else RANKS if ranks > 1 else ONE_RANK
    reads = reads or (by_examples if record.epochs else identity)
    return Method(strategy, own, fabric, ranks, reads, allreduce)


def attacked(entry: Entry) -> Own:
    from dml.wire.reducers.robust.attacks import byzantine

    attack = byzantine("sign_flip:10", WORKERS)  # one worker of each group
    return CODED | {"byzantine": attack}


def served(name: str) -> Method:
    rule = consistency(name, Choice(staleness=1, softsync=2, backup=1), WORKERS)
    own = {"setup": Setup(Roles(WORKERS, (WORKERS,)), rule)}
    return method("server", own, ranks=WORKERS + 1, reads=on_servers)


def on_stages(pipeline: str, entry: Entry) -> Own:
    from dml.strategies.hybrid.parts import Pipeline

    axes = devices.mesh(data=1, stage=WORKERS, tensor=1)
    return {"axes": axes, "pipeline": Pipeline(pipeline, 4)}


def deferring(fill: Callable[..., np.ndarray], entry: Entry) -> Own:
    deferred = fill(len(entry.make().params), np.bool_)
    return {"deferred": deferred, "batch": 1, "threads": WORKERS}


def private(entry: Entry) -> Own:
    return {"hot": np.ones(len(entry.make().params), np.bool_), "period": 1}


CODED = {"code": "repetition:1", "workers": 3 * WORKERS}
DELAYED = {"distribution": delay_distribution("constant:3"), "seed": SEED}
OUTER: Mapping[str, Own] = {  # decentralised strategies with a centre
    "easgd": {},
    "diloco": {"outer_every": 2},
    "async_diloco": {"outer_every": 2},
}
ROWS = {
    "serial": method("serial", {"accumulate": WORKERS}),
    "synchronous star": method("synchronous"),
    "synchronous ring": method("synchronous", allreduce="ring"),
    "local": method("local", {"every": 2}),
    "poseidon": method("poseidon", {"scheme": "factors"}),
    "owned": method("owned"),
    "kfac": method("kfac"),
    "coded": method("coded", CODED),
    "coded under attack": method("coded", attacked),
    "zeno": method("zeno", lambda entry: {"rate": entry.rate, "seed": SEED}),
    "gradient_coding": method(  # six workers in three groups
        "gradient_coding", {"code": "repetition:1"}, ranks=2 * WORKERS + 1
    ),
    **{name: method(name) for name in DECENTRALISED if name not in OUTER},
    **{name: method(name, own) for name, own in OUTER.items()},
    "mesh": method("mesh"),
    "hybrid gpipe": method("hybrid", partial(on_stages, "gpipe")),
    "hybrid 1f1b": method("hybrid", partial(on_stages, "1f1b")),
    "sharded": method("sharded"),
    "offload": method("offload", {"device_mb": 1.0}),
    "scan": method("scan", reads=by_equal_minibatches),
    **{
        f"server {name}": served(name)
        for name in ("bsp", "async", "ssp", "essp", "softsync", "backup")
    },
    "hogwild on 1 worker": method("hogwild", ranks=1),
    "hogwild_private": method("hogwild_private", private, ranks=1),
    "delayed": method("delayed", DELAYED),
    "average": method("average", {"threads": WORKERS}, ranks=1, fabric=THREADS),
    "cyclades": method(
        "cyclades", partial(deferring, np.zeros), ranks=1, fabric=THREADS
    ),
    "minibatch": method(
        "cyclades", partial(deferring, np.ones), ranks=1, fabric=THREADS
    ),
    "rotation on 1 rank": method("rotation", ranks=1, reads=by_blocks),
    "rotation": method("rotation", reads=by_blocks),
    "operation": method("operation", allreduce="ring"),
    "s_step": method("s_step", lambda entry: {"rate": entry.rate}, allreduce="ring"),
    "lbfgs": method("lbfgs", allreduce="ring"),
    "prox_cocoa": method("prox_cocoa", allreduce="ring"),
}
OWN_ROWS = {row.strategy for row in ROWS.values()}
METHODS = ROWS | {
    name: method(name)
    for name, entry in STRATEGIES.items()
    if name not in OWN_ROWS and "play" not in entry.needs
}


def find_method(name: str) -> Method:
    """Return the row of a name in METHODS, or a row for a function of a user.

    `synchronous NAME` sums gradients by any all-reduce; other names are strategies of a
    user, which receive those offered options that are their parameters.
    """
    if name in METHODS:
        return METHODS[name]
    strategy, _, allreduce = name.partition(" ")
    if strategy == "synchronous" and allreduce:
        extend.find(allreduce, ALLREDUCE, extend.ALLREDUCES)
        return method(strategy, allreduce=allreduce)
    extend.find(name, {}, extend.STRATEGIES)
    return method(name, allreduce="ring")
