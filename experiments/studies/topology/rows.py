"""Rows of topology.py: times of all-reduces on virtual networks, by schedules."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dml import sim
from dml.runs.writers import Row
from dml.sim.networks.fabric import Prices
from dml.types import Round
from dml.wire.plans.schedules import SCHEDULES, words_sent
from dml.wire.plans.topology import SEGMENT, groups

ITEMSIZE = 4
PARTS = 2  # segments of a buffer: one is added while the next is received
MAX_MESSAGES = 300_000  # messages up to which all rounds are evaluated
PLAYED = 24  # evaluations of a repeated round in larger schedules


def schedule(
    name: str, net: Any, size: int, length: int, group: int
) -> Iterator[Round]:
    """Return the rounds of an all-reduce.

    Groups are hosts, or `group` neighbours where each rank has its own host. Networks
    with shared links use longer segments than real ranks: PARTS per buffer.
    """
    more: dict[str, Any] = {}
    if name == "hierarchical":
        hosts = tuple(net.hosts(size))
        alone = max(hosts) in (0, size - 1)
        more["members"] = groups(hosts, min(group, size) if alone else 0)
    segment = SEGMENT
    if not isinstance(net, sim.Uniform):
        segment = max(segment, length * ITEMSIZE // PARTS)
    return SCHEDULES[name](size, length, ITEMSIZE, segment, **more)


def seconds(rounds: Sequence[Round], net: Any, size: int) -> tuple[float, bool]:
    """Return the seconds of the slowest rank, and whether they are exact.

    With more than MAX_MESSAGES messages, repeated rounds are evaluated PLAYED times and
    2·PLAYED times; the rest is extrapolated linearly. The error at p = 1024 is 0.5 %.
    """
    repeats = max(one.times for one in rounds)
    uniform = isinstance(net, sim.Uniform)  # repeated rounds cost nothing there
    total = sum(len(one.source) * one.times for one in rounds)
    if uniform or total <= MAX_MESSAGES or repeats <= 2 * PLAYED:
        return float(sim.evaluate(rounds, net, size).clocks.max()), True
    short, long = (
        float(sim.evaluate(at_most(times, rounds), net, size).clocks.max())
        for times in (PLAYED, 2 * PLAYED)
    )
    return long + (repeats / PLAYED - 2) * (long - short), False


def at_most(times: int, rounds: Iterable[Round]) -> list[Round]:
    return [one._replace(times=min(one.times, times)) for one in rounds]


def described(text: str, net: Any, size: int) -> Row:
    """Return the parts and the cost of a network, in total and per rank."""
    report = net.report(Prices())
    capacity = net.capacity
    return {
        "network": text,
        "p": size,
        "ranks": capacity,
        **report._asdict(),
        "cables_a_rank": report.links / capacity,
        "bisection_a_rank": report.bisection / capacity,
        "cost_a_rank": report.cost / capacity,
    }


def evaluated(
    text: str, net: Any, size: int, nbytes: int, names: Sequence[str], group: int
) -> Row:
    """Return the seconds and words of every all-reduce, and the two fastest.

    Args:
        text: name of the network.
        net: the network.
        size: number of ranks.
        nbytes: bytes of the buffer.
        names: all-reduces.
        group: ranks of a group of the hierarchical all-reduce.
    """
    times, sent, exact = {}, {}, True
    for name in names:
        rounds = list(schedule(name, net, size, nbytes // ITEMSIZE, group))
        times[name], is_exact = seconds(rounds, net, size)
        exact &= is_exact
        sent[name] = words_sent(rounds, ITEMSIZE)
    first, second = (sorted(times, key=times.__getitem__) * 2)[:2]
    return {
        "network": text,
        "p": size,
        "bytes": nbytes,
        "best": first,
        "seconds": times[first],
        "next": second,
        "lead": times[second] / times[first],
        "exact": exact,
        **{f"{name}_seconds": value for name, value in times.items()},
        **{f"{name}_words": value for name, value in sent.items()},
    }
