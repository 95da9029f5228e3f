"""Filters of Steps: a guard of transfers, numbers of a resumed run, the speed."""

import time
from collections.abc import Iterable, Iterator

import jax

from dml.types import Step


def guarded(steps: Iterator[Step], virtual: bool) -> Iterator[Step]:
    """Pass steps on; after the first, implicit transfers to or from a device raise.

    Virtual ranks share a thread, so they have no guard.
    """
    yield next(steps)
    guard = "allow" if virtual else "disallow"
    while True:
        with jax.transfer_guard(guard):
            step = next(steps, None)
        if step is None:
            return
        yield step


def renumbered(steps: Iterable[Step], done: int) -> Iterator[Step]:
    """Number the steps of a resumed run."""
    return (step._replace(number=step.number + done) for step in steps)


class Speed:
    """Units a second without the steps that compile, and the last step."""

    def __init__(self, units: int) -> None:
        self.units, self.examples, self.seconds = units, 0, 0.0
        self.first = 0.0

    def of(self, steps: Iterable[Step]) -> Iterator[Step]:
        for number, self.last in enumerate(steps):
            if not number:
                self.first, size = time.perf_counter(), self.last.examples
            if number < 2:  # alone, they are better than nothing
                self.examples, self.seconds = 0, 0.0
            if self.last.examples >= size:  # a smaller one is compiled anew
                self.examples += self.last.examples
                self.seconds += sum(self.last.seconds.values())
            yield self.last

    @property
    def rate(self) -> float:
        return self.units * self.examples / self.seconds if self.seconds else 0.0
