"""One rank goes first, the others sleep: waiting must not take the core it needs."""

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from dml.types import Comm
from dml.wire.messages.tags import Tag

NAP = 0.002  # seconds
Result = TypeVar("Result")


def first_of_each_host(comm: Comm, call: Callable[[], Result]) -> Result:
    """Call on the lowest rank of every host, then on the others: for what is kept."""
    hosts = comm.platform.hosts()
    return _after(comm, hosts.index(hosts[comm.rank]), hosts, call)


def first_of_all(comm: Comm, call: Callable[[], Result]) -> Result:
    """Call on rank 0, then on the others."""
    return _after(comm, 0, [0] * comm.size, call)


def _after(
    comm: Comm, leader: int, groups: Sequence[int], call: Callable[[], Result]
) -> Result:
    nothing = np.empty(0, np.uint8)
    if comm.rank != leader:
        # raw: the number of polls is no event of a run that is recorded
        request = comm.platform.raw.Irecv(nothing, leader, Tag.FIRST)
        while not comm.platform.virtual and not request.Test():
            time.sleep(NAP)
        request.Wait()
        return call()
    result = call()
    for rank, group in enumerate(groups):
        if group == groups[leader] and rank != leader:
            comm.Send(nothing, rank, Tag.FIRST)
    return result
