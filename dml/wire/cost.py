"""What an all-reduce costs: seconds by α, β, γ, and the words that every rank sends.

Pure arithmetic, for any number of ranks and any length; a word is one element. On the
`Uniform` virtual network the seconds are exact, but for hierarchical ones of uneven
groups, where they are a bound: the ranks of smaller groups come early.
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from dml.wire.byteps import byteps_cut
from dml.wire.topology import (
    SEGMENT,
    SMALL,
    STAGE,
    children,
    chunks,
    fold,
    halving,
    rounds,
    segments,
)


class Rates(NamedTuple):
    """Seconds that a machine takes; the last two are for memory that ranks share."""

    alpha: float  # a message
    beta: float  # a byte sent
    gamma: float  # a byte reduced
    meet: float = 0.0  # a round of a meeting in shared memory
    touch: float = 0.0  # a byte copied in shared memory


class Job(NamedTuple):
    """One all-reduce: all that its cost depends on."""

    size: int
    length: int
    itemsize: int = 4
    registered: bool = True
    segment: int = SEGMENT
    groups: tuple[int, ...] = ()  # the sizes of a hierarchical one's groups
    hosts: bool = True  # groups share memory inside
    outside: str = "ring"  # what a hierarchical one does across groups


def seconds(algorithm: str, job: Job, rates: Rates) -> float:
    """Predict how long the slowest rank takes."""
    return SECONDS[algorithm](job, rates) if job.size > 1 else 0.0


def words(algorithm: str, job: Job) -> list[int]:
    """Say how many words every rank sends."""
    return WORDS[algorithm](job) if job.size > 1 else [0]


def fit(measurements: Iterable[tuple[str, Job, float]]) -> Rates:
    """Find the rates that predict (algorithm, job, seconds) best, by relative error.

    A meeting's round is no slower than a message, nor a byte copied than a byte sent:
    messages on a host are made of both. So noise cannot turn the choice around.
    """
    import numpy as np
    from scipy.optimize import least_squares

    rows = list(measurements)

    def rates(logs: np.ndarray) -> Rates:
        alpha, beta, gamma, meet, touch = np.exp(logs).tolist()
        return Rates(alpha, beta, gamma, alpha * meet, beta * touch)

    def misses(logs: np.ndarray) -> list[float]:
        found = rates(logs)
        return [math.log(seconds(name, job, found) / took) for name, job, took in rows]

    start = np.log([1e-6, 1e-10, 1e-10, 0.5, 0.5])
    bounds = [-50.0] * 3 + [-10.0] * 2, [10.0] * 3 + [0.0] * 2
    return rates(least_squares(misses, start, bounds=bounds, xtol=1e-14).x)


def choose(job: Job, rates: Rates, candidates: Iterable[str]) -> str:
    """Name the algorithm that is predicted to be the fastest."""
    return min(candidates, key=lambda name: seconds(name, job, rates))


def send(job: Job, rates: Rates, length: int) -> float:
    return rates.alpha + rates.beta * length * job.itemsize


def add(job: Job, rates: Rates, length: int) -> float:
    """Receive and reduce by segments: one is added while the next one comes."""
    came = added = 0.0
    for part in segments(length, max(1, job.segment // job.itemsize)):
        nbytes = (part.stop - part.start) * job.itemsize
        came += rates.alpha + rates.beta * nbytes
        added = max(added, came) + rates.gamma * nbytes
    return added


def meet(size: int, rates: Rates) -> float:
    return rounds(size) * rates.meet


def star_seconds(job: Job, rates: Rates) -> float:
    n = job.length
    return (job.size - 1) * (add(job, rates, n) + send(job, rates, n))


def star_words(job: Job) -> list[int]:
    return [(job.size - 1) * job.length] + [job.length] * (job.size - 1)


def tree_seconds(job: Job, rates: Rates) -> float:
    n = job.length
    return rounds(job.size) * (add(job, rates, n) + send(job, rates, n))


def tree_words(job: Job) -> list[int]:
    down = [len(list(children(rank, job.size))) for rank in range(job.size)]
    return [((rank > 0) + down[rank]) * job.length for rank in range(job.size)]


def folding_seconds(job: Job, rates: Rates) -> float:
    n = job.length
    if not fold(job.size).extra:
        return 0.0
    return add(job, rates, n) + send(job, rates, n)


def butterfly_seconds(job: Job, rates: Rates) -> float:
    inner = rounds(fold(job.size).power) * add(job, rates, job.length)
    return inner + folding_seconds(job, rates)


def butterfly_words(job: Job) -> list[int]:
    exchanges = rounds(fold(job.size).power)
    return folded_words(job, lambda place: exchanges * job.length)


def folded_words(job: Job, sent: Callable[[int], int]) -> list[int]:
    """Add what folding sends to what a place of the power of two sends."""
    folded, found = fold(job.size), []
    for rank in range(job.size):
        place = folded.place(rank)
        if place < 0:
            found.append(job.length)
        else:
            found.append(sent(place) + (place < folded.extra) * job.length)
    return found


def halving_doubling_seconds(job: Job, rates: Rates) -> float:
    total, length = folding_seconds(job, rates), job.length
    for _ in range(rounds(fold(job.size).power)):
        length = -(-length // 2)  # the larger half
        total += add(job, rates, length) + send(job, rates, length)
    return total


def halving_doubling_words(job: Job) -> list[int]:
    power = fold(job.size).power

    def sent(place: int) -> int:
        halves = halving(place, power, job.length)
        return sum(count(half.give) + count(half.keep) for half in halves)

    return folded_words(job, sent)


def ring_seconds(job: Job, rates: Rates) -> float:
    longest = -(-job.length // job.size)
    both = add(job, rates, longest) + send(job, rates, longest)
    return (job.size - 1) * both


def ring_words(job: Job) -> list[int]:
    p, lengths = job.size, [count(part) for part in chunks(job.length, job.size)]
    return [
        2 * job.length - lengths[(r + 1) % p] - lengths[(r + 2) % p] for r in range(p)
    ]


def hierarchical_seconds(job: Job, rates: Rates) -> float:
    largest, owners = max(job.groups), min(job.groups)
    longest = -(-job.length // owners)
    across = job._replace(size=len(job.groups), length=longest, hosts=False)
    total = seconds(job.outside, across, rates)
    nbytes = longest * job.itemsize
    if job.hosts:
        added = (largest - 1) * nbytes * rates.gamma
        copied = (largest - 1) * nbytes * rates.touch
        return total + 3 * meet(largest, rates) + added + copied
    both = add(job, rates, longest) + send(job, rates, longest)
    return total + (largest - 1) * both


def hierarchical_words(job: Job) -> list[int]:
    owners, sent = min(job.groups), []
    owned = [count(part) for part in chunks(job.length, owners)]
    for number, size in enumerate(job.groups):
        lengths = owned + [0] * (size - owners)
        for place in range(size):
            inside = 2 * job.length - lengths[place] - lengths[(place + 1) % size]
            inside *= not job.hosts and size > 1
            across = job._replace(size=len(job.groups), length=lengths[place])
            beyond = words(job.outside, across)[number] if place < owners else 0
            sent.append(inside + beyond)
    return sent


def shared_seconds(job: Job, rates: Rates) -> float:
    p, nbytes = job.size, job.length * job.itemsize
    if nbytes <= SMALL:
        return meet(p, rates) + nbytes * ((p - 1) * rates.gamma + rates.touch)
    if job.registered:
        chunk = -(-job.length // p) * job.itemsize
        return 2 * meet(p, rates) + (p - 1) * chunk * (rates.gamma + rates.touch)
    total = meet(p, rates)
    for part in segments(job.length, STAGE // job.itemsize):
        chunk = -(-count(part) // p) * job.itemsize
        added = (p - 1) * chunk * rates.gamma
        total += meet(p, rates) + added + 2 * p * chunk * rates.touch
    return total


def native_seconds(job: Job, rates: Rates) -> float:
    """The bound of any algorithm that does not add while it receives (Chan 2007)."""
    share = (job.size - 1) / job.size * job.length * job.itemsize
    return rounds(job.size) * rates.alpha + share * (2 * rates.beta + rates.gamma)


def byteps_seconds(job: Job, rates: Rates, spare: int = 0) -> float:
    """What `byteps_allreduce` takes if the last `spare` of job.size ranks only serve.

    Without γ exact for even pieces, else a bound. The paper's time (Jiang 2020),
    2n(n-1)M/((n² + kn - 2k)B), is that of all stages but the last, which drains.
    """
    workers, nbytes = job.size - spare, job.length * job.itemsize
    if workers < 2:
        return 0.0
    pieces, stages = byteps_cut(workers, spare, nbytes, job.segment)
    piece = -(-job.length // pieces) * job.itemsize
    slots = workers * (stages + (spare > 0))
    added = stages if spare else 0  # pieces that a spare host adds up of all workers
    added += (workers - spare) * stages // (2 * (workers - 1))  # and a worker
    return (
        slots * (rates.alpha + rates.beta * piece)
        + (workers - 1) * added * rates.gamma * piece
    )


def gather_seconds(size: int, nbytes: int, rates: Rates) -> float:
    """An all-gather of nbytes in all, round a ring."""
    return (size - 1) * rates.alpha + (size - 1) / size * nbytes * rates.beta


def count(part: slice) -> int:
    return part.stop - part.start


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
WORDS = {
    "star": star_words,
    "tree": tree_words,
    "butterfly": butterfly_words,
    "halving_doubling": halving_doubling_words,
    "ring": ring_words,
    "hierarchical": hierarchical_words,
    "shared": lambda job: [0] * job.size,
}
