"""Bounds of the staleness of workers, and when a server applies their gradients.

by clock     w0 ───g───┐     An update U has all gradients g of a clock, summed in
             w1 ─g─────┴ U   worker order, except those of backup workers.
by arrival   w0 ───g U       An update has the next `aggregation_count` gradients
             w1 ─g U         to arrive from any workers w0, w1, …

A consistency is a function (choice, number of workers) -> Consistency. That of a user,
--consistency=./mine.py:rule, combines the fields in another way.
"""

import math
from collections.abc import Callable
from typing import Annotated, NamedTuple

from dml import extend
from dml.types import BadInput, ranges
from dml.types.ranges import Count, Range, Size, Updates


class Consistency(NamedTuple):
    """When workers wait, and when a server updates.

    Attributes:
      staleness: Number of clocks that a worker may be ahead of the slowest worker.
      by_clock: Whether an update has the gradients of a clock, instead of the next ones
        to arrive.
      aggregation_count: Number of gradients in an update by arrival.
      backups: Number of workers for which a clock does not wait.
      averaged: Whether an update is the mean of its gradients, not their sum.
      staleness_scaled: Whether each gradient is divided by its staleness.
      push_based: Whether servers send changed rows after every clock, without a
        request.
      pull_period: Number of clocks after which a row is read again; earlier if
        `staleness` requires it.
    """

    staleness: Annotated[float, Range(0, math.inf)] = math.inf
    by_clock: bool = False
    aggregation_count: Count = 1
    backups: Size = 0
    averaged: bool = False
    staleness_scaled: bool = False
    push_based: bool = False
    pull_period: Annotated[float, Range(1, math.inf)] = 1

    def update_size(self, workers: int) -> int:
        """Return the number of gradients of an update, if every worker has one."""
        return workers - self.backups if self.by_clock else self.aggregation_count


class Choice(NamedTuple):
    """The values of the flags of all consistencies."""

    staleness: Updates = 3  # in clocks, for ssp and essp
    softsync: Updates = 1  # n of n-softsync
    backup: Updates = 1  # number of backup workers
    staleness_scaled: bool = False  # for async, ssp, essp and softsync
    pull_period: Updates = 0  # 0: the default of the consistency


def bsp(choice: Choice, workers: int) -> Consistency:
    """BSP: the gradients of a clock are one update, for which all workers wait.

    The result is bit-identical to training on one rank.
    """
    return Consistency(0, by_clock=True)


def asynchronous(choice: Choice, workers: int) -> Consistency:
    """Downpour (Dean 2012): each gradient is an update; no worker waits."""
    return Consistency(staleness_scaled=choice.staleness_scaled)


def ssp(choice: Choice, workers: int) -> Consistency:
    """SSP: clocks differ by at most s (Ho 2013); rows are read if s requires it.

    With s = 0 no gradient is applied before its clock is complete.
    """
    s = choice.staleness
    scaled = choice.staleness_scaled and s > 0
    return Consistency(
        s,
        by_clock=s == 0,
        pull_period=math.inf,
        staleness_scaled=scaled,
    )


def essp(choice: Choice, workers: int) -> Consistency:
    """ESSP: as SSP, but servers send changed rows after every clock (Dai 2015)."""
    return ssp(choice, workers)._replace(push_based=True)


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
    return Consistency(0, by_clock=True, backups=b, averaged=True)


CONSISTENCIES: dict[str, Callable[[Choice, int], Consistency]] = {
    "bsp": bsp,
    "async": asynchronous,
    "ssp": ssp,
    "essp": essp,
    "softsync": softsync,
    "backup": backup,
}


def consistency(name: str, choice: Choice, workers: int) -> Consistency:
    """Return a consistency for a number of workers.

    Args:
      name: Key of CONSISTENCIES, an entry point, or FILE.py:NAME.
      choice: Values of the flags.
      workers: Number of workers.
    """
    ranges.check(name, ranges.options(Choice), choice._asdict())
    find = extend.find(name, CONSISTENCIES, extend.CONSISTENCIES)
    rule: Consistency = extend.make(name, find, Consistency, choice, workers)
    ranges.check(name, ranges.options(Consistency), rule._asdict())
    if rule.backups >= workers:
        raise BadInput(
            f"expected fewer backups than the {workers} workers from {name}, got "
            f"{rule.backups}; return fewer"
        )
    return rule._replace(pull_period=choice.pull_period or rule.pull_period)
