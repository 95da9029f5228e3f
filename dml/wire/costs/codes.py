"""Predicted seconds of sums of coded gradients, by transport.

On the `Uniform` virtual network the seconds of messages are exact if the chunks of all
ranks are equally long, otherwise an upper bound. The seconds of coding are added: each
rank encodes and decodes one code after another.
"""

import math
from collections.abc import Callable, Iterable
from typing import NamedTuple

from dml.wire.costs.allreduce import Rates

CODING = 5e-10  # nominal seconds to encode, or to decode and add, one element


class Job(NamedTuple):
    """A sum of codes.

    Attributes:
      size: Number of ranks.
      length: Number of elements.
      nbytes: (length) -> bytes of a code of `length` elements.
      groups: Number of ranks of each host.
      encode: Seconds to encode one element.
      decode: Seconds to decode and add one element.
    """

    size: int
    length: int
    nbytes: Callable[[int], int]
    groups: tuple[int, ...] = ()
    encode: float = CODING
    decode: float = CODING


def seconds(transport: str, job: Job, rates: Rates) -> float:
    """Predict the seconds of the slowest rank, by name of the transport."""
    return SECONDS[transport](job, rates)


def choose(job: Job, rates: Rates, transports: Iterable[str] = ()) -> str:
    """Return the transport with the least predicted seconds.

    Args:
      job: The sum.
      rates: Rates of the network.
      transports: Names to choose from; none: all that can run. Of equally fast ones the
        first is chosen, which rounds the fewest times.
    """
    several = len(job.groups) > 1 and max(job.groups) > 1
    names = [name for name in SECONDS if several or name != "two_level"]
    return min(transports or names, key=lambda name: seconds(name, job, rates))


def gather_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of an all-gather of codes; every rank decodes p codes."""
    coding = job.length * (job.encode + job.size * job.decode)
    return (job.size - 1) * message(job, rates, job.length) + coding


def scatter_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of an all-to-all of codes and an all-gather of their sums."""
    chunk = math.ceil(job.length / job.size)
    rounds = 2 * (job.size - 1) * message(job, rates, chunk)
    return rounds + job.size * chunk * (job.encode + 2 * job.decode)


def two_level_seconds(job: Job, rates: Rates) -> float:
    """Return the seconds of two scatters, inside hosts and across hosts."""
    hosts, largest, owners = len(job.groups), max(job.groups), min(job.groups)
    chunk = math.ceil(job.length / owners)
    leaf = math.ceil(chunk / hosts)
    inside = (largest - 1) * (
        message(job, rates, chunk) + rates.alpha + rates.beta * hosts * job.nbytes(leaf)
    )
    across = 2 * (hosts - 1) * message(job, rates, leaf)
    coded = job.length + chunk  # elements that are encoded, and decoded and added
    return inside + across + coded * (job.encode + job.decode) + job.length * job.decode


SECONDS: dict[str, Callable[[Job, Rates], float]] = {
    "gather": gather_seconds,
    "scatter": scatter_seconds,
    "two_level": two_level_seconds,
    "ring": scatter_seconds,  # as many rounds, bytes and codes
}


def message(job: Job, rates: Rates, length: int) -> float:
    """Return the seconds of a message with the code of `length` elements."""
    return rates.alpha + rates.beta * job.nbytes(length)
