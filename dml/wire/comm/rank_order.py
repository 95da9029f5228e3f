"""Calls on one rank first, while the others sleep without using a core."""

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np

from dml.types import Comm
from dml.wire.comm.tags import Tag

NAP = 0.002  # seconds
Result = TypeVar("Result")


def first_of_each_host(comm: Comm, call: Callable[[], Result]) -> Result:
    """Call on the lowest rank of every host, then on the others with warm caches."""
    hosts = comm.platform.hosts()
    host = hosts[comm.rank]
    here = (rank for rank, other in enumerate(hosts) if other == host)
    return _after(comm, hosts.index(host), here, call)


def first_of_all(comm: Comm, call: Callable[[], Result]) -> Result:
    """Call on rank 0, then on the others."""
    return _after(comm, 0, range(comm.size), call)


def _after(
    comm: Comm, leader: int, ranks: Iterable[int], call: Callable[[], Result]
) -> Result:
    """Call on the leader, then on the other ranks; `ranks` is used on the leader."""
    nothing = np.empty(0, np.uint8)
    if comm.rank != leader:
        # raw: the number of polls is no event of a run that is recorded
        request = comm.platform.raw.Irecv(nothing, leader, Tag.FIRST)
        while not comm.platform.virtual and not request.Test():
            time.sleep(NAP)
        request.Wait()
        return call()
    result = call()
    for rank in ranks:
        if rank != leader:
            comm.Send(nothing, rank, Tag.FIRST)
    return result
