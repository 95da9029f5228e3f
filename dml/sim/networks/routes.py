"""The ports and links that messages between all pairs of ranks occupy."""

from functools import lru_cache
from typing import Any

import numpy as np

from dml.sim.evaluate import evaluate
from dml.types import BadInput
from dml.wire.plans.broadcasts import Broadcast, broadcast_rounds, reduce_rounds
from dml.wire.plans.packing import Routes
from dml.wire.plans.slots import packed_broadcasts

MOST = 64  # ranks


def all_routes(network: Any, size: int) -> Routes:
    """Return the routes; link l has number l, then follow out ports and in ports."""
    if size > MOST:
        raise BadInput(
            f"expected at most {MOST} ranks for optimal, got {size}; pass fewer ranks "
            "or other algorithms"
        )
    source, dest = (ranks.reshape(-1) for ranks in np.indices((size, size)))
    paths = network.paths(source, dest)
    beta = np.asarray(network.links().beta)
    links, seconds = [], []
    for k in range(size * size):
        route = paths.links[paths.starts[k] : paths.starts[k + 1]]
        ports = np.array([source[k], size + dest[k]]) + len(beta)
        links.append(np.concatenate([route, ports]).astype(np.int64))
        slowest = max(paths.beta[k], *beta[route], 0.0)  # also of the in port
        seconds.append(np.append(beta[route], [paths.beta[k], slowest]))
    rows = [
        tuple(tuple(each[size * k : size * (k + 1)]) for k in range(size))
        for each in (links, seconds)
    ]
    return Routes(len(beta) + 2 * size, *rows)


def packed_for(
    network: Any, size: int, length: int, itemsize: int = 4, segment: int = 1 << 30
) -> Broadcast:
    """Return the broadcast by packed trees with the fastest all-reduce of a buffer.

    Arguments are those of `packed` in `wire.collectives.trees`.
    """

    def seconds(broadcast: Broadcast) -> float:
        job = broadcast, size, length, itemsize, segment
        rounds = [*reduce_rounds(*job), *broadcast_rounds(*job)]
        return float(evaluate(rounds, network, size).clocks.max())

    found = packed_for_network(network, size)
    return min(found, key=seconds) if len(found) > 1 else found[0]


@lru_cache(maxsize=16)
def packed_for_network(network: Any, size: int) -> list[Broadcast]:
    """Return the broadcasts by packed trees for a network."""
    return packed_broadcasts(all_routes(network, size))
