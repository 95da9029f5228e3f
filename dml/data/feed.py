"""Prefetch minibatches in a background thread.

A strategy then waits for input only if building a minibatch takes longer than using it.
"""

import atexit
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import Any, NamedTuple

import numpy as np

from dml.types import BadInput, identity


class Part(NamedTuple):
    """A part of a minibatch, and its number of examples."""

    examples: int
    batch: Any


# (examples of the minibatch, its parts); None for an empty part
Fed = tuple[int, list[Part | None]]


def feed(
    take: Callable[[np.ndarray], Any],
    batches: Iterable[np.ndarray],
    split: Callable[[np.ndarray], Sequence[np.ndarray]],
    put: Callable[[Any], Any] = identity,
    ahead: int = 2,
) -> Iterator[Fed]:
    """Yield the number of examples and the parts of each minibatch.

    Args:
      take: indices -> batch.
      batches: Indices of the examples of each minibatch.
      split: indices -> the indices of each part.
      put: batch -> the batch on the device that uses it; by default unchanged.
      ahead: Number of minibatches to prefetch. 0 builds them in the caller's thread,
        which virtual ranks require because they share a thread.
    """
    if ahead < 0:
        raise BadInput(f"expected {ahead=} of 0 or more; pass a number of minibatches")

    def part(index: np.ndarray) -> Part | None:
        return Part(len(index), put(take(index))) if len(index) else None

    minibatches = ((len(index), list(map(part, split(index)))) for index in batches)
    return _ahead(minibatches, ahead) if ahead else minibatches


def _ahead(minibatches: Iterator[Fed], ahead: int) -> Iterator[Fed]:
    """Run an iterator in a thread that ends with this generator."""
    slots, closed = Semaphore(ahead), Event()
    ready: SimpleQueue[tuple[Fed | None, BaseException | None]] = SimpleQueue()
    thread = Thread(
        target=_work, args=(minibatches, ready, slots, closed), name="feed", daemon=True
    )

    def close() -> None:
        closed.set()
        slots.release()
        thread.join()

    # A daemon thread does not keep a failed process alive; it must end before jax does.
    atexit.register(close)
    thread.start()
    try:
        while True:
            minibatch, error = ready.get()
            if error is not None:
                raise error
            if minibatch is None:
                return
            slots.release()
            yield minibatch
    finally:
        close()
        atexit.unregister(close)


def _work(
    minibatches: Iterator[Fed], ready: SimpleQueue, slots: Semaphore, closed: Event
) -> None:
    """Put items while slots are free, then None; on an error, put the error."""
    try:
        while slots.acquire() and not closed.is_set():
            ready.put((next(minibatches), None))
    except StopIteration:
        ready.put((None, None))
    except BaseException as error:  # re-raised in the consumer
        ready.put((None, error))
