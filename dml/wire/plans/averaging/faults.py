"""Losses, delays and absences of averaging rounds, drawn from a seed.

Every draw is a hash of the seed, the round and the ranks. Sender and receiver of a
message therefore know its fate without communication, on any number of processes, and
an evaluation of all ranks at once has the same faults as a run of each of them.
"""

from typing import Any, NamedTuple

import numpy as np

from dml.types import BadInput
from dml.wire.plans import splitmix

LOST = -1  # arrival of a message that does not arrive
PRESENCE, LOSS, DELAY = 1, 2, 3  # kinds of draws
MASK = (1 << 64) - 1


class Faults(NamedTuple):
    """Faults of peers and messages; by default there are none.

    Attributes:
      loss: Probability that a message is lost. Its sender gets no acknowledgement.
      absence: Probability that a peer is absent. It keeps its value.
      delay: Largest delay of a message in rounds; delays are uniform from 0.
      outage: Rounds of an absence, which begins at multiples of this number.
      seed: Random seed.
    """

    loss: float = 0.0
    absence: float = 0.0
    delay: int = 0
    outage: int = 1
    seed: int = 0


NO_FAULTS = Faults()


def check_faults(faults: Faults) -> Faults:
    """Return the faults; raise `BadInput` if a field is out of range."""
    if not (0 <= faults.loss < 1 and 0 <= faults.absence < 1):
        raise BadInput(
            f"expected probabilities of loss and absence from 0 to below 1, got "
            f"{faults}; correct them"
        )
    if faults.delay < 0 or faults.outage < 1:
        raise BadInput(
            f"expected a delay of 0 rounds or more and an outage of 1 or more, got "
            f"{faults}; correct them"
        )
    return faults


def present(faults: Faults, t: int, ranks: Any) -> np.ndarray:
    """Return whether each rank is present in round t."""
    if not faults.absence:
        return np.ones(np.shape(ranks), bool)
    draws = uniform((faults.seed, PRESENCE, t // faults.outage), ranks)
    return draws >= faults.absence


def arrivals(faults: Faults, t: int, source: Any, dest: Any) -> np.ndarray:
    """Return the round in which each message of round t arrives, or LOST.

    A message is sent if both peers are present. It arrives in the first round after its
    delay in which both are present again.
    """
    source, dest = np.atleast_1d(source), np.atleast_1d(dest)
    arrival = np.full(source.shape, t)
    if faults == NO_FAULTS:
        return arrival
    lost = ~(present(faults, t, source) & present(faults, t, dest))
    if faults.loss:
        lost |= uniform((faults.seed, LOSS, t), source, dest) < faults.loss
    if faults.delay:
        draws = uniform((faults.seed, DELAY, t), source, dest)
        arrival += (draws * (faults.delay + 1)).astype(np.int64)
        waiting = np.flatnonzero(~lost & (arrival > t))
        while len(waiting) and faults.absence:
            both = np.empty(len(waiting), bool)
            for round_ in np.unique(arrival[waiting]).tolist():
                now = arrival[waiting] == round_
                both[now] = present(faults, round_, source[waiting[now]])
                both[now] &= present(faults, round_, dest[waiting[now]])
            waiting = waiting[~both]
            arrival[waiting] += 1
    arrival[lost] = LOST
    return arrival


def participates(faults: Faults, t: int, ranks: Any) -> np.ndarray:
    """Return whether each rank takes part in its group in round t.

    A rank that is absent, or whose message to its group is lost or delayed, leaves the
    group for this round and keeps its value.
    """
    return arrivals(faults, t, ranks, ranks) == t


def participation(faults: Faults) -> float:
    """Return the probability that a rank takes part in its group."""
    return (1 - faults.absence) * (1 - faults.loss) / (faults.delay + 1)


def uniform(key: tuple[int, ...], *ranks: Any) -> np.ndarray:
    """Return numbers from 0 to below 1: a hash of a key and of the ranks.

    Args:
      key: Numbers that all draws share.
      *ranks: Ranks, which are the further key of each draw.
    """
    shared = 0
    for number in key:
        shared = mix_number(shared + number)
    hashed = np.full(np.shape(np.atleast_1d(ranks[0])), shared, np.uint64)
    for rank in ranks:
        hashed = mix(hashed + np.atleast_1d(rank).astype(np.uint64))
    return (hashed >> np.uint64(11)) * 2.0**-53


def mix(numbers: np.ndarray) -> np.ndarray:
    """Return hashes of 64-bit numbers: a step of SplitMix64."""
    return splitmix.mix(numbers + splitmix.GOLDEN)


def mix_number(number: int) -> int:
    """Return the hash of one number, as `mix` does."""
    return int(mix(np.array([number & MASK], np.uint64))[0])
