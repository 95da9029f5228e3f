"""Failures in a virtual cluster: deaths, slow or cut connections, lost messages.

As text, separated by semicolons: "die:3@0.5", "die_host:1@0.5", "slow:0,1-2,3*10@0..1"
(messages between ranks 0, 1 and 2, 3 take 10 times as long), "cut:0-1@0.1..0.2",
"slow_link:7*10@0..1", "cut_link:7@0..1", "lose:0,1>2,3*0.1@0..1" (a tenth of the
messages from ranks 0, 1 to ranks 2, 3), "nat:4,5@0". Without a stop time a failure is
permanent.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from dml.types import BadInput

NEVER = float("inf")


class Death(NamedTuple):
    """A rank dies at `start`, in seconds of virtual time."""

    rank: int
    start: float
    stop: float = NEVER

    def is_valid(self) -> bool:
        return True

    def names(self) -> set[int]:
        return {self.rank}

    def target_count(self, network: Any, hosts: Sequence[int]) -> int:
        return len(hosts)


class HostDeath(NamedTuple):
    """All ranks of a host die at `start`."""

    host: int
    start: float
    stop: float = NEVER

    def is_valid(self) -> bool:
        return True

    def names(self) -> set[int]:
        return {self.host}

    def target_count(self, network: Any, hosts: Sequence[int]) -> int:
        return max(hosts) + 1


class Slow(NamedTuple):
    """Messages between two sets of ranks take `factor` times as long.

    It applies to messages that depart from `start` to `stop`, in seconds. An infinite
    factor is a partition: messages wait until it ends, or are lost if it does not end.
    """

    ranks: frozenset[int]
    others: frozenset[int]
    factor: float = NEVER
    start: float = 0.0
    stop: float = NEVER

    def is_valid(self) -> bool:
        return self.factor > 0

    def affects(self, source: int, dest: int, links: Any) -> bool:
        return (source in self.ranks and dest in self.others) or (
            source in self.others and dest in self.ranks
        )

    def names(self) -> frozenset[int]:
        return self.ranks | self.others

    def target_count(self, network: Any, hosts: Sequence[int]) -> int:
        return len(hosts)


class SlowLink(NamedTuple):
    """A link takes `factor` times as long per byte; an infinite factor cuts it."""

    link: int
    factor: float = NEVER
    start: float = 0.0
    stop: float = NEVER

    def is_valid(self) -> bool:
        return self.factor > 0

    def affects(self, source: int, dest: int, links: Any) -> bool:
        return self.link in links

    def names(self) -> set[int]:
        return {self.link}

    def target_count(self, network: Any, hosts: Sequence[int]) -> int:
        return len(network.links().beta)


class Loss(NamedTuple):
    """Loss of messages from `ranks` to `others` with the probability `share`.

    Sends complete as without a loss. Messages of a rank to itself are never lost.
    """

    ranks: frozenset[int]
    others: frozenset[int]
    share: float = 1.0
    start: float = 0.0
    stop: float = NEVER
    seed: int = 0

    def is_valid(self) -> bool:
        return 0 < self.share <= 1

    def names(self) -> frozenset[int]:
        return self.ranks | self.others

    def target_count(self, network: Any, hosts: Sequence[int]) -> int:
        return len(hosts)


class Nat(NamedTuple):
    """Loss of the messages to `ranks`, except answers.

    A message is an answer if its receiver has sent a message to its sender before.
    """

    ranks: frozenset[int]
    start: float = 0.0
    stop: float = NEVER

    def is_valid(self) -> bool:
        return True

    def names(self) -> frozenset[int]:
        return self.ranks

    def target_count(self, network: Any, hosts: Sequence[int]) -> int:
        return len(hosts)


Event = Death | HostDeath | Slow | SlowLink | Loss | Nat


def check_events(events: Sequence[Event], network: Any, size: int) -> None:
    """Raise `BadInput` on unknown ranks, hosts or links, or bad times."""
    hosts = network.hosts(size)
    for event in events:
        if not (0 <= event.start < event.stop and event.is_valid()):
            raise BadInput(
                f"expected a start of at least 0, a later stop, a factor above 0 and a "
                f"share up to 1, got {event}; correct the event"
            )
        names, count = event.names(), event.target_count(network, hosts)
        if not count:
            raise BadInput(
                f"expected a network with links for {event}, got {network}; pass "
                "another network, or slow or cut ranks instead of links"
            )
        if not names or min(names) < 0 or max(names) >= count:
            raise BadInput(
                f"expected ranks, hosts or links from 0 to {count - 1}, got {event}; "
                "correct the event"
            )


def deaths(events: Sequence[Event], hosts: Sequence[int]) -> dict[int, float]:
    """Return the time of death of every rank that dies."""
    times: dict[int, float] = {}
    for event in events:
        dying = [event.rank] if isinstance(event, Death) else []
        if isinstance(event, HostDeath):
            dying = [rank for rank, host in enumerate(hosts) if host == event.host]
        for rank in dying:
            times[rank] = min(event.start, times.get(rank, NEVER))
    return times


NUMBER = r"[\d.e+-]+"
TIMES = rf"@(?P<start>{NUMBER}?)(?:\.\.(?P<stop>{NUMBER}))?"
SHARE = rf"(?:\*(?P<share>{NUMBER}))?"
PAIR = r"(?P<ranks>[\d,]+)-(?P<others>[\d,]+)"


def numbers(text: str) -> frozenset[int]:
    return frozenset(int(number) for number in text.split(","))


def times(match: re.Match) -> dict[str, float]:
    return {"start": float(match["start"]), "stop": float(match["stop"] or NEVER)}


def factor_and_times(match: re.Match) -> dict[str, float]:
    return {"factor": float(match.groupdict().get("factor") or NEVER)} | times(match)


def pair(match: re.Match) -> Slow:
    return Slow(
        numbers(match["ranks"]), numbers(match["others"]), **factor_and_times(match)
    )


def link(match: re.Match) -> SlowLink:
    return SlowLink(int(match["link"]), **factor_and_times(match))


def loss(match: re.Match) -> Loss:
    share = float(match["share"] or 1)
    start, stop = times(match).values()
    return Loss(numbers(match["ranks"]), numbers(match["others"]), share, start, stop)


def nat(match: re.Match) -> Nat:
    return Nat(numbers(match["ranks"]), **times(match))


FORMS: dict[str, Callable[[re.Match], Event]] = {
    rf"die:(\d+)@({NUMBER})": lambda m: Death(int(m[1]), float(m[2])),
    rf"die_host:(\d+)@({NUMBER})": lambda m: HostDeath(int(m[1]), float(m[2])),
    rf"slow:{PAIR}\*(?P<factor>{NUMBER}){TIMES}": pair,
    rf"cut:{PAIR}{TIMES}": pair,
    rf"slow_link:(?P<link>\d+)\*(?P<factor>{NUMBER}){TIMES}": link,
    rf"cut_link:(?P<link>\d+){TIMES}": link,
    rf"lose:(?P<ranks>[\d,]+)>(?P<others>[\d,]+){SHARE}{TIMES}": loss,
    rf"nat:(?P<ranks>[\d,]+){TIMES}": nat,
}


def events(text: str) -> list[Event]:
    """Parse events in the form that the docstring of this module shows."""
    parsed: list[Event] = []
    for part in filter(None, text.split(";")):
        try:
            form, match = next(
                (form, match)
                for form in FORMS
                if (match := re.fullmatch(form, part.strip()))
            )
            parsed.append(FORMS[form](match))
        except (StopIteration, ValueError) as error:
            raise BadInput(
                f"expected events such as die:3@0.5, die_host:1@0.5, slow:0-1*10@0..1, "
                f"cut:0,1-2,3@0.1..0.2, cut_link:7@0.5, lose:0>1*0.1@0 or nat:4@0, got "
                f"{part!r}; correct it"
            ) from error
    return parsed
