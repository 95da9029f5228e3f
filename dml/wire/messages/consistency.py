"""How far workers may drift apart, and when a server applies their gradients.

by clock     w0 ───g───┐     all gradients of a clock, summed in worker order
             w1 ─g─────┴ w   when the last one (but `spare`) is there
by arrival   w0 ───g w       each when it comes, or `gathers` of them together
             w1 ─g w
"""

import math
from collections.abc import Callable
from typing import NamedTuple

from dml.types import BadInput


class Consistency(NamedTuple):
    """One way of waiting and updating."""

    staleness: float = math.inf  # clocks that a worker may be ahead of the slowest
    gathers: int = 1  # gradients in an update, by arrival; 0: those of a clock
    spare: int = 0  # workers that a clock is not waited for
    averaged: bool = False  # an update is the mean of its gradients, not their sum
    damped: bool = False  # each gradient is divided by its staleness
    eager: bool = False  # servers send what has changed, unasked, after every clock
    fetches: float = 1  # clocks after which a row is read anew, if it need not before


class Choice(NamedTuple):
    """What the flags say."""

    staleness: int = 3  # of ssp, essp
    softsync: int = 1
    backup: int = 1
    damped: bool = False
    fetches: int = 0  # 0: as the consistency has it


def by_clock(choice: Choice, workers: int) -> Consistency:
    """BSP: a clock's gradients are one update, which all wait for: bits of one rank."""
    return Consistency(0, gathers=0)


def by_arrival(choice: Choice, workers: int) -> Consistency:
    """Downpour (Dean 2012): each gradient is an update when it comes; nobody waits."""
    return Consistency(damped=choice.damped)


def bounded(choice: Choice, workers: int) -> Consistency:
    """Clocks differ by at most s (Ho 2013); a row is read when its bound asks for it.

    With s = 0 nobody may see a gradient before its clock is complete.
    """
    s = choice.staleness
    if s < 0:
        raise BadInput(f"expected --staleness of 0 clocks or more, got {s}; correct it")
    return Consistency(
        s, gathers=min(s, 1), fetches=math.inf, damped=choice.damped and s > 0
    )


def eager(choice: Choice, workers: int) -> Consistency:
    """The same, but servers send what has changed after every clock (Dai 2015)."""
    return bounded(choice, workers)._replace(eager=True)


def softsync(choice: Choice, workers: int) -> Consistency:
    """Update with the mean of ⌊λ/n⌋ gradients, whoever they are from (Zhang 2015)."""
    n = choice.softsync
    if not 1 <= n <= workers:
        raise BadInput(
            f"expected --softsync of 1 to {workers}, the workers, got {n}; correct it"
        )
    return Consistency(gathers=workers // n, averaged=True, damped=choice.damped)


def backup(choice: Choice, workers: int) -> Consistency:
    """Close a clock without its last b workers, and drop what is late (Chen 2016)."""
    b = choice.backup
    if not 0 <= b < workers:
        raise BadInput(
            f"expected --backup of 0 to {workers - 1}, fewer than the workers, got "
            f"{b}; correct it"
        )
    return Consistency(0, gathers=0, spare=b, averaged=True)


CONSISTENCIES: dict[str, Callable[[Choice, int], Consistency]] = {
    "bsp": by_clock,
    "async": by_arrival,
    "ssp": bounded,
    "essp": eager,
    "softsync": softsync,
    "backup": backup,
}


def consistency(name: str, choice: Choice, workers: int) -> Consistency:
    """Return the consistency of that name for so many workers."""
    found = CONSISTENCIES[name](choice, workers)
    return found._replace(fetches=choice.fetches) if choice.fetches else found
