"""Prove collectives, then race them by turns, so that drift meets all alike."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dml.types import Comm, CountedComm
from dml.wire.collectives.check import replicas_agree
from dml.wire.comm.once import once

LEAST = 2e-3  # seconds that one timing lasts at least, by calls in a row
MOST = 256  # calls in a row
WINDOWS = ("shared", "hierarchical", "auto")  # all-reduces that use shared windows


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
    comm.Allreduce(None, times.reshape(-1), np.maximum)
    return times


def enough(comm: Comm, call: Callable[[], None]) -> int:
    """Warm up; count the calls that last long enough to be timed."""
    call()
    if comm.platform.virtual:
        return 1
    took = np.array([lap(comm, call, 1)])
    comm.Allreduce(None, took, np.maximum)
    return int(np.clip(LEAST / took[0], 1, MOST))


def lap(comm: Comm, call: Callable[[], None], calls: int) -> float:
    comm.Barrier()
    start = comm.Wtime()
    for _ in range(calls):
        call()
    return (comm.Wtime() - start) / calls


class Proof(NamedTuple):
    """What a call did with rank-distinct words."""

    words_sent: int  # by all ranks
    sha256: str  # of the buffer, after the call
    seconds: float  # of this rank, in that call


def proof(
    comm: CountedComm, call: Callable[[], None], buffer: np.ndarray, seed: int
) -> Proof:
    """Call on rank-distinct words; raise where the replicas differ.

    What is set up once does not count: a real rank calls once before, a virtual rank
    calls again where communicators or windows were made.
    """
    length, dtype = len(buffer), buffer.dtype

    def words() -> np.ndarray:
        found = np.empty(2 * length, dtype)
        drawn = np.random.default_rng(seed).integers(-99, 100, length)
        np.divide(np.tile(drawn, 2), 7, out=found, casting="unsafe")
        return found

    twice = once(comm, "words", (seed, length, dtype), words)
    first = -comm.rank % max(1, length)  # a rank's words begin at another one of them
    virtual = comm.platform.virtual
    if not virtual:
        buffer[...] = 0
        call()
    while True:
        buffer[...] = twice[first : first + length]
        before, made = comm.bytes_sent, comm.platform.raw.process.made if virtual else 0
        comm.Barrier()
        start = comm.Wtime()
        call()
        seconds = comm.Wtime() - start
        made = comm.platform.raw.process.made - made if virtual else 0
        sent = comm.bytes_sent - before
        sha256, (sent, made) = replicas_agree(comm, buffer, sent, made)
        if not made:
            return Proof(sent // buffer.itemsize, sha256, seconds)


def contest(
    comm: CountedComm,
    allreduces: Mapping[str, Callable[..., None]],
    buffer: np.ndarray,
    repeats: int,
    *,
    seed: int = 0,
    peers: Mapping[str, Callable[[], None]] | None = None,
    proofs: dict[tuple, Proof] | None = None,
) -> list[dict[str, Any]]:
    """Prove and race all-reduces of one buffer; return a row for each of them.

    Two baselines run on plain memory: MPI's own all-reduce, and a copy.

    Args:
      comm: Communicator of the ranks that reduce.
      allreduces: All-reduces by name.
      buffer: Buffer to reduce, registered or plain.
      repeats: Number of timings of each all-reduce on real ranks.
      seed: Random seed of the words that the proofs reduce.
      peers: Calls of other libraries that reduce memory of their own; not proved.
      proofs: Proofs of earlier contests, updated. On virtual ranks an all-reduce that
        uses no shared windows is the same on both kinds of memory and runs once.
    """
    plain = np.zeros_like(buffer, subok=False)

    def bound(allreduce: Callable[..., None]) -> Callable[[], None]:
        return lambda: allreduce(comm, buffer)  # faster to switch from than a partial

    calls = {name: bound(allreduce) for name, allreduce in allreduces.items()}
    virtual = comm.platform.virtual
    proofs = {} if proofs is None else proofs
    proved: dict[str, Proof] = {}
    for name, call in calls.items():
        key = name, len(buffer), buffer.dtype, seed
        if not virtual or name in WINDOWS or key not in proofs:
            proofs[key] = proof(comm, call, buffer, seed)
        proved[name] = proofs[key]
    buffer[:] = 0
    calls.update(peers or {})
    native = partial(comm.platform.raw.Allreduce, None, plain)
    if not virtual:
        memcpy = partial(np.copyto, np.empty_like(plain), plain)
        times = race(comm, [native, memcpy, *calls.values()], repeats)
        medians = np.median(times, axis=1)
    else:  # virtual time does not vary: the call that was proved is timed
        seconds = [each.seconds for each in proved.values()]
        medians = np.array([lap(comm, native, 1), 0.0, *seconds])
        comm.Allreduce(None, medians, np.maximum)
    native_seconds, memcpy_seconds, *took = medians.tolist()
    return [
        {
            "algorithm": name,
            "bytes": buffer.nbytes,
            "p": comm.size,
            "seconds": seconds,
            "native_seconds": native_seconds,
            "memcpy_seconds": memcpy_seconds,
            "speedup": native_seconds / seconds if seconds else None,
            "words_sent": proved[name].words_sent if name in proved else None,
            "sha256": proved[name].sha256 if name in proved else None,
        }
        for name, seconds in zip(calls, took, strict=True)
    ]
