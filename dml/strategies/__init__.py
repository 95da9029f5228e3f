"""Strategies: generators of Step that train any Problem.

Every strategy is called as `strategy(problem, batches, update, *, comm, timer, **own)`.
The table says which optional fields of a Problem it needs.
"""

from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from dml.types import BadInput, Problem


class Strategy(NamedTuple):
    """One strategy, imported when it is used.

    module: of dml.strategies; its function has the name of the module's last part.
    needs: fields of Problem that it reads beside params, examples and gradient.
    alone: whether it trains on one rank only.
    """

    module: str
    needs: tuple[str, ...] = ()
    alone: bool = False


STRATEGIES = {
    "serial": Strategy("serial", alone=True),
    "synchronous": Strategy("synchronous"),
    "local": Strategy("local"),
    "mesh": Strategy("mesh", ("model",)),
    "hybrid": Strategy("hybrid.hybrid", ("model",)),
    "server": Strategy("server.server"),
    "hogwild": Strategy("shared.hogwild", ("kernel",)),
    "average": Strategy("shared.average", ("kernel",)),
    "cyclades": Strategy("shared.cyclades", ("kernel",)),
    "delayed": Strategy("shared.delayed", ("kernel",)),
    "rotation": Strategy("rotation", ("kernel",)),
    "operation": Strategy("operation", ("products",)),
}


def strategy(name: str, problem: Problem, ranks: int = 1) -> Callable[..., Any]:
    """Return the strategy of that name.

    It raises BadInput where the strategy cannot train the problem, or not on so many
    ranks.
    """
    entry = STRATEGIES[name]
    if entry.alone and ranks > 1:
        raise BadInput(
            f"expected one rank with --strategy={name}, got {ranks}; pass "
            "--strategy=synchronous"
        )
    missing = [field for field in entry.needs if getattr(problem, field) is None]
    if missing:
        raise BadInput(
            f"expected a problem with {' and '.join(missing)} for --strategy={name}, "
            f"got one without; pass --strategy={' or '.join(fitting(problem))}"
        )
    module = import_module(f"dml.strategies.{entry.module}")
    return getattr(module, entry.module.rpartition(".")[2])


def fitting(problem: Problem) -> list[str]:
    """Return the names of the strategies that can train the problem."""
    return [
        name
        for name, entry in STRATEGIES.items()
        if all(getattr(problem, field) is not None for field in entry.needs)
    ]
