"""Servers with replicas: the worker's and the replica's end of a run.

workers ─► r0 ─► r1 ─► … (rows 0 …)     a chain of replicas for each server
        ─► r3 ─► r4 ─► … (rows n …)
"""

from collections.abc import Sequence

import numpy as np

from dml.strategies.server.roles import Roles
from dml.types import CountedComm, RankFailed
from dml.wire.plans.partition import Partition
from dml.wire.server.chain import Replica
from dml.wire.server.header import REPLY_INTS
from dml.wire.server.port import Port
from dml.wire.server.replicated import Replicated
from dml.wire.server.server import Server


def worker_end(
    comm: CountedComm, roles: Roles, split: Partition, width: int
) -> Replicated:
    """Return the communicator in which each chain is one server.

    Args:
      comm: Workers and replicas.
      roles: Which ranks are workers and which are replicas.
      split: Partition of the rows among servers.
      width: Number of columns of the table.
    """
    rows = max(split.count(server) for server in range(split.servers))
    nbytes = 8 * REPLY_INTS + 4 * rows * (1 + width)
    return Replicated(comm, roles.chains(), nbytes)


def serve_replica(comm: CountedComm, roles: Roles, server: Server, port: Port) -> bool:
    """Serve until all workers have left; return whether this rank has the rows."""
    index = roles.server(comm.rank)
    assert index is not None
    replica = Replica(comm, server, port, roles.chains()[index])
    replica.serve()
    return replica.ready


def first_with_rows(
    roles: Roles, ranks: Sequence[int], values: Sequence[np.ndarray]
) -> tuple[int, ...]:
    """Return, for each server, the first living rank that has its rows.

    Args:
      roles: Which ranks are workers and which are servers.
      ranks: Living ranks.
      values: Rows of each living rank; a spare without rows has none.
    """
    firsts = []
    for server, chain in enumerate(roles.chains()):
        places = [ranks.index(rank) for rank in chain.members if rank in ranks]
        if not places:
            raise RankFailed(f"all replicas of server {server} have died")
        firsts.append(max(places, key=lambda place: (len(values[place]), -place)))
    return tuple(firsts)
