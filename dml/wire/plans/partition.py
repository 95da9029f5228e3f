"""Which server has which row of a table: pure arithmetic.

heat   9 1 7 2 5 1        Hot rows are dealt one by one, there and back, so that
server 0 1 1 0 0 1        bytes and heat are even; without heat servers have ranges.
place  0 0 1 1 2 2
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dml.types import BadInput
from dml.wire.plans.topology import chunks
from dml.wire.reducers.rows import Keys


class Partition(NamedTuple):
    """Servers have the positions edges[s] to edges[s + 1] of the rows in some order."""

    edges: np.ndarray
    rows: np.ndarray | None  # the row at each position; None: row r is at position r
    position: np.ndarray | None  # of each row

    @property
    def servers(self) -> int:
        return len(self.edges) - 1

    def held(self, server: int) -> Keys:
        """Return the rows of a server, in their order there."""
        here = slice(int(self.edges[server]), int(self.edges[server + 1]))
        return here if self.rows is None else self.rows[here]

    def count(self, server: int) -> int:
        """Return how many rows a server has."""
        return int(self.edges[server + 1] - self.edges[server])


class Part(NamedTuple):
    """What of some keys is on one server."""

    server: int
    which: Keys  # of the keys
    local: Keys  # rows of the server


def partition(rows: int, servers: int, heat: np.ndarray | None = None) -> Partition:
    """Deal rows to servers: by heat, or in ranges."""
    if not 1 <= servers <= rows:
        raise BadInput(
            f"expected 1 to {rows} servers for {rows} rows, got {servers}; pass "
            f"--servers=<at most {rows}>"
        )
    if heat is None or servers == 1:
        stops = [part.stop for part in chunks(rows, servers)]
        return Partition(np.array([0, *stops]), None, None)
    if heat.shape != (rows,):
        raise BadInput(f"expected the heat of {rows} rows, got {heat.shape}")
    turns = np.arange(rows) % (2 * servers)
    dealt = np.where(turns < servers, turns, 2 * servers - 1 - turns)  # there and back
    owner = np.empty(rows, np.int64)
    owner[np.argsort(-heat, kind="stable")] = dealt
    order = np.argsort(owner, kind="stable")
    position = np.empty(rows, np.int32)
    position[order] = np.arange(rows, dtype=np.int32)
    edges = np.searchsorted(owner[order], np.arange(servers + 1))
    return Partition(edges, order, position)


def parts(partition: Partition, keys: Keys) -> Iterator[Part]:
    """Yield what each server has of these keys; all servers, in their order."""
    if isinstance(keys, slice):
        yield from of_range(partition, keys)
        return
    where = keys if partition.position is None else partition.position[keys]
    if partition.servers == 1:
        yield Part(0, slice(0, len(keys)), where.astype(np.int32, copy=False))
        return
    owner = np.searchsorted(partition.edges[1:], where, "right")
    order = np.argsort(owner, kind="stable")
    stops = np.searchsorted(owner[order], np.arange(partition.servers + 1))
    for server in range(partition.servers):
        which = order[stops[server] : stops[server + 1]]
        local = (where[which] - partition.edges[server]).astype(np.int32)
        yield Part(server, which, local)


def of_range(partition: Partition, keys: slice) -> Iterator[Part]:
    """Yield what each server has of consecutive rows."""
    start, stop = keys.start, keys.stop
    if partition.rows is not None and (start, stop) != (0, len(partition.rows)):
        yield from parts(partition, np.arange(start, stop))
        return
    for server in range(partition.servers):
        first, last = partition.edges[server], partition.edges[server + 1]
        low, high = (int(np.clip(edge, first, last)) for edge in (start, stop))
        local = slice(low - int(first), high - int(first))
        if partition.rows is None:
            yield Part(server, slice(low - start, high - start), local)
        else:
            yield Part(server, partition.held(server), local)


def imbalance(partition: Partition, weight: np.ndarray | None = None) -> float:
    """Return the largest server's share of rows, or of their weights, over the mean."""
    load = np.diff(partition.edges)
    if weight is not None:
        held = (partition.held(server) for server in range(partition.servers))
        load = np.array([weight[rows].sum() for rows in held])
    return float(load.max() / (load.mean() or 1))
