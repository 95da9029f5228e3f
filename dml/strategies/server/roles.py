"""The roles of ranks: workers, servers, and the replicas of servers.

separate    rank 0  1  2  3  4  5 │ 6  7        workers, then servers: 1 in 4 ranks
colocated   rank 0  1  2  3  4  5  6  7         every rank is a worker and a server
replicated  rank 0  1  2  3 │ 4  5 │ 6  7       2 servers, each a chain of 2 replicas
"""

from typing import NamedTuple

from dml.types import BadInput
from dml.wire.plans.chain import Chain, chains


class Roles(NamedTuple):
    """Which ranks are workers and which are servers.

    Attributes:
      workers: Number of workers, which are ranks 0 to workers - 1.
      servers: Ranks of the servers, which are consecutive; with replicas the first
        rank of each.
      replicas: Number of replicas of each server, on consecutive ranks.
      spares: Number of spares of each server, after its replicas.
    """

    workers: int
    servers: tuple[int, ...]
    replicas: int = 1
    spares: int = 0

    @property
    def are_replicated(self) -> bool:
        """Whether servers are chains of replicas."""
        return self.replicas > 1

    def server(self, rank: int) -> int | None:
        """Return the index of the server on this rank; None: it has no server."""
        index = (rank - self.servers[0]) // (self.replicas + self.spares)
        return index if 0 <= index < len(self.servers) else None

    def chains(self) -> list[Chain]:
        """Return the chain of each server."""
        first, servers = self.servers[0], len(self.servers)
        return chains(first, servers, self.replicas, self.spares)


def replicated_roles(
    size: int, servers: int = 0, replicas: int = 1, spares: int = 0
) -> Roles:
    """Return the roles of ranks with replicas of servers.

    Args:
      size: Number of ranks.
      servers: Number of servers; 0: 1.
      replicas: Number of replicas of each server.
      spares: Number of spares of each server.
    """
    servers = servers or 1
    workers = size - servers * (replicas + spares)
    if replicas < 2 or spares < 0 or workers < 1:
        raise BadInput(
            f"expected 2 replicas or more and a worker on {size} ranks, got {servers} "
            f"servers of {replicas} replicas and {spares} spares; pass --replicas=2 "
            f"--spares=0 and more ranks"
        )
    firsts = [c.members[0] for c in chains(workers, servers, replicas, spares)]
    return Roles(workers, tuple(firsts), replicas, spares)


def roles(size: int, servers: int = 0, colocated: bool = False) -> Roles:
    """Return the roles of ranks.

    Args:
      size: Number of ranks.
      servers: Number of servers; 0: 1 in 4 ranks and at least 1, or all if colocated.
      colocated: Whether servers are also workers.
    """
    if servers < 0:
        raise BadInput(
            f"expected 1 server or more, or 0 for 1 in 4 ranks, got {servers}; pass "
            "--servers=<how many>"
        )
    if colocated:
        servers = servers or size
        if servers > size:
            raise BadInput(
                f"expected at most {size} servers on {size} colocated ranks, got "
                f"{servers}; pass --servers=<at most {size}>"
            )
        return Roles(size, tuple(range(servers)))
    if size < 2:
        raise BadInput(
            f"expected 2 ranks or more, a worker and a server, got {size}; start "
            "them with mpirun -n <ranks>, or pass --simulate=<ranks>"
        )
    servers = servers or max(1, size // 4)
    if servers >= size:
        raise BadInput(
            f"expected 1 to {size - 1} servers of {size} ranks, got {servers}, which "
            f"leaves no worker; pass --servers=<at most {size - 1}>"
        )
    return Roles(size - servers, tuple(range(size - servers, size)))
