"""Rows of topology.py: times of all-reduces on virtual networks, by schedules."""

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np

from dml import extend, sim
from dml.runs.writers import Row
from dml.sim.networks.adding import adding
from dml.sim.networks.cuts import Bound, allreduce_bound
from dml.sim.networks.fabric import Prices
from dml.sim.networks.routes import packed_for
from dml.sim.networks.torus import Torus
from dml.types import Comm, Round
from dml.wire.collectives import COLLECTIVES
from dml.wire.collectives.trees.double_tree import PIECE
from dml.wire.collectives.trees.in_network import in_network
from dml.wire.collectives.trees.packed import packed
from dml.wire.comm import Metered
from dml.wire.plans.schedules import nested, words_sent
from dml.wire.plans.topology import SEGMENT, levels

ITEMSIZE = 4
SEGMENTS = 2  # segments of a buffer: one is added while the next is received
PIECES = 32  # pieces of a buffer in double trees and in_network
LEAST = 4096  # bytes of a piece in in_network, at least
DIRECT = ("one_shot", "two_shot")  # all-reduces of p(p-1) messages
RINGS = ("segmented_ring",)  # rings in sequence: one ring for a buffer of two segments
SCHEDULES = {
    name: algorithm.schedule
    for name, algorithm in COLLECTIVES["allreduce"].items()
    if algorithm.schedule
}
COMPARED = [name for name in SCHEDULES if name not in DIRECT + RINGS]  # by default
OPTIMAL = "optimal"  # trees that are packed for the network
IN_NETWORK = "in_network"  # routers add
KNOWN = (*SCHEDULES, OPTIMAL, IN_NETWORK)
MAX_MESSAGES = 3_000_000  # messages up to which all rounds are evaluated
SIMULATED_REPEATS = 24  # evaluations of a repeated round in larger schedules


def schedule(
    name: str, net: Any, size: int, length: int, group: Sequence[int]
) -> Iterator[Round]:
    """Return the rounds of an all-reduce.

    Networks with shared links use longer segments than real ranks: SEGMENTS per buffer.

    name: name of the all-reduce.
    net: network.
    size: number of ranks.
    length: elements of the buffer.
    group: neighbours in a group of the hierarchical all-reduce, for each level, if all
      ranks share one host or each rank has its own host; otherwise the groups of the
      first level are hosts.
    """
    options: dict[str, Any] = {}
    segment = SEGMENT
    if not isinstance(net, sim.Uniform):
        segment = max(segment, length * ITEMSIZE // SEGMENTS)
    if name == "double_tree":
        segment = max(PIECE, length * ITEMSIZE // PIECES)
    if isinstance(net, Torus) and net.capacity == size:
        powers = all(n & (n - 1) == 0 for n in net.dims)
        if name in ("torus", "trivance") or (name == "swing" and powers):
            options["sides"] = net.dims
    if name == OPTIMAL:
        trees = packed_for(net, size, length, ITEMSIZE, segment)
        return packed(trees, size, length, ITEMSIZE, segment)
    if name == "hierarchical":
        hosts = tuple(net.hosts(size))
        if max(hosts) not in (0, size - 1):  # neither one host, nor one per rank
            group = 0, *group[1:]
        members = [level.members for level in levels(hosts, group)]
        return nested(members)(size, length, ITEMSIZE, segment)
    return SCHEDULES[name](size, length, ITEMSIZE, segment, **options)


def seconds(rounds: Sequence[Round], net: Any, size: int) -> tuple[float, bool]:
    """Return the seconds of the slowest rank, and whether they are exact.

    With more than MAX_MESSAGES messages, the rounds with the most repeats are evaluated
    SIMULATED_REPEATS times and twice as often; the time of all repeats is extrapolated
    linearly. The error of a ring at p = 1024 is 0.1 %; that of rounds which are not all
    equal was up to 9 % at p = 4096.
    """
    repeats = max(each_round.times for each_round in rounds)
    uniform = isinstance(net, sim.Uniform)  # repeated rounds are evaluated once there
    messages = sum(len(each_round.source) * each_round.times for each_round in rounds)
    if uniform or messages <= MAX_MESSAGES or repeats <= 4 * SIMULATED_REPEATS:
        return float(sim.evaluate(rounds, net, size).clocks.max()), True
    short, long = (
        float(sim.evaluate(limit_repeats(rounds, times), net, size).clocks.max())
        for times in (SIMULATED_REPEATS, 2 * SIMULATED_REPEATS)
    )
    return long + (repeats / SIMULATED_REPEATS - 2) * (long - short), False


def run(name: str, net: Any, size: int, nbytes: int) -> tuple[float, int]:
    """Run a user's all-reduce on virtual ranks.

    Return the seconds of the slowest rank, and the elements that all ranks send.
    """
    allreduce = extend.find(name, {}, extend.ALLREDUCES)

    def program(comm: Comm) -> tuple[float, int]:
        counted = Metered(comm)
        allreduce(counted, sim.Phantom(nbytes, np.float32), np.add)
        return comm.Wtime(), counted.bytes_sent

    ends, sent = zip(*sim.run(program, size, net), strict=True)
    return max(ends), sum(sent) // ITEMSIZE


@lru_cache(maxsize=16)
def bound(net: Any, size: int) -> Bound:
    """Return the lower bound of all-reduces on a network."""
    return allreduce_bound(net, size)


def limit_repeats(rounds: Sequence[Round], times: int) -> list[Round]:
    """Return the rounds; those with the most repeats have `times` repeats."""
    most = max(each_round.times for each_round in rounds)
    return [
        each_round._replace(times=times) if each_round.times == most else each_round
        for each_round in rounds
    ]


def network_row(text: str, net: Any, size: int) -> Row:
    """Return the parts and the cost of a network, in total and per rank.

    text: name or shape of the network.
    net: network.
    size: number of ranks that are used.
    """
    report = net.report(Prices())
    capacity = net.capacity
    return {
        "network": text,
        "p": size,
        "ranks": capacity,
        **report._asdict(),
        "cables_per_rank": report.links / capacity,
        "bisection_per_rank": report.bisection / capacity,
        "cost_per_rank": report.cost / capacity,
    }


def race_row(
    text: str,
    net: Any,
    size: int,
    nbytes: int,
    names: Sequence[str],
    group: Sequence[int],
) -> Row:
    """Return the seconds and buffer elements of every all-reduce, and the two fastest.

    Args:
        text: name or shape of the network.
        net: the network.
        size: number of ranks.
        nbytes: bytes of the buffer.
        names: of KNOWN, whose rounds are evaluated, or all-reduces of a user,
            which run on virtual ranks.
        group: members of a group of the hierarchical all-reduce, for each level.
    """
    times, sent, exact = {}, {}, True
    for name in names:
        if name not in KNOWN:
            times[name], sent[name] = run(name, net, size, nbytes)
            continue
        length, links, nodes = nbytes // ITEMSIZE, net, size
        if name == IN_NETWORK:
            links = adding(net, size)
            nodes, most = links.capacity, max(LEAST, nbytes // PIECES)
            rounds = list(in_network(links.tree, length, ITEMSIZE, min(PIECE, most)))
        else:
            rounds = list(schedule(name, net, size, length, group))
        times[name], is_exact = seconds(rounds, links, nodes)
        exact &= is_exact
        sent[name] = words_sent(rounds, ITEMSIZE)
    least = bound(net, size).seconds(nbytes)
    first, second = (sorted(times, key=times.__getitem__) * 2)[:2]
    adding_ranks = [times[name] for name in names if name != IN_NETWORK]
    return {
        "network": text,
        "p": size,
        "bytes": nbytes,
        "best": first,
        "seconds": times[first],
        "next": second,
        "lead": times[second] / times[first],
        "bound_seconds": least,
        "share": least / min(adding_ranks, default=times[first]),
        "exact": exact,
        **{f"{name}_seconds": value for name, value in times.items()},
        **{f"{name}_words": value for name, value in sent.items()},
    }
