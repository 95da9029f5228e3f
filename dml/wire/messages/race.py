"""Prove collectives, then race them by turns, so that drift meets all alike."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from dml.types import Comm, CountedComm
from dml.wire.messages.butterfly import butterfly_allreduce
from dml.wire.messages.check import replicas_agree

LEAST = 2e-3  # seconds that one timing lasts at least, by calls in a row
MOST = 256  # calls in a row


def race(
    comm: Comm, contenders: Sequence[Callable[[], None]], repeats: int
) -> np.ndarray:
    """Time every contender `repeats` times by turns: seconds a call, a row each.

    The slowest rank's time counts. Virtual time does not vary: one call is enough.
    """
    times = np.zeros((len(contenders), 1 if comm.platform.virtual else repeats))
    calls = [enough(comm, call) for call in contenders]
    for repeat in range(times.shape[1]):
        for row, call in enumerate(contenders):
            times[row, repeat] = lap(comm, call, calls[row])
    butterfly_allreduce(comm, times, np.maximum)
    return times


def enough(comm: Comm, call: Callable[[], None]) -> int:
    """Warm up; count the calls that last long enough to be timed."""
    call()
    took = np.array([lap(comm, call, 1)])
    butterfly_allreduce(comm, took, np.maximum)
    if comm.platform.virtual:
        return 1
    return int(np.clip(LEAST / took[0], 1, MOST))


def lap(comm: Comm, call: Callable[[], None], calls: int) -> float:
    comm.Barrier()
    start = comm.Wtime()
    for _ in range(calls):
        call()
    return (comm.Wtime() - start) / calls


def proof(
    comm: CountedComm, call: Callable[[], None], buffer: np.ndarray, seed: int
) -> dict[str, Any]:
    """Call on rank-distinct words: how many words all ranks sent, the result's hash.

    Raises where the replicas differ.
    """
    words = np.random.default_rng(seed).integers(-99, 100, len(buffer))
    buffer[...] = 0
    call()  # what is set up once does not count
    np.divide(np.roll(words, comm.rank), 7, out=buffer, casting="unsafe")
    before = comm.bytes_sent
    call()
    sent = np.array([comm.bytes_sent - before])
    butterfly_allreduce(comm, sent)
    found = replicas_agree(comm, buffer)
    return {"words_sent": int(sent[0]) // buffer.itemsize, "sha256": found}


def contest(
    comm: CountedComm,
    allreduces: Mapping[str, Callable[..., None]],
    buffer: np.ndarray,
    repeats: int,
    *,
    seed: int = 0,
    peers: Mapping[str, Callable[[], None]] | None = None,
) -> list[dict[str, Any]]:
    """Prove and race all-reduces of one buffer: a row each, in seconds a call.

    The yardsticks run on plain memory: MPI's own all-reduce, and a copy. What `peers`
    call does the same in its own memory, and is not proved.
    """
    plain = np.zeros_like(buffer, subok=False)
    calls: dict[str, Callable[[], None]] = {
        name: partial(each, comm, buffer) for name, each in allreduces.items()
    }
    proofs = {name: proof(comm, call, buffer, seed) for name, call in calls.items()}
    buffer[:] = 0
    calls.update(peers or {})
    yardsticks: list[Callable[[], None]] = [
        partial(comm.platform.raw.Allreduce, None, plain),
        partial(np.copyto, np.empty_like(plain), plain),
    ]
    times = race(comm, [*yardsticks, *calls.values()], repeats)
    native_seconds, memcpy_seconds, *took = np.median(times, axis=1).tolist()
    return [
        {
            "algorithm": name,
            "bytes": buffer.nbytes,
            "p": comm.size,
            "seconds": seconds,
            "native_seconds": native_seconds,
            "memcpy_seconds": memcpy_seconds,
            "speedup": native_seconds / seconds if seconds else None,
            **proofs.get(name, {"words_sent": None, "sha256": None}),
        }
        for name, seconds in zip(calls, took, strict=True)
    ]
