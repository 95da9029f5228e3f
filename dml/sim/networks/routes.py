"""The ports and links that messages between all pairs of ranks occupy."""

from typing import Any

import numpy as np

from dml.types import BadInput
from dml.wire.plans.packing import Routes

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
