"""The programs of server_bandwidth.py: a clock of servers, and plain messages."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from dml.runs.writers import Columns, scaled
from dml.strategies.server.roles import Roles
from dml.types import CountedComm
from dml.update.table import table
from dml.wire.plans.partition import partition
from dml.wire.reducers.rows import length
from dml.wire.server.client import Client
from dml.wire.server.consistency import Consistency
from dml.wire.server.server import Server

TAG = 99  # of plain messages
Call = Callable[[], Any]

COLUMNS: Columns = {
    "what": (14, "{what}"),
    "bytes": (9, "{bytes:,}"),
    "servers": (7, "{servers}"),
    "workers": (7, "{workers}"),
    "us": (9, scaled("seconds", 1e6, ".1f")),
    "pushes/s": (9, "{pushes_per_second:,.0f}"),
    "GB/s": (6, "{gigabytes_per_second:.2f}"),
    "of raw": (6, "{of_raw:.2f}"),
    "of both": (7, "{of_both:.2f}"),
    "formula": (9, scaled("predicted_seconds", 1e6, ".1f")),
}


class Load(NamedTuple):
    """The rows that every worker pushes and pulls in a clock."""

    what: str
    roles: Roles
    rows: int  # of the table
    width: int
    keys: np.ndarray | None  # None: the whole table

    @property
    def nbytes(self) -> int:
        rows = self.rows if self.keys is None else len(self.keys)
        return 4 * rows * self.width

    @property
    def pulls(self) -> bool:
        return self.what != "push"


def methods(comm: CountedComm, load: Load) -> list[Call]:
    """Return the methods on this rank: servers, Send and Recv, and Sendrecv.

    A call on a worker corresponds to one call on each server.
    """
    number = load.roles.server(comm.rank)
    servers_call = (
        serving(comm, load, number) if number is not None else working(comm, load)
    )
    return [servers_call, *bare(comm, load)]


def serving(comm: CountedComm, load: Load, number: int) -> Call:
    split = partition(load.rows, len(load.roles.servers))
    values = np.zeros((split.count(number), load.width), np.float32)
    shard = table("sgd", values, 0.1)
    server = Server(comm, shard, load.roles.workers, Consistency())
    messages = load.roles.workers * (2 if load.pulls else 1)

    def call() -> None:
        for _ in range(messages):
            server.handle_next()
        server.log.clear()

    return call


def working(comm: CountedComm, load: Load) -> Call:
    split = partition(load.rows, len(load.roles.servers))
    client = Client(comm, split, load.width, load.roles.servers)
    keys = slice(0, load.rows) if load.keys is None else load.keys
    grads = np.full((length(keys), load.width), 1e-3, np.float32)
    out = np.empty_like(grads)

    def call() -> None:
        client.push(keys, grads)
        if load.pulls:
            client.pull(keys, out=out)

    return call


def bare(comm: CountedComm, load: Load) -> list[Call]:
    """Return programs that send the same bytes by Send and Recv, and by Sendrecv."""
    workers, servers = range(load.roles.workers), load.roles.servers
    works = comm.rank in workers
    peers = servers if works else workers
    nbytes = load.nbytes // len(servers)
    raw: Any = comm if comm.platform.virtual else comm.platform.raw
    out, back = np.ones(nbytes, np.uint8), np.empty(nbytes, np.uint8)

    def there_and_back() -> None:
        for peer in peers:
            one, other = (raw.Send, raw.Recv) if works else (raw.Recv, raw.Send)
            one(out if works else back, peer, TAG)
            if load.pulls:
                other(back if works else out, peer, TAG)

    def both() -> None:
        for peer in peers:
            raw.Sendrecv(out, peer, TAG, back, peer, TAG)

    return [there_and_back, both]
