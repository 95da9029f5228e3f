"""Minibatches, made in the background while the one before is used.

One thread runs ahead, so a strategy waits for its input only where making it is slower
than using it.
"""

import atexit
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import Any, NamedTuple

import numpy as np

from dml.types import BadInput, itself


class Part(NamedTuple):
    """A part of a minibatch."""

    examples: int
    batch: Any


Fed = tuple[int, list[Part | None]]  # examples of the minibatch; None: an empty part


def feed(
    take: Callable[[np.ndarray], Any],
    batches: Iterable[np.ndarray],
    split: Callable[[np.ndarray], Sequence[np.ndarray]],
    put: Callable[[Any], Any] = itself,
    ahead: int = 2,
) -> Iterator[Fed]:
    """Yield each minibatch's number of examples, and its parts.

    take: indices -> batch.
    batches: the indices of each minibatch's examples.
    split: indices -> the indices of each part.
    put: batch -> the batch where it is needed, such as on a device.
    ahead: minibatches made before they are asked for; 0 makes them in the caller, as
        ranks that share a thread must.
    """
    if ahead < 0:
        raise BadInput(f"expected {ahead=} of 0 or more; pass a number of minibatches")

    def part(index: np.ndarray) -> Part | None:
        return Part(len(index), put(take(index))) if len(index) else None

    made = ((len(index), list(map(part, split(index)))) for index in batches)
    return _ahead(made, ahead) if ahead else made


def _ahead(made: Iterator[Fed], ahead: int) -> Iterator[Fed]:
    """Run an iterator in a thread, which ends when this one does."""
    room, closed = Semaphore(ahead), Event()
    ready: SimpleQueue[tuple[Fed | None, BaseException | None]] = SimpleQueue()
    thread = Thread(
        target=_work, args=(made, ready, room, closed), name="feed", daemon=True
    )

    def close() -> None:
        closed.set()
        room.release()
        thread.join()

    # a daemon, lest it keep a process that fails; yet it must not outlive jax
    atexit.register(close)
    thread.start()
    try:
        while True:
            one, error = ready.get()
            if error is not None:
                raise error
            if one is None:
                return
            room.release()
            yield one
    finally:
        close()
        atexit.unregister(close)


def _work(
    made: Iterator[Fed], ready: SimpleQueue, room: Semaphore, closed: Event
) -> None:
    """Make one after another while there is room; then say that it was all."""
    try:
        while room.acquire() and not closed.is_set():
            ready.put((next(made), None))
    except StopIteration:
        ready.put((None, None))
    except BaseException as error:  # whatever it is, it is the consumer's
        ready.put((None, error))
