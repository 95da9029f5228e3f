"""The programs of server_bandwidth.py: a clock of servers, and plain messages.

A clock is one push of every worker, followed by a pull unless the load is "push".
"""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.runs.results import Run
from dml.runs.writers import Columns, scaled_cell
from dml.strategies.server.roles import Roles
from dml.types import CountedComm
from dml.update.table import table
from dml.wire.plans.partition import partition
from dml.wire.reducers.rows import length
from dml.wire.server.client import Client
from dml.wire.server.consistency import Consistency
from dml.wire.server.server import Server
from dml.wire.server.slots import Channel, allocate

TAG = 99  # of plain messages
Call = Callable[[], Any]

COLUMNS: Columns = {
    "load": (14, "{load}"),
    "bytes": (9, "{bytes:,}"),
    "servers": (7, "{servers}"),
    "workers": (7, "{workers}"),
    "us": (9, scaled_cell("seconds", 1e6, ".1f")),
    "GB/s": (6, "{gigabytes_per_second:.2f}"),
    "of raw": (6, "{of_raw:.2f}"),
    "of both": (7, "{of_both:.2f}"),
    "pushes/s": (9, "{pushes_per_second:,.0f}"),
    "formula us": (10, scaled_cell("predicted_seconds", 1e6, ".1f")),
}


class Load(NamedTuple):
    """The rows that every worker pushes and pulls in a clock.

    Attributes:
      name: "push", "push and pull" or "rows".
      roles: Workers and servers.
      rows: Number of rows of the table.
      width: Elements of a row.
      keys: Rows that a worker pushes and pulls; None: all rows.
    """

    name: str
    roles: Roles
    rows: int
    width: int
    keys: np.ndarray | None

    @property
    def nbytes(self) -> int:
        """Bytes of a worker's push, float32."""
        rows = self.rows if self.keys is None else len(self.keys)
        return 4 * rows * self.width

    @property
    def pulls(self) -> bool:
        return self.name != "push"


def conclude(run: Run) -> str:
    """Return the range of the speeds relative to plain messages in one sentence."""
    summary = run.summary
    loads = {key: value for key, value in summary.items() if key.count("_") == 2}
    texts = {key: key.rsplit("_", 1)[0].replace("_", " of ") for key in loads}
    slowest, fastest = (
        min(loads, key=loads.__getitem__),
        max(loads, key=loads.__getitem__),
    )
    return (
        f"Servers reach {loads[slowest]:.2f} ({texts[slowest]} bytes) to "
        f"{loads[fastest]:.2f} ({texts[fastest]} bytes) of the speed of plain messages."
    )


def methods(comm: CountedComm, load: Load) -> list[Call]:
    """Return the methods on this rank: servers, Send and Recv, and Sendrecv.

    Each method is called once per clock, on all ranks.
    """
    server, workers = load.roles.server(comm.rank), load.roles.workers
    split = partition(load.rows, len(load.roles.servers))
    slots = allocate(comm, split, load.width)
    if server is None:
        channels = slots.of_worker(comm.rank) if slots else ()
        clock = worker_clock(comm, load, channels)
    else:
        channels = slots.of_server(server, workers) if slots else ()
        clock = server_clock(comm, load, server, channels)
    return [clock, *plain_messages(comm, load)]


def server_clock(
    comm: CountedComm, load: Load, server_index: int, channels: Sequence[Channel]
) -> Call:
    """Return a function that handles the messages of a clock."""
    split = partition(load.rows, len(load.roles.servers))
    values = np.zeros((split.count(server_index), load.width), np.float32)
    shard = table("sgd", values, 0.1)
    server = Server(comm, shard, load.roles.workers, Consistency(), channels=channels)
    ahead = [0]  # replies to pulls of the next clock
    workers = load.roles.workers

    def call() -> None:
        pulls = server.out.replies + (workers if load.pulls else 0) - ahead[0]
        while len(server.log) < workers or server.out.replies < pulls:
            server.handle_next()
        server.withdraw()  # the next server receives the next message
        # a message may complete the one before it, so that both are handled at once
        del server.log[:workers]
        ahead[0] = server.out.replies - pulls

    return call


def worker_clock(comm: CountedComm, load: Load, channels: Sequence[Channel]) -> Call:
    """Return a function that pushes, and pulls if the load has pulls."""
    split = partition(load.rows, len(load.roles.servers))
    client = Client(comm, split, load.width, load.roles.servers, channels=channels)
    keys = slice(0, load.rows) if load.keys is None else load.keys
    grads = np.full((length(keys), load.width), 1e-3, np.float32)
    out = np.empty_like(grads)

    def call() -> None:
        client.push(keys, grads)
        if load.pulls:
            client.pull(keys, out=out)

    return call


def plain_messages(comm: CountedComm, load: Load) -> list[Call]:
    """Return functions that send the same bytes by Send and Recv, and by Sendrecv."""
    workers, servers = range(load.roles.workers), load.roles.servers
    is_worker = comm.rank in workers
    peers = servers if is_worker else workers
    nbytes = load.nbytes // len(servers)
    raw: Any = comm if comm.platform.virtual else comm.platform.raw
    out, received = np.ones(nbytes, np.uint8), np.empty(nbytes, np.uint8)

    def send_and_recv() -> None:
        for peer in peers:
            if is_worker:
                raw.Send(out, peer, TAG)
                if load.pulls:
                    raw.Recv(received, peer, TAG)
            else:
                raw.Recv(received, peer, TAG)
                if load.pulls:
                    raw.Send(out, peer, TAG)

    def sendrecv() -> None:
        for peer in peers:
            raw.Sendrecv(out, peer, TAG, received, peer, TAG)

    return [send_and_recv, sendrecv]
