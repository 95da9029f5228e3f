"""Times of all-reduces on virtual networks by their schedules: rows of the tables."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from dml import sim
from dml.runs.writers import Row
from dml.sim.networks.fabric import Prices
from dml.types import Round
from dml.wire.plans.schedules import SCHEDULES, words
from dml.wire.plans.topology import SEGMENT, groups

ITEMSIZE = 4
PARTS = 2  # segments: one is added while the next one comes
MOST = 300_000  # messages that are all played
PLAYED = 24  # times that a round is, of those that are repeated more often


def schedule(
    name: str, net: Any, size: int, length: int, group: int
) -> Iterator[Round]:
    """Return the rounds; groups are hosts, or neighbours where each is its own host.

    Where links are shared, segments are longer than they really are: PARTS a buffer.
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

    With more than MOST messages, repeated rounds are evaluated PLAYED times and
    2·PLAYED times; the rest is extrapolated linearly. The error at p = 1024 is 0.5 %.
    """
    often = max(one.times for one in rounds)
    uniform = isinstance(net, sim.Uniform)  # repeated rounds cost nothing there
    total = sum(len(one.source) * one.times for one in rounds)
    if uniform or total <= MOST or often <= 2 * PLAYED:
        return float(sim.evaluate(rounds, net, size).clocks.max()), True
    once, twice = (
        float(sim.evaluate(at_most(times, rounds), net, size).clocks.max())
        for times in (PLAYED, 2 * PLAYED)
    )
    return twice + (often / PLAYED - 2) * (twice - once), False


def at_most(times: int, rounds: Iterable[Round]) -> list[Round]:
    return [one._replace(times=min(one.times, times)) for one in rounds]


def described(text: str, net: Any, size: int) -> Row:
    """Say what a network is made of, in all and for each rank that it holds."""
    found = net.report(Prices())
    held = net.capacity
    return {
        "network": text,
        "p": size,
        "ranks": held,
        **found._asdict(),
        "cables_a_rank": found.links / held,
        "bisection_a_rank": found.bisection / held,
        "cost_a_rank": found.cost / held,
    }


def raced(
    text: str, net: Any, size: int, nbytes: int, names: Sequence[str], group: int
) -> Row:
    """Time every all-reduce and count its words; name the fastest and the next."""
    took, sent, exact = {}, {}, True
    for name in names:
        rounds = list(schedule(name, net, size, nbytes // ITEMSIZE, group))
        took[name], sure = seconds(rounds, net, size)
        exact &= sure
        sent[name] = words(rounds, ITEMSIZE)
    first, second = (sorted(took, key=took.__getitem__) * 2)[:2]
    return {
        "network": text,
        "p": size,
        "bytes": nbytes,
        "best": first,
        "seconds": took[first],
        "next": second,
        "lead": took[second] / took[first],
        "exact": exact,
        **{f"{name}_seconds": value for name, value in took.items()},
        **{f"{name}_words": value for name, value in sent.items()},
    }
