"""Results that the virtual ranks of a communicator share and compute once."""

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from dml.types import Comm

Value = TypeVar("Value")


class Result(NamedTuple):
    """The last result of a name.

    Attributes:
      key: Key of the call.
      value: Value that the call returned.
      call: The call; the reference keeps objects alive whose ids are in the key.
    """

    key: Any
    value: Any
    call: Callable[[], Any]


def once(comm: Comm, name: str, key: Any, call: Callable[[], Value]) -> Value:
    """Return call(), computed once by all virtual ranks that pass equal keys.

    Args:
      comm: Communicator. A real rank always computes the result itself.
      name: Name of the result. Only the result of the last key is kept.
      key: Everything that the result depends on, except the group of `comm`. It may
        contain the ids of objects that `call` refers to.
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
    """Return call(), computed once by all virtual ranks for their n-th call of a name.

    Collective: all ranks of a communicator make equally many calls for each name, and
    their n-th calls return equal values.
    """
    if not comm.platform.virtual:
        return call()
    calls = comm.platform.raw.cache.calls
    calls[name] = calls.get(name, 0) + 1
    return once(comm, name, calls[name], call)


def one_host(comm: Comm) -> bool:
    """Return whether all ranks are on one host."""
    return once(comm, "one host", None, lambda: not max(comm.platform.hosts()))
