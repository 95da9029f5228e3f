"""The partition of ranks that bounds an all-reduce most, found by maximum flows.

    part 1 │ part 2 │ … │ part k      C: bytes per second into the parts, summed

If no router adds, an all-reduce of n bytes takes at least 2(k-1)n/C seconds (see
`networks.cuts`). Ports of ranks are links from and to their routers. The minimum of
C/(2(k-1)) over all partitions is the strength of the graph (Cunningham 1985); where all
routers have a rank, and links have equal rates both ways, trees that reach it exist
(Tutte 1961, Nash-Williams 1961). A partition that is better than the one before is
found by one maximum flow for each rank, until there is none.
"""

from typing import NamedTuple

import numpy as np

from dml.sim.networks.fabric import Network

UNITS = 1 << 20  # of the largest capacity: maximum flows are of 32-bit whole numbers
UNLIMITED = 1 << 30
FASTEST = 1e-300  # seconds per byte


class Capacities(NamedTuple):
    """Links of a graph, with rates in whole units; ranks are the first nodes."""

    tail: np.ndarray
    head: np.ndarray
    units: np.ndarray  # capacity of each link
    nodes: int
    unit: float  # bytes per second


def capacities(network: Network, size: int, beta: float) -> Capacities:
    """Return the links of a network, and the ports of its first `size` ranks.

    beta: Seconds per byte of a port.
    """
    at = np.asarray(network.at(np.arange(size))) + size
    tail, head = np.asarray(network.ends()).T + size
    ports = np.full(size, 1 / max(beta, FASTEST))
    links = 1 / np.maximum(network.links().beta, FASTEST)
    rates = np.concatenate([links, ports, ports])
    unit = rates.max() / UNITS
    ranks = np.arange(size)
    tail, head = np.concatenate([tail, ranks, at]), np.concatenate([head, at, ranks])
    # rounded up, so that the bound remains one
    units = np.ceil(rates / unit).astype(np.int32)
    return Capacities(tail, head, units, int(max(tail.max(), head.max())) + 1, unit)


def byte_seconds(graph: Capacities, size: int) -> float:
    """Return the largest 2(k-1)/C of all partitions, in seconds per byte."""
    parts, bound, least = [[rank] for rank in range(size)], 0.0, 0.0
    while len(parts) > 1:  # one part of all ranks: no partition is better
        entering = sum(into(graph, part, size) for part in parts)
        least, bound = bound, 2 * (len(parts) - 1) / entering
        if bound <= least * (1 + 1e-9):
            break
        parts = cheapest(graph, size, 1 / bound)
    return bound / graph.unit


def cheapest(graph: Capacities, size: int, price: float) -> list[list[int]]:
    """Return the partition that minimizes C - 2(k-1)·price, which is at most 0.

    The greedy algorithm of the Dilworth truncation: each rank joins the parts with
    which its set is cheapest, or is a separate part.
    """
    values = np.zeros(size)
    parts: list[list[int]] = []
    for rank in range(size):
        cost, chosen = joined(graph, size, rank, values)
        values[rank] = cost - 2 * price
        merged = [part for part in parts if chosen & {*part}]
        parts = [part for part in parts if not chosen & {*part}]
        parts.append([rank, *(one for part in merged for one in part)])
    return parts


def joined(
    graph: Capacities, size: int, rank: int, values: np.ndarray
) -> tuple[float, set[int]]:
    """Return the least cost of a set with a rank and earlier ones, and the set.

    The cost is the units that enter the set, less the values of the earlier ranks.
    """
    earlier = np.arange(rank)
    gain, loss = np.maximum(values[:rank], 0), np.maximum(-values[:rank], 0)
    later = np.arange(rank + 1, size)
    # a node on the side of the sink is in the set
    cut, inside = minimum_cut(
        graph,
        from_source=(np.append(earlier, later), np.append(loss, later * 0 + UNLIMITED)),
        to_sink=(np.append(earlier, rank), np.append(gain, UNLIMITED)),
    )
    chosen = {one for one in earlier.tolist() if inside[one]}
    return cut - float(gain.sum()), chosen


def into(graph: Capacities, part: list[int], size: int) -> float:
    """Return the units that enter a part, with the best choice of its routers."""
    others = np.setdiff1d(np.arange(size), part)
    every = np.full(size, UNLIMITED)
    cut, _ = minimum_cut(
        graph,
        from_source=(others, every[: len(others)]),
        to_sink=(np.array(part), every[: len(part)]),
    )
    return cut


def minimum_cut(
    graph: Capacities,
    from_source: tuple[np.ndarray, np.ndarray],
    to_sink: tuple[np.ndarray, np.ndarray],
) -> tuple[float, np.ndarray]:
    """Return the value of a minimum cut, and which nodes are on the side of the sink.

    Args:
      graph: The links.
      from_source: Nodes with a link from the source, and the units of the links.
      to_sink: Nodes with a link to the sink, and the units of the links.
    """
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import breadth_first_order, maximum_flow

    source, sink = graph.nodes, graph.nodes + 1
    full = np.full_like
    tail = [graph.tail, full(from_source[0], source), to_sink[0]]
    head = [graph.head, from_source[0], full(to_sink[0], sink)]
    units = [graph.units, from_source[1].astype(np.int32), to_sink[1].astype(np.int32)]
    shape = graph.nodes + 2, graph.nodes + 2
    ends = np.concatenate(tail), np.concatenate(head)
    matrix = csr_array((np.concatenate(units), ends), shape=shape)
    found = maximum_flow(matrix, source, sink)
    left = matrix - found.flow
    left.data = np.maximum(left.data, 0)
    left.eliminate_zeros()
    reached = breadth_first_order(left, source, return_predecessors=False)
    inside = np.ones(graph.nodes + 2, bool)
    inside[reached] = False
    return float(found.flow_value), inside
