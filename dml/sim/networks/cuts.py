"""Lower bounds of the seconds of an all-reduce on a network.

    part 1 │ part 2 │ part 3        k parts of the ranks, and the links into each part

If no router adds, the links into the parts carry at least 2(k-1) buffers in total: k-1
to be added, and k-1 with the sum. So an all-reduce of n bytes takes at least 2(k-1)n/C
seconds, where C is the sum over all parts of the bytes per second that enter. With
single ranks as parts the ports give 2(p-1)/p·nβ (Patarasuk and Yuan 2009). Of up to
MOST ranks all partitions are compared (`networks.partitions`); of more ranks those of
adjacent routers. For up to `loads.MOST` ranks, a linear program also bounds the time
for which slow and fast links share a port. And an all-reduce takes at least ⌈lg p⌉
messages after each other, of α seconds.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dml.sim.networks import loads, partitions
from dml.sim.networks.fabric import Network
from dml.sim.networks.routes import all_routes
from dml.sim.networks.uniform import Uniform

MOST = 64  # ranks of which all partitions are compared


class Bound(NamedTuple):
    """Lower bounds of an all-reduce."""

    latency: float  # seconds
    byte: float  # seconds per byte of the buffer

    def seconds(self, nbytes: int) -> float:
        """Return the least seconds of an all-reduce of `nbytes` bytes."""
        return max(self.latency, self.byte * nbytes)


def allreduce_bound(network: Network | Uniform, size: int) -> Bound:
    """Return the largest of the lower bounds by ports, routers, cuts and loads.

    Args:
      network: Network.
      size: Number of ranks.
    """
    if size == 1:
        return Bound(0.0, 0.0)
    alpha, beta = fastest_port(network, size)
    ports = 2 * (size - 1) / size * beta
    latency = (size - 1).bit_length() * alpha
    if isinstance(network, Uniform):
        return Bound(latency, ports)
    bounds = [ports, *cut_bounds(network, size)]
    if size <= MOST:
        graph = partitions.capacities(network, size, beta)
        bounds.append(partitions.byte_seconds(graph, size))
    if size <= loads.MOST:
        bounds.append(loads.byte_seconds(all_routes(network, size)))
    return Bound(latency, max(bounds))


def fastest_port(network: Network | Uniform, size: int) -> tuple[float, float]:
    """Return the least α and the least β of a port, over the ranks next to rank 0."""
    dest = np.unique(np.array([1, size - 1]))
    paths = network.paths(np.zeros_like(dest), dest)
    return float(paths.alpha.min()), float(paths.beta.min())


def cut_bounds(network: Network, size: int) -> Iterator[float]:
    """Yield the seconds per byte of divisions of the routers into 2, 4, 8, … parts.

    Parts are adjacent routers in the order of their ranks; the finest division has one
    router in each part. Routers without ranks are in no part.
    """
    at = network.at(np.arange(size))
    routers, first = np.unique(at, return_index=True)
    routers = routers[np.argsort(first)]
    number = len(routers)
    tail, head = network.ends().T
    rate = 1 / np.maximum(network.links().beta, 1e-300)
    counts = [2**k for k in range(1, (number - 1).bit_length())]
    for parts in [*counts, number] if number > 1 else []:
        part = np.full(max(tail.max(), head.max(), at.max()) + 1, -1)
        part[routers] = np.arange(number) * parts // number
        enters = (part[head] >= 0) & (part[tail] != part[head])
        entering = rate[enters].sum()
        if entering:
            yield 2 * (parts - 1) / float(entering)
