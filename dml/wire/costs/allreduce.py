"""Seconds of an all-reduce by α, β and γ, for any number of ranks and any length.

On the `Uniform` virtual network the seconds are exact, except for a hierarchical
all-reduce with groups of different sizes: there they are an upper bound, because ranks
of smaller groups arrive early. `wire.plans.schedules` gives the words that ranks send.
"""

import math
from collections.abc import Iterable
from typing import NamedTuple

from dml.wire.plans.byteps import byteps_pieces
from dml.wire.plans.topology import SEGMENT, SMALL, STAGE, fold, rounds, segments


class Rates(NamedTuple):
    """Seconds per operation of a machine; `barrier` and `copy` are of shared memory."""

    alpha: float  # per message
    beta: float  # per byte sent
    gamma: float  # per byte reduced
    barrier: float = 0.0  # per round of a barrier in shared memory
    copy: float = 0.0  # per byte copied in shared memory


class Job(NamedTuple):
    """Size and layout of one all-reduce: everything that its cost depends on."""

    size: int  # ranks
    length: int  # words
    itemsize: int = 4  # bytes of a word
    registered: bool = True  # shared: the buffer is in registered memory
    segment: int = SEGMENT  # bytes of a segment
    groups: tuple[int, ...] = ()  # hierarchical: ranks of each group
    hosts: bool = True  # hierarchical: whether the ranks of a group share memory
    outside: str = "ring"  # hierarchical: the all-reduce across groups


def seconds(algorithm: str, job: Job, rates: Rates) -> float:
    """Predict the seconds of the slowest rank."""
    return SECONDS[algorithm](job, rates) if job.size > 1 else 0.0


def fit(measurements: Iterable[tuple[str, Job, float]]) -> Rates:
    """Fit rates to measured (algorithm, job, seconds) by relative error.

    A message on one host includes a barrier and a copy, so `barrier` is at most `alpha`
    and `copy` at most `beta`. Without these bounds noise could change the choice.
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
    """Return the seconds of one message."""
    return rates.alpha + rates.beta * length * job.itemsize


def reduce_seconds(job: Job, rates: Rates, length: int) -> float:
    """Return the seconds to receive and reduce, overlapped by segments."""
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
    """Return the seconds of the root, which receives and sends one by one."""
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
    """Return the seconds of folding to a power of two, and of the reverse."""
    n = job.length
    if not fold(job.size).extra:
        return 0.0
    return reduce_seconds(job, rates, n) + send_seconds(job, rates, n)


def butterfly_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of exchanges of the full buffer."""
    inner = rounds(fold(job.size).power) * reduce_seconds(job, rates, job.length)
    return inner + folding_seconds(job, rates)


def halving_doubling_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of a recursive reduce-scatter and all-gather."""
    total, length = folding_seconds(job, rates), job.length
    for _ in range(rounds(fold(job.size).power)):
        length = -(-length // 2)  # the larger half
        total += reduce_seconds(job, rates, length) + send_seconds(job, rates, length)
    return total


def ring_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of a ring reduce-scatter and all-gather."""
    longest = -(-job.length // job.size)
    both = reduce_seconds(job, rates, longest) + send_seconds(job, rates, longest)
    return (job.size - 1) * both


def hierarchical_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds inside groups, and of the all-reduce across groups."""
    largest, owners = max(job.groups), min(job.groups)  # ranks; owners of chunks
    longest = -(-job.length // owners)
    across = job._replace(size=len(job.groups), length=longest, hosts=False)
    total = seconds(job.outside, across, rates)
    nbytes = longest * job.itemsize
    if job.hosts:
        added = (largest - 1) * nbytes * rates.gamma
        copied = (largest - 1) * nbytes * rates.copy
        return total + 3 * barrier_seconds(largest, rates) + added + copied
    both = reduce_seconds(job, rates, longest) + send_seconds(job, rates, longest)
    return total + (largest - 1) * both


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
    """Return a lower bound for algorithms that do not reduce while receiving.

    See Chan 2007.
    """
    share = (job.size - 1) / job.size * job.length * job.itemsize
    return rounds(job.size) * rates.alpha + share * (2 * rates.beta + rates.gamma)


def byteps_seconds(job: Job, rates: Rates, spare: int = 0) -> float:
    """Predict the seconds of `byteps_allreduce`.

    Exact for equal pieces and γ = 0, otherwise an upper bound. The time in the paper
    (Jiang 2020), 2n(n-1)M/((n² + kn - 2k)B), omits the last stage, which drains.

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
    added = stages if spare else 0  # pieces that a spare host adds up
    added += (workers - spare) * stages // (2 * (workers - 1))  # and a worker
    return (
        slots * (rates.alpha + rates.beta * piece)
        + (workers - 1) * added * rates.gamma * piece
    )


def gather_seconds(size: int, nbytes: int, rates: Rates) -> float:
    """Predict the seconds of a ring all-gather of `nbytes` in total."""
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
