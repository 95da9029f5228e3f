"""Prefetch minibatches in a background thread.

A strategy waits for input only if building a minibatch takes longer than its update.
"""

import atexit
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import Any, NamedTuple

import numpy as np

from dml.types import BadInput, identity


class FeedPart(NamedTuple):
    """One part of a minibatch, such as a rank's shard, and its number of examples."""

    examples: int
    batch: Any


# (number of examples of a minibatch, its parts); an empty part is None
SplitMinibatch = tuple[int, list[FeedPart | None]]


def feed(
    take: Callable[[np.ndarray], Any],
    batches: Iterable[np.ndarray],
    split: Callable[[np.ndarray], Sequence[np.ndarray]],
    put: Callable[[Any], Any] = identity,
    prefetch: int = 2,
) -> Iterator[SplitMinibatch]:
    """Yield the number of examples and the parts of each minibatch.

    A part has a batch that is built and on its device.

    Args:
      take: indices -> batch.
      batches: Indices of the examples of each minibatch.
      split: indices -> the indices of each part.
      put: batch -> the batch on the device that uses it; by default unchanged.
      prefetch: Number of minibatches built in advance. 0 builds them in the caller's
        thread, which virtual ranks require because they share a thread.
    """
    if prefetch < 0:
        raise BadInput(
            f"expected 0 minibatches or more, got {prefetch=}; pass 0 or more"
        )

    def build(indices: np.ndarray) -> FeedPart | None:
        return FeedPart(len(indices), put(take(indices))) if len(indices) else None

    minibatches = (
        (len(indices), [build(part) for part in split(indices)]) for indices in batches
    )
    return _prefetched(minibatches, prefetch) if prefetch else minibatches


def _prefetched(
    minibatches: Iterator[SplitMinibatch], count: int
) -> Iterator[SplitMinibatch]:
    """Run an iterator in a thread, up to `count` items in advance.

    The thread ends with this generator.
    """
    slots, closed = Semaphore(count), Event()
    ready: SimpleQueue[tuple[SplitMinibatch | None, BaseException | None]] = (
        SimpleQueue()
    )
    thread = Thread(
        target=_produce,
        args=(minibatches, ready, slots, closed),
        name="feed",
        daemon=True,
    )

    def close() -> None:
        closed.set()
        slots.release()
        thread.join()

    # A daemon thread does not keep a failed process alive, but must end before JAX.
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


def _produce(
    minibatches: Iterator[SplitMinibatch],
    ready: SimpleQueue,
    slots: Semaphore,
    closed: Event,
) -> None:
    """Put (item, None) while slots are free; at the end (None, None or an error)."""
    try:
        while slots.acquire() and not closed.is_set():
            ready.put((next(minibatches), None))
    except StopIteration:
        ready.put((None, None))
    except BaseException as error:  # re-raised in the consumer
        ready.put((None, error))
