"""Strategies: generators of Step that train any Problem.

Every strategy is called as `strategy(problem, batches, update, *, comm, timer, **own)`.
The ranges of its options stand in its signature, and are checked by the call.
STRATEGIES lists the optional fields of a Problem that each strategy needs.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

from dml import extend, extras
from dml.types import BadInput, Problem, ranges
from dml.wire.comm.metered import counted
from dml.wire.comm.plain import as_comm


class Strategy(NamedTuple):
    """An entry of STRATEGIES; its module is imported at the first use.

    Attributes:
      module: Module below dml.strategies. The name of the strategy's function is the
        last part of the module's name.
      needs: Fields of Problem that the strategy reads, in addition to params and
        examples.
      alone: Whether the strategy runs on one rank only.
      devices: Whether the strategy runs on the devices of JAX instead of ranks.
      epochs: Whether the strategy reads orders of examples, and a Step is an epoch.
      terms: Whether gradients of workers are separate terms, which attacks change and
        robust means read.
    """

    module: str
    needs: tuple[str, ...] = ()
    alone: bool = False
    devices: bool = False
    epochs: bool = False
    terms: bool = False


STRATEGIES = {
    "serial": Strategy("serial", ("gradient",), alone=True),
    "synchronous": Strategy("synchronous", ("gradient",), terms=True),
    "owned": Strategy("owned", ("model",)),
    "local": Strategy("local", ("gradient",), terms=True),
    "kfac": Strategy("kfac.kfac", ("model",)),
    "poseidon": Strategy("poseidon", ("model",)),
    "coded": Strategy("coded", ("gradient",), terms=True),
    "zeno": Strategy("zeno", ("gradient",), terms=True),
    "gradient_coding": Strategy("gradient_coding", ("gradient",)),
    "gossip": Strategy("decentral.gossip", ("gradient",)),
    "push_sum": Strategy("decentral.push_sum", ("gradient",)),
    "relay": Strategy("decentral.relay", ("gradient",)),
    "d2": Strategy("decentral.d2", ("gradient",)),
    "gradient_tracking": Strategy("decentral.gradient_tracking", ("gradient",)),
    "easgd": Strategy("decentral.easgd", ("gradient",)),
    "diloco": Strategy("decentral.diloco", ("gradient",), terms=True),
    "moshpit": Strategy("decentral.moshpit", ("gradient",)),
    "ad_psgd": Strategy("decentral.ad_psgd", ("gradient",)),
    "async_diloco": Strategy("decentral.async_diloco", ("gradient",)),
    "mesh": Strategy("mesh", ("model",), devices=True),
    "hybrid": Strategy("hybrid.hybrid", ("model",), devices=True),
    "sharded": Strategy("sharded", ("model",), devices=True),
    "scan": Strategy("scan", ("model",), alone=True),
    "offload": Strategy("offload.offload", ("model.layers",), terms=True),
    "server": Strategy("server.server", ("gradient",), terms=True),
    "impala": Strategy("actors.impala", ("gradient", "play")),
    "seed": Strategy("actors.seed", ("gradient", "play")),
    "hogwild": Strategy("shared.hogwild", ("kernel",), epochs=True),
    "hogwild_private": Strategy(
        "shared.hogwild_private", ("kernel.model",), epochs=True
    ),
    "average": Strategy("shared.average", ("kernel.model",), epochs=True),
    "cyclades": Strategy("shared.cyclades", ("kernel.model",), epochs=True),
    "delayed": Strategy("shared.delayed", ("kernel.model",), alone=True, epochs=True),
    "rotation": Strategy("rotation", ("kernel.blocks",), epochs=True),
    "operation": Strategy("operation", ("products",)),
    "s_step": Strategy("linear.s_step", ("products.block",)),
    "lbfgs": Strategy("linear.lbfgs", ("products.block",)),
    "prox_cocoa": Strategy("linear.prox_cocoa", ("products.block",)),
    "apex": Strategy("actors.apex.apex", ("gradient", "play", "play.errors")),
}

DECENTRALISED = [  # whose replicas differ between ranks
    name for name, entry in STRATEGIES.items() if entry.module.startswith("decentral.")
]


def strategy(name: str, problem: Problem, ranks: int = 1) -> Callable[..., Any]:
    """Return the strategy of that name, whose `comm` may be a communicator of mpi4py.

    Args:
      name: A key of STRATEGIES, an entry point, or FILE.py:NAME.
      problem: The problem to be trained.
      ranks: Number of ranks.

    Raises:
      BadInput: The problem lacks a field that the strategy needs, or the strategy runs
        on one rank only and `ranks` is greater than 1.
    """
    if name not in STRATEGIES:
        return on_any_comm(load(name))
    entry = STRATEGIES[name]
    if entry.alone and ranks > 1:
        raise BadInput(
            f"expected one rank with --strategy={name}, got {ranks}; pass "
            "--strategy=synchronous"
        )
    missing = [field for field in entry.needs if not has(problem, field)]
    if missing:
        raise BadInput(
            f"expected a problem with {' and '.join(missing)} for --strategy={name}, "
            f"got one without; pass --strategy={' or '.join(fitting(problem))}"
        )
    return on_any_comm(load(name))


def entry_of(name: str) -> Strategy:
    """Return the entry of a strategy; that of a user has the default values."""
    return STRATEGIES.get(name, Strategy(""))


def load(name: str) -> Callable[..., Any]:
    """Return the function of a key of STRATEGIES, an entry point, or FILE.py:NAME."""
    if name not in STRATEGIES:
        return ranges.checked(extend.find(name, {}, extend.STRATEGIES))
    path = STRATEGIES[name].module
    module = extras.load(f"dml.strategies.{path}")
    function: Callable[..., Any] = getattr(module, path.rpartition(".")[2])
    return function


def on_any_comm(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a strategy to which `comm` is passed as a Comm that counts bytes."""

    @wraps(function)
    def train(*arguments: Any, comm: Any, **options: Any) -> Any:
        return function(*arguments, comm=counted(as_comm(comm)), **options)

    return train


def fitting(problem: Problem) -> list[str]:
    """Return the names of the strategies that can train the problem."""
    return [
        name
        for name, entry in STRATEGIES.items()
        if all(has(problem, field) for field in entry.needs)
    ]


def has(problem: Problem, field: str) -> bool:
    """Return whether a problem has a field, such as "kernel" or "kernel.model".

    An empty tuple, such as the layers of a model that has none, is not a field.
    """
    value: Any = problem
    for name in field.split("."):
        value = getattr(value, name, None)
    return value is not None and not (isinstance(value, tuple) and not value)
