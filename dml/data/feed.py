"""BATCH: minibatches made while the one before is learned from.

Numbers of draws in; their examples out, cut into parts and put where they are needed.
One thread runs ahead, so a strategy never waits for its input unless that is slower.
"""

import atexit
from collections.abc import Callable, Iterable, Iterator, Sequence
from queue import SimpleQueue
from threading import Event, Semaphore, Thread
from typing import Any

import numpy as np

from dml.data.minibatches import take
from dml.types import BadInput, Batch, Examples

Fed = tuple[int, list[Any]]  # examples of the global minibatch, this rank's parts of it


def feed(
    data: Batch | Examples,
    batches: Iterable[np.ndarray],
    split: Callable[[np.ndarray], Sequence[np.ndarray]],
    put: Callable[[Batch], Any] = lambda batch: batch,
    ahead: int = 2,
) -> Iterator[Fed]:
    """Yield (len(index), [put(take(data, part)) for part in split(index)]) an index.

    An empty part is None. At most `ahead` minibatches are made before they are asked
    for; 0 makes them in the caller, as ranks that share a thread must.
    """
    if ahead < 0:
        raise BadInput(f"expected {ahead=} of 0 or more; pass a number of minibatches")
    made = (
        (
            len(index),
            [put(take(data, part)) if len(part) else None for part in split(index)],
        )
        for index in batches
    )
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
