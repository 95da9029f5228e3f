"""Partitions of the rows of a table over servers: pure arithmetic.

frequency  9 1 7 2 5 1      Rows are dealt by descending access frequency, in the order
server     0 1 1 0 0 1      0 1 1 0 0 1 …, so that servers have equal bytes and equal
position   0 0 1 1 2 2      load. Without frequencies each server has a range of rows.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dml.types import BadInput
from dml.wire.plans.topology import chunks
from dml.wire.reducers.rows import Keys


class Partition(NamedTuple):
    """An order of the rows in which each server has consecutive positions.

    Attributes:
      edges: Server s has the positions edges[s] … edges[s + 1] - 1.
      rows: Row at each position; None if row r is at position r for all rows.
      position: Position of each row; None if row r is at position r for all rows.
    """

    edges: np.ndarray
    rows: np.ndarray | None
    position: np.ndarray | None

    @property
    def servers(self) -> int:
        """Number of servers."""
        return len(self.edges) - 1

    def rows_of(self, server: int) -> Keys:
        """Return the rows of a server, in the order in which it stores them."""
        positions = slice(int(self.edges[server]), int(self.edges[server + 1]))
        return positions if self.rows is None else self.rows[positions]

    def count(self, server: int) -> int:
        """Return the number of rows of a server."""
        return int(self.edges[server + 1] - self.edges[server])


class KeyPart(NamedTuple):
    """The keys of a request that belong to one server."""

    server: int
    selection: Keys  # positions of the keys in the request
    local: Keys  # indices of the rows in the memory of the server


def partition(
    rows: int, servers: int, frequency: np.ndarray | None = None
) -> Partition:
    """Partition rows over servers.

    Args:
      rows: Number of rows.
      servers: Number of servers.
      frequency: Access frequency of each row; None gives each server a range of rows.
    """
    if not 1 <= servers <= rows:
        raise BadInput(
            f"expected 1 to {rows} servers for {rows} rows, got {servers}; pass "
            f"--servers=1 to {rows}"
        )
    if frequency is None or servers == 1:
        stops = [part.stop for part in chunks(rows, servers)]
        return Partition(np.array([0, *stops]), None, None)
    if frequency.shape != (rows,):
        raise BadInput(
            f"expected the access frequencies of {rows} rows, got an array of shape "
            f"{frequency.shape}; pass one frequency per row"
        )
    cycle = np.arange(rows) % (2 * servers)
    dealt = np.where(cycle < servers, cycle, 2 * servers - 1 - cycle)  # 0 1 … 1 0
    owner = np.empty(rows, np.int64)
    owner[np.argsort(-frequency, kind="stable")] = dealt
    order = np.argsort(owner, kind="stable")
    position = np.empty(rows, np.int32)
    position[order] = np.arange(rows, dtype=np.int32)
    edges = np.searchsorted(owner[order], np.arange(servers + 1))
    return Partition(edges, order, position)


def split_keys(partition: Partition, keys: Keys) -> Iterator[KeyPart]:
    """Yield the part of the keys on each server, for all servers in order."""
    if isinstance(keys, slice):
        yield from split_range(partition, keys)
        return
    positions = keys if partition.position is None else partition.position[keys]
    if partition.servers == 1:
        yield KeyPart(0, slice(0, len(keys)), positions.astype(np.int32, copy=False))
        return
    owner = np.searchsorted(partition.edges[1:], positions, "right")
    order = np.argsort(owner, kind="stable")
    stops = np.searchsorted(owner[order], np.arange(partition.servers + 1))
    for server in range(partition.servers):
        selection = order[stops[server] : stops[server + 1]]
        local = (positions[selection] - partition.edges[server]).astype(np.int32)
        yield KeyPart(server, selection, local)


def split_range(partition: Partition, keys: slice) -> Iterator[KeyPart]:
    """Yield the part of each server, for keys that are consecutive rows."""
    start, stop = keys.start, keys.stop
    if partition.rows is not None and (start, stop) != (0, len(partition.rows)):
        yield from split_keys(partition, np.arange(start, stop))
        return
    for server in range(partition.servers):
        first, last = partition.edges[server], partition.edges[server + 1]
        low, high = (int(np.clip(edge, first, last)) for edge in (start, stop))
        local = slice(low - int(first), high - int(first))
        if partition.rows is None:
            yield KeyPart(server, slice(low - start, high - start), local)
        else:
            yield KeyPart(server, partition.rows_of(server), local)


def imbalance(partition: Partition, weight: np.ndarray | None = None) -> float:
    """Return the largest load of a server divided by the mean load.

    The load is the number of rows of a server, or the sum of their weights.
    """
    load = np.diff(partition.edges)
    if weight is not None:
        shards = (partition.rows_of(server) for server in range(partition.servers))
        load = np.array([weight[rows].sum() for rows in shards])
    return float(load.max() / (load.mean() or 1))
