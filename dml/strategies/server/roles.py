"""The roles of ranks: workers and servers.

separate    rank 0  1  2  3  4  5 │ 6  7        workers, then servers: 1 in 4 ranks
colocated   rank 0  1  2  3  4  5  6  7         every rank is a worker and a server
"""

from typing import NamedTuple

from dml.types import BadInput


class Roles(NamedTuple):
    """Which ranks are workers and which are servers.

    Attributes:
      workers: Number of workers, which are ranks 0 to workers - 1.
      servers: Ranks of the servers, which are consecutive.
    """

    workers: int
    servers: tuple[int, ...]

    def server(self, rank: int) -> int | None:
        """Return the index of the server on this rank; None: it has no server."""
        index = rank - self.servers[0]
        return index if 0 <= index < len(self.servers) else None


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
            f"expected 2 ranks or more, a worker and a server, got {size}; start it "
            "with mpirun -n <ranks>, or pass --simulate=<ranks> or --colocated"
        )
    servers = servers or max(1, size // 4)
    if servers >= size:
        raise BadInput(
            f"expected 1 to {size - 1} servers of {size} ranks, got {servers}, which "
            f"leaves no worker; pass --servers=<at most {size - 1}>"
        )
    return Roles(size - servers, tuple(range(size - servers, size)))
