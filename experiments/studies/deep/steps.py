"""Filters of Steps: transfer guard, numbers of a resumed run, and speed."""

import time
from collections.abc import Iterable, Iterator
from itertools import islice

import jax

from dml.types import Step


def guarded(steps: Iterator[Step], virtual: bool) -> Iterator[Step]:
    """Yield the steps; after the first, implicit transfers to or from a device raise.

    Virtual ranks share a thread and have no guard.
    """
    yield from islice(steps, 1)
    guard = "allow" if virtual else "disallow"
    while True:
        with jax.transfer_guard(guard):
            step = next(steps, None)
        if step is None:
            return
        yield step


def renumbered(steps: Iterable[Step], done: int) -> Iterator[Step]:
    """Yield the steps of a resumed run, numbered from the start of the first run."""
    return (step._replace(number=step.number + done) for step in steps)


class Speed:
    """Units per second, without the steps that compile, and the last step."""

    def __init__(self, units: int) -> None:
        self.units, self.examples, self.seconds = units, 0, 0.0
        self.first = time.perf_counter()

    def of(self, steps: Iterable[Step]) -> Iterator[Step]:
        for number, self.last in enumerate(steps):
            if not number:
                self.first, size = time.perf_counter(), self.last.examples
            if number < 2:  # steps that compile count only in runs without others
                self.examples, self.seconds = 0, 0.0
            if self.last.examples >= size:  # a smaller minibatch compiles again
                self.examples += self.last.examples
                self.seconds += sum(self.last.seconds.values())
            yield self.last

    @property
    def rate(self) -> float:
        return self.units * self.examples / self.seconds if self.seconds else 0.0
