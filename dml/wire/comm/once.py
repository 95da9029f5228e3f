"""Results that all virtual ranks of a communicator share: each is computed once."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from dml.types import Comm

Value = TypeVar("Value")


class Result(NamedTuple):
    """The last result of a name."""

    key: Any
    value: Any
    call: Callable[[], Any]  # keeps the objects alive whose ids are in the key


def once(comm: Comm, name: str, key: Any, call: Callable[[], Value]) -> Value:
    """Return call(), which virtual ranks that pass equal keys compute once.

    Args:
      comm: Communicator. A real rank always computes the result itself.
      name: Name of the result. Only its last key is kept.
      key: All that the result depends on, besides the group of `comm`. It may contain
        the ids of objects that `call` refers to.
      call: Computes the result, without communication. The result must not be changed.
    """
    if not comm.platform.virtual:
        return call()
    results = comm.platform.raw.shared.results
    result = results.get(name)
    if result is None or result.key != key:
        result = results[name] = Result(key, call(), call)
    return result.value


def once_per_call(comm: Comm, name: str, call: Callable[[], Value]) -> Value:
    """Return call(), which virtual ranks compute once for the n-th call of every rank.

    Collective: on a communicator all ranks call it equally often for a name, with calls
    that return equal values.
    """
    if not comm.platform.virtual:
        return call()
    calls = comm.platform.raw.cache.calls
    calls[name] = calls.get(name, 0) + 1
    return once(comm, name, calls[name], call)


def one_host(comm: Comm) -> bool:
    """Return whether all ranks are on one host."""
    return once(comm, "one host", None, lambda: not max(comm.platform.hosts()))
