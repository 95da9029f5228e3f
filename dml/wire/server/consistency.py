"""How far workers may drift apart, and when a server applies their gradients.

by clock     w0 ───g───┐     An update U has all gradients g of a clock, summed in
             w1 ─g─────┴ U   worker order, except those of backup workers.
by arrival   w0 ───g U       An update has the next `aggregation_count` gradients
             w1 ─g U         to arrive from any workers w0, w1, …
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from dml.types import BadInput, ranges
from dml.types.ranges import Updates


class Consistency(NamedTuple):
    """When workers wait, and when a server updates.

    staleness: number of clocks that a worker may be ahead of the slowest worker.
    aggregation_count: number of gradients in an update by arrival; 0: by clock.
    backups: number of workers for which a clock does not wait.
    averaged: whether an update is the mean of its gradients, not their sum.
    staleness_scaled: whether each gradient is divided by its staleness.
    push_based: whether servers send changed rows after every clock, without a request.
    pull_period: number of clocks after which a row is read again; earlier if
        `staleness` requires it.
    """

    staleness: float = math.inf
    aggregation_count: int = 1
    backups: int = 0
    averaged: bool = False
    staleness_scaled: bool = False
    push_based: bool = False
    pull_period: float = 1

    def update_size(self, workers: int) -> int:
        """Return the number of gradients of an update, if every worker has one."""
        return self.aggregation_count or workers - self.backups


class Choice(NamedTuple):
    """The values of the flags of all consistencies."""

    staleness: Updates = 3  # in clocks, for ssp and essp
    softsync: Updates = 1  # n of n-softsync
    backup: Updates = 1  # number of backup workers
    staleness_scaled: bool = False  # for async, ssp, essp and softsync
    pull_period: Updates = 0  # 0: the default of the consistency


def by_clock(choice: Choice, workers: int) -> Consistency:
    """BSP: the gradients of a clock are one update, for which all workers wait.

    The result is bit-identical to training on one rank.
    """
    return Consistency(0, aggregation_count=0)


def by_arrival(choice: Choice, workers: int) -> Consistency:
    """Downpour (Dean 2012): each gradient is an update; no worker waits."""
    return Consistency(staleness_scaled=choice.staleness_scaled)


def bounded(choice: Choice, workers: int) -> Consistency:
    """SSP: clocks differ by at most s (Ho 2013); rows are read if s requires it.

    With s = 0 no gradient is applied before its clock is complete.
    """
    s = choice.staleness
    scaled = choice.staleness_scaled and s > 0
    return Consistency(
        s,
        aggregation_count=min(s, 1),
        pull_period=math.inf,
        staleness_scaled=scaled,
    )


def push_based(choice: Choice, workers: int) -> Consistency:
    """ESSP: as SSP, but servers send changed rows after every clock (Dai 2015)."""
    return bounded(choice, workers)._replace(push_based=True)


def softsync(choice: Choice, workers: int) -> Consistency:
    """Update with the mean of ⌊λ/n⌋ gradients of any of λ workers (Zhang 2015)."""
    n = choice.softsync
    if not 1 <= n <= workers:
        raise BadInput(
            f"expected --softsync of 1 to {workers}, the number of workers, got {n}; "
            "correct it"
        )
    scaled = choice.staleness_scaled
    return Consistency(
        aggregation_count=workers // n, averaged=True, staleness_scaled=scaled
    )


def backup(choice: Choice, workers: int) -> Consistency:
    """Close a clock without its b last workers; drop late gradients (Chen 2016)."""
    b = choice.backup
    if not 0 <= b < workers:
        raise BadInput(
            f"expected --backup of 0 to {workers - 1}, fewer than the {workers} "
            f"workers, got {b}; correct it"
        )
    return Consistency(0, aggregation_count=0, backups=b, averaged=True)


CONSISTENCIES: dict[str, Callable[[Choice, int], Consistency]] = {
    "bsp": by_clock,
    "async": by_arrival,
    "ssp": bounded,
    "essp": push_based,
    "softsync": softsync,
    "backup": backup,
}


def consistency(name: str, choice: Choice, workers: int) -> Consistency:
    """Return a consistency by name for a number of workers."""
    ranges.check(name, ranges.options(Choice), choice._asdict())
    rule = CONSISTENCIES[name](choice, workers)
    return rule._replace(pull_period=choice.pull_period or rule.pull_period)
