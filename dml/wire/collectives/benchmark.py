"""Benchmark of all-reduces: check their results, then time them alternately.

Alternation spreads a drift of the machine's speed evenly over the all-reduces. Words
are the elements of a buffer.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dml.types import BadInput, Comm, CountedComm
from dml.wire.collectives.check import WrongResult, compare_replicas
from dml.wire.comm.once import once

MIN_SECONDS = 2e-3  # least duration of one timing, which may have several calls
MAX_CALLS = 256  # most consecutive calls in one timing
# all-reduces that use shared windows
WINDOWS = ("shared", "hierarchical", "auto", "auto_all")


def time_alternately(
    comm: Comm,
    calls: Sequence[Callable[[], None]],
    repeats: int,
    seconds: float = MIN_SECONDS,
) -> np.ndarray:
    """Return seconds per call of the slowest rank: an array calls x repeats.

    A timing takes about `seconds` at least, by MAX_CALLS calls at most. Virtual time
    does not vary, so virtual ranks call once. Collective.
    """
    times = np.zeros((len(calls), 1 if comm.platform.virtual else repeats))
    counts = [calls_per_timing(comm, call, seconds) for call in calls]
    for repeat in range(times.shape[1]):
        for row, call in enumerate(calls):
            times[row, repeat] = seconds_per_call(comm, call, counts[row])
    comm.Allreduce(None, times.reshape(-1), np.maximum)
    return times


def calls_per_timing(comm: Comm, call: Callable[[], None], least: float) -> int:
    """Warm up; return the number of consecutive calls that take `least` seconds."""
    call()
    if comm.platform.virtual:
        return 1
    seconds = np.array([seconds_per_call(comm, call, 1)])
    comm.Allreduce(None, seconds, np.maximum)
    return int(np.clip(least / seconds[0], 1, MAX_CALLS))


def seconds_per_call(comm: Comm, call: Callable[[], None], count: int) -> float:
    """Return the seconds per call of `count` consecutive calls after a barrier."""
    comm.Barrier()
    start = comm.Wtime()
    for _ in range(count):
        call()
    return (comm.Wtime() - start) / count


class CheckedCall(NamedTuple):
    """Results of a checked call."""

    words_sent: int  # by all ranks
    sha256: str  # hash of the buffer after the call
    seconds: float  # of this rank


def check_call(
    comm: CountedComm, call: Callable[[], None], buffer: np.ndarray, seed: int
) -> CheckedCall:
    """Call on rank-distinct words; raise WrongResult if the result is wrong.

    A correct result is bit-identical on all ranks, and equals the sum up to rounding.
    The first call, which sets up communicators and windows, does not count: real ranks
    call once before; virtual ranks call again if anything was set up.

    Args:
      comm: The ranks; collective.
      call: Reduces the buffer in place.
      buffer: The buffer; it is overwritten.
      seed: Random seed of the words.
    """
    length, dtype = len(buffer), buffer.dtype

    def two_copies() -> np.ndarray:
        words = np.empty(2 * length, dtype)
        integers = np.random.default_rng(seed).integers(-99, 100, length)
        np.divide(np.tile(integers, 2), 7, out=words, casting="unsafe")
        return words

    # two copies of random words; the words of rank r start r before the second copy
    twice = once(comm, "words", (seed, length, dtype), two_copies)
    first = -comm.rank % max(1, length)
    virtual = comm.platform.virtual

    def created() -> int:
        """Return the number of communicators and windows created by this rank."""
        return comm.platform.raw.process.created if virtual else 0

    if not virtual:
        buffer[...] = 0
        call()
    for _ in range(2):  # at most: an all-reduce may set up anew in every call
        buffer[...] = twice[first : first + length]
        bytes_before, created_before = comm.bytes_sent, created()
        comm.Barrier()
        start = comm.Wtime()
        call()
        seconds = comm.Wtime() - start
        sent = comm.bytes_sent - bytes_before
        setups = created() - created_before
        sha256, (sent, setups) = compare_replicas(comm, buffer, sent, setups)
        if not virtual or comm.rank == 0:  # the other virtual ranks are bit-identical
            check_sum(buffer, twice, comm.size)
        if not setups:
            break
    return CheckedCall(sent // buffer.itemsize, sha256, seconds)


def check_sum(result: np.ndarray, twice: np.ndarray, size: int) -> None:
    """Raise WrongResult if the result is not the sum of the words of all ranks.

    Args:
      result: Result of the all-reduce.
      twice: Two copies of the words of rank 0; the words of rank r start r before the
        second copy.
      size: Number of ranks.
    """
    if not len(result):
        return
    length, exact = len(result), result.dtype.kind in "iu"
    wide = result.dtype if exact else np.result_type(result.dtype, np.float64)
    prefix = np.concatenate([[0], np.cumsum(twice, dtype=wide)]).astype(wide)
    # Word i of the result is the sum of `size` consecutive words, cyclically: `cycles`
    # times all words, and `rest` words that end with word i.
    cycles, rest = divmod(size, length)
    last = prefix[length + 1 :] - prefix[length + 1 - rest : 2 * length + 1 - rest]
    error = np.abs(result - (last + prefix[length] * np.array(cycles).astype(wide)))
    # bounds of the rounding errors of the all-reduce, and of the prefix sums
    eps, wide_eps = (0, 0) if exact else (np.finfo(t).eps for t in (result.dtype, wide))
    bound = 16 * size**1.5 * eps + 32 * length * wide_eps
    if not (error <= bound).all():
        wrong = int(np.argmax(~(error <= bound)))
        raise WrongResult(
            f"expected the sum over all ranks, but element {wrong} differs from it "
            f"by {error[wrong]:.3g}"
        )


def benchmark(
    comm: CountedComm,
    allreduces: Mapping[str, Callable[..., None]],
    buffer: np.ndarray,
    repeats: int,
    *,
    seed: int = 0,
    peers: Mapping[str, Callable[[], None]] | None = None,
    checked: dict[tuple, CheckedCall] | None = None,
) -> list[dict[str, Any]]:
    """Check and time all-reduces of one buffer; return a row for each all-reduce.

    A wrong result raises BadInput. Two baselines run on plain memory: MPI's own
    all-reduce, and a copy. Collective.

    Args:
      comm: Communicator of the ranks that reduce.
      allreduces: All-reduces by name.
      buffer: Buffer to reduce, registered or plain.
      repeats: Number of timings of each all-reduce on real ranks.
      seed: Random seed of the words that are reduced in checks.
      peers: Calls of other libraries by name, on their own memory; timed, not checked.
      checked: Results of earlier benchmarks, updated. On virtual ranks an all-reduce
        without shared windows is the same on both kinds of memory and runs once.
    """
    plain = np.zeros_like(buffer, subok=False)

    def as_call(allreduce: Callable[..., None]) -> Callable[[], None]:
        return lambda: allreduce(comm, buffer)  # greenlets switch slower in a partial

    calls = {name: as_call(allreduce) for name, allreduce in allreduces.items()}
    virtual = comm.platform.virtual
    checked = {} if checked is None else checked
    results: dict[str, CheckedCall] = {}
    for name, call in calls.items():
        key = name, len(buffer), buffer.dtype, seed
        if not virtual or name in WINDOWS or key not in checked:
            try:
                checked[key] = check_call(comm, call, buffer, seed)
            except WrongResult as error:
                raise BadInput(
                    f"{name}: {error}; run python -m dml.conformance {name} to list "
                    "the failing cases"
                ) from error
        results[name] = checked[key]
    buffer[:] = 0
    calls.update(peers or {})
    native = partial(comm.platform.raw.Allreduce, None, plain)
    if not virtual:
        memcpy = partial(np.copyto, np.empty_like(plain), plain)
        times = time_alternately(comm, [native, memcpy, *calls.values()], repeats)
        medians = np.median(times, axis=1)
    else:  # virtual time does not vary: use the times of the checks
        seconds = [result.seconds for result in results.values()]
        medians = np.array([seconds_per_call(comm, native, 1), 0.0, *seconds])
        comm.Allreduce(None, medians, np.maximum)
    native_seconds, memcpy_seconds, *call_seconds = medians.tolist()
    return [
        {
            "algorithm": name,
            "bytes": buffer.nbytes,
            "p": comm.size,
            "seconds": seconds,
            "native_seconds": native_seconds,
            "memcpy_seconds": memcpy_seconds,
            "speedup": native_seconds / seconds if seconds else None,
            "words_sent": results[name].words_sent if name in results else None,
            "sha256": results[name].sha256 if name in results else None,
        }
        for name, seconds in zip(calls, call_seconds, strict=True)
    ]
