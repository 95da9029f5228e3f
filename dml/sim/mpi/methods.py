"""Methods of communicators made of collective bodies: blocking, `I…` and `…_init`."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from dml.sim.mpi import background
from dml.sim.mpi.algorithms import COLLECTIVES
from dml.sim.mpi.channel import Call, Channel
from dml.sim.mpi.handles import NAMED
from dml.sim.mpi.requests import Pending, Prequest, Request


def add_methods(kind: type, functions: dict[str, Callable[..., Any]]) -> None:
    """Add the blocking, the non-blocking and the persistent form of each function."""
    for name, function in functions.items():
        first, second, third = forms(name, function)
        setattr(kind, name, named(first, name))
        setattr(kind, f"I{name.lower()}", named(second, f"I{name.lower()}"))
        setattr(kind, f"{name}_init", named(third, f"{name}_init"))


def named(method: Any, name: str) -> Any:
    method.__name__, method.__qualname__ = name, f"Comm.{name}"
    return method


def forms(name: str, function: Callable[..., Any]) -> tuple[Any, Any, Any]:
    tag = Call[name]

    @wraps(function)
    def blocking(self: Any, *arguments: Any, **options: Any) -> None:
        body = function(self, *arguments, **options)
        self.held.collective(tag, body)

    @wraps(function)
    def started(self: Any, *arguments: Any, **options: Any) -> Request:
        body = function(self, *arguments, **options)
        virtual = start(self.held, f"I{name.lower()}", tag, body)
        return Request.of(Pending(virtual, f"I{name.lower()}", receives=False))

    @wraps(function)
    def prepared(
        self: Any, *arguments: Any, info: Any = NAMED["INFO_NULL"], **options: Any
    ) -> Prequest:
        body = function(self, *arguments, **options)
        held, call = self.held, f"{name}_init"
        return Prequest.of(
            Pending(
                None,
                call,
                start=lambda: start(held, call, tag, body),
                receives=False,
            )
        )

    return blocking, started, prepared


def start(held: Any, what: str, tag: Call, body: Any) -> Any:
    """Start a collective call in the background; return its virtual request."""
    owner = held.owner
    table = COLLECTIVES[owner.options.collectives]
    number, held.started = held.started, held.started + 1

    def run(comm: Any) -> None:
        body(Channel(comm, tag, owner, table))

    return background.start(held.private(), what, number, run)
