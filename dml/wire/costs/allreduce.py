"""Predicted seconds of an all-reduce, for any number of ranks and any length.

On the `Uniform` virtual network the seconds are exact, except for a hierarchical
all-reduce with groups of different sizes: there they are an upper bound, because ranks
of smaller groups arrive early. `wire.plans.schedules` has the messages that ranks send.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from dml.wire.plans.byteps import byteps_pieces
from dml.wire.plans.topology import SEGMENT, SMALL, STAGE, fold, rounds, segments


class Rates(NamedTuple):
    """Seconds per operation of a machine."""

    alpha: float  # per message
    beta: float  # per byte sent
    gamma: float  # per byte reduced
    barrier: float = (
        0.0  # per round of a barrier in shared memory, which has ⌈lg p⌉ rounds
    )
    copy: float = 0.0  # per byte copied in shared memory


class Job(NamedTuple):
    """Size and layout of one all-reduce: everything that its cost depends on."""

    size: int  # number of ranks
    length: int  # number of buffer elements
    itemsize: int = 4  # bytes of an element
    registered: bool = True  # shared: whether the buffer is in registered memory
    segment: int = SEGMENT  # bytes of a segment
    groups: tuple[int, ...] = ()  # hierarchical: number of ranks of each group
    hosts: bool = True  # hierarchical: whether the ranks of a group share memory
    further: tuple[tuple[tuple[int, ...], bool], ...] = ()  # and those of outer levels
    outside: str = "ring"  # hierarchical: name of the all-reduce across groups


def seconds(algorithm: str, job: Job, rates: Rates) -> float:
    """Predict the seconds of the slowest rank, by name of the all-reduce."""
    return SECONDS[algorithm](job, rates) if job.size > 1 else 0.0


def fit(measurements: Iterable[tuple[str, Job, float]]) -> Rates:
    """Fit rates to measured (algorithm, job, seconds) by relative error.

    A message on one host includes a barrier and a copy. Therefore `barrier` is bounded
    by `alpha`, and `copy` by `beta`; without these bounds measurement noise could
    change the chosen algorithm.
    """
    import numpy as np
    from scipy.optimize import least_squares

    rows = list(measurements)

    def rates(logs: np.ndarray) -> Rates:
        alpha, beta, gamma, barrier, copy = np.exp(logs).tolist()
        return Rates(alpha, beta, gamma, alpha * barrier, beta * copy)

    def errors(logs: np.ndarray) -> list[float]:
        candidate = rates(logs)
        return [
            math.log(seconds(name, job, candidate) / measured)
            for name, job, measured in rows
        ]

    start = np.log([1e-6, 1e-10, 1e-10, 0.5, 0.5])
    bounds = [-50.0] * 3 + [-10.0] * 2, [10.0] * 3 + [0.0] * 2
    return rates(least_squares(errors, start, bounds=bounds, xtol=1e-14).x)


def choose(job: Job, rates: Rates, candidates: Iterable[str]) -> str:
    """Return the name of the algorithm with the smallest predicted time."""
    return min(candidates, key=lambda name: seconds(name, job, rates))


def send_seconds(job: Job, rates: Rates, length: int) -> float:
    """Return the seconds of one message of `length` elements."""
    return rates.alpha + rates.beta * length * job.itemsize


def reduce_seconds(job: Job, rates: Rates, length: int) -> float:
    """Return the seconds to receive segments, each reduced while the next arrives."""
    received = reduced = 0.0
    for part in segments(length, max(1, job.segment // job.itemsize)):
        nbytes = (part.stop - part.start) * job.itemsize
        received += rates.alpha + rates.beta * nbytes
        reduced = max(reduced, received) + rates.gamma * nbytes
    return reduced


def barrier_seconds(size: int, rates: Rates) -> float:
    """Return the seconds of a barrier in shared memory."""
    return rounds(size) * rates.barrier


def star_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of the root, which receives from and sends to each rank."""
    n = job.length
    return (job.size - 1) * (
        reduce_seconds(job, rates, n) + send_seconds(job, rates, n)
    )


def tree_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of a reduction up a tree and a broadcast down."""
    n = job.length
    return rounds(job.size) * (
        reduce_seconds(job, rates, n) + send_seconds(job, rates, n)
    )


def folding_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of folding to a power of two ranks, and of unfolding."""
    n = job.length
    if not fold(job.size).extra:
        return 0.0
    return reduce_seconds(job, rates, n) + send_seconds(job, rates, n)


def butterfly_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of exchanges of the full buffer, and of folding."""
    exchanges = rounds(fold(job.size).power) * reduce_seconds(job, rates, job.length)
    return exchanges + folding_seconds(job, rates)


def halving_doubling_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of a recursive reduce-scatter and all-gather."""
    total, length = folding_seconds(job, rates), job.length
    for _ in range(rounds(fold(job.size).power)):
        length = -(-length // 2)  # the larger half
        total += reduce_seconds(job, rates, length) + send_seconds(job, rates, length)
    return total


def ring_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of a ring reduce-scatter and all-gather."""
    longest = -(-job.length // job.size)  # elements of the longest chunk
    reduced, sent = (
        reduce_seconds(job, rates, longest),
        send_seconds(job, rates, longest),
    )
    return (job.size - 1) * (reduced + sent)


def hierarchical_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds inside groups, and of the all-reduce across groups."""
    largest = max(job.groups)  # ranks of the largest group
    owners = min(job.groups)  # ranks with a chunk in each group
    longest = -(-job.length // owners)  # elements of the longest chunk
    across = job._replace(size=len(job.groups), length=longest, hosts=False)
    outside = job.outside
    if job.further:
        (groups, hosts), *further = job.further
        across = across._replace(groups=groups, hosts=hosts, further=tuple(further))
        outside = "hierarchical"
    total = seconds(outside, across, rates)
    nbytes = longest * job.itemsize
    if job.hosts:
        added = (largest - 1) * nbytes * rates.gamma
        copied = (largest - 1) * nbytes * rates.copy
        return total + 3 * barrier_seconds(largest, rates) + added + copied
    reduced, sent = (
        reduce_seconds(job, rates, longest),
        send_seconds(job, rates, longest),
    )
    return total + (largest - 1) * (reduced + sent)


def shared_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of an all-reduce in shared memory."""
    p, nbytes = job.size, job.length * job.itemsize
    if nbytes <= SMALL:
        return barrier_seconds(p, rates) + nbytes * ((p - 1) * rates.gamma + rates.copy)
    if job.registered:
        chunk = -(-job.length // p) * job.itemsize
        return 2 * barrier_seconds(p, rates) + (p - 1) * chunk * (
            rates.gamma + rates.copy
        )
    total = barrier_seconds(p, rates)
    for part in segments(job.length, STAGE // job.itemsize):
        chunk = -(-(part.stop - part.start) // p) * job.itemsize
        added = (p - 1) * chunk * rates.gamma
        total += barrier_seconds(p, rates) + added + 2 * p * chunk * rates.copy
    return total


def native_seconds(job: Job, rates: Rates) -> float:
    """Return the lower bound (Chan 2007) for algorithms that reduce after receiving."""
    nbytes = (job.size - 1) / job.size * job.length * job.itemsize
    return rounds(job.size) * rates.alpha + nbytes * (2 * rates.beta + rates.gamma)


def byteps_seconds(job: Job, rates: Rates, spare: int = 0) -> float:
    """Predict the seconds of `byteps_allreduce`.

    Exact for equal pieces and γ = 0, otherwise an upper bound if sends are buffered;
    a send without a buffer waits for a rank that adds up. The time in the paper
    (Jiang 2020), 2n(n-1)M/((n² + kn - 2k)B) for M bytes, bandwidth B, n workers and k
    spare hosts, omits the last stage, which only sends sums.

    Args:
      job: The all-reduce; `size` includes the spare hosts.
      rates: Rates of the network.
      spare: Number of spare hosts.
    """
    workers, nbytes = job.size - spare, job.length * job.itemsize
    if workers < 2:
        return 0.0
    pieces, stages = byteps_pieces(workers, spare, nbytes, job.segment)
    piece = -(-job.length // pieces) * job.itemsize
    slots = workers * (stages + (spare > 0))
    added = stages if spare else 0  # pieces that a spare host reduces
    # and pieces that a worker reduces; the sum is an upper bound
    added += (workers - spare) * stages // (2 * (workers - 1))
    return (
        slots * (rates.alpha + rates.beta * piece)
        + (workers - 1) * added * rates.gamma * piece
    )


def gather_seconds(size: int, nbytes: int, rates: Rates) -> float:
    """Predict the seconds of a ring all-gather of `nbytes` bytes over all ranks."""
    return (size - 1) * rates.alpha + (size - 1) / size * nbytes * rates.beta


SECONDS = {
    "star": star_seconds,
    "tree": tree_seconds,
    "butterfly": butterfly_seconds,
    "halving_doubling": halving_doubling_seconds,
    "ring": ring_seconds,
    "hierarchical": hierarchical_seconds,
    "shared": shared_seconds,
    "native": native_seconds,
}
