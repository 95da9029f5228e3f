"""Call a function on one rank first, while the other ranks sleep."""

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np

from dml.types import Comm
from dml.wire.comm.plain import as_comm
from dml.wire.comm.tags import Tag

POLL_SECONDS = 0.002  # time between two polls of a sleeping rank
Result = TypeVar("Result")


def first_of_each_host(comm: Comm, call: Callable[[], Result]) -> Result:
    """Call a function on the lowest rank of each host, then on the other ranks.

    The first call fills caches on disk for the others. Collective.
    """
    comm = as_comm(comm)
    hosts = comm.platform.hosts()
    host = hosts[comm.rank]
    host_ranks = (rank for rank, other in enumerate(hosts) if other == host)
    return _after(comm, hosts.index(host), host_ranks, call)


def first_of_all(comm: Comm, call: Callable[[], Result]) -> Result:
    """Call a function on rank 0, then on the other ranks; collective."""
    return _after(as_comm(comm), 0, range(comm.size), call)


def _after(
    comm: Comm, leader: int, ranks: Iterable[int], call: Callable[[], Result]
) -> Result:
    """Call on the leader, then on the other ranks; only the leader reads `ranks`."""
    empty = np.empty(0, np.uint8)
    if comm.rank != leader:
        # raw: these polls must not become events of a recorded run
        request = comm.platform.raw.Irecv(empty, leader, Tag.FIRST)
        while not comm.platform.virtual and not request.Test():
            time.sleep(POLL_SECONDS)
        request.Wait()
        return call()
    result = call()
    for rank in ranks:
        if rank != leader:
            comm.Send(empty, rank, Tag.FIRST)
    return result
