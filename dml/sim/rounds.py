"""Virtual time of a schedule where all ranks are equally far: round after round.

A round and the clocks before it come in, the clocks after it go out: those of the
running world, by the arithmetic of `sim.comm`, `sim.transfer` and `wire.messages.lane`.
In a round nothing depends on who comes first, but where only the last segment is eager:
here it leaves after those that wait for their receives, there it may go beside them.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numba import njit

from dml.sim.networks.fabric import Rates
from dml.types import Round

ROUNDING = 1e-15  # of the latest clock: by how much shifts differ that are the same


class State(NamedTuple):
    """What every rank knows in a round: seconds, and a count.

    Between rounds only the clocks matter: whoever ends one has waited for both ports.
    """

    clock: np.ndarray
    ready: np.ndarray  # when the segment is posted
    sent: np.ndarray  # when the out port is free
    came: np.ndarray  # when the in port is free
    takes: np.ndarray  # segments to receive


def follow(rounds: Iterable[Round], rates: Rates, clock: np.ndarray) -> np.ndarray:
    """Return every rank's clock after the rounds, from that before them."""
    size = len(clock)
    ready, sent, came = np.zeros((3, size))
    state = State(clock.copy(), ready, sent, came, np.zeros(size, np.int64))
    for one in rounds:
        repeat(one, rates, state)
    return state.clock


def repeat(one: Round, rates: Rates, state: State) -> None:
    """Play a round as often as it says, or until all its ranks only shift.

    It maps clocks to clocks by max and plus: what has shifted them all by one constant
    does so for ever, and does so from any origin.
    """
    clock, how = state.clock, (one.reduces, one.segment)
    messages = one.source, one.dest, one.nbytes
    if one.times == 1:
        return play(*messages, how, rates, state)
    ranks = np.zeros(len(clock), np.bool_)
    ranks[one.source] = ranks[one.dest] = True
    origin = clock[ranks].min()  # a small shift is lost in the last bits of a late one
    for times in state[:4]:
        times[ranks] -= origin
    for left in reversed(range(one.times)):
        before = clock[ranks]
        play(*messages, how, rates, state)
        shift = clock[ranks] - before
        if np.ptp(shift) <= ROUNDING * clock[ranks].max():
            clock[ranks] += left * shift.mean()
            break
    for times in state[:4]:
        times[ranks] += origin


@njit(cache=True)
def play(source, dest, nbytes, how, rates, state):
    """Let ranks send and receive a round's messages, segment by segment."""
    reduces, segment = how
    clock, ready, _, _, takes = state
    most, least = 0, np.iinfo(np.int64).max
    for m in range(len(source)):
        s, d = source[m], dest[m]
        ready[s], ready[d] = clock[s], clock[d]
        takes[d] = 1
        if 0 < segment < nbytes[m]:
            takes[d] = (nbytes[m] + segment - 1) // segment
        most, least = max(most, takes[d]), min(least, takes[d])
    k = 0
    while k < most:
        low, high = fly(k, source, dest, nbytes, segment, rates, state)
        for m in range(len(source)):
            s, d = source[m], dest[m]
            if k < takes[d]:
                added = rates.gamma * part(k, nbytes[m], segment) if reduces else 0.0
                least_shift, most_shift = wait(d, added, state)
                low, high = min(low, least_shift), max(high, most_shift)
                if k >= takes[s]:
                    least_shift, most_shift = wait(s, 0.0, state)
                    low, high = min(low, least_shift), max(high, most_shift)
        k += 1
        # As with rounds: when all that a segment changes shifts, skip to the last two.
        if k < least - 2 and high - low <= ROUNDING * clock[dest[0]]:
            skip((least - 2 - k) * (low + high) / 2, source, dest, state)
            k = least - 2
    for m in range(len(source)):
        takes[dest[m]] = 0


@njit(cache=True, inline="always")
def fly(k, source, dest, nbytes, segment, rates, state):
    """Send the k-th segments, all as of before any of them has come."""
    _, ready, sent, came, takes = state
    low, high = np.inf, 0.0
    for m in range(len(source)):
        s, d = source[m], dest[m]
        if k < takes[d]:
            size = part(k, nbytes[m], segment)
            took = rates.alpha + rates.beta * size
            leaves, before, earlier = max(ready[s], sent[s]), sent[s], came[d]
            came[d] = max(leaves, ready[d], came[d]) + took
            sent[s] = leaves + took if size <= rates.eager else came[d]
            low = min(low, sent[s] - before, came[d] - earlier)
            high = max(high, sent[s] - before, came[d] - earlier)
    return low, high


@njit(cache=True, inline="always")
def part(k, nbytes, segment):
    """The bytes of the k-th segment."""
    return min(segment, nbytes - k * segment) if segment else nbytes


@njit(cache=True, inline="always")
def wait(rank, added, state):
    """Let a rank go on when both ports are done; return how its times have shifted.

    What it exchanges next was posted before, as of its clock until now; but a rank that
    only sends does so when it comes back.
    """
    clock, ready, sent, came, takes = state
    before, posted = clock[rank], ready[rank]
    clock[rank] = after = max(before, came[rank], sent[rank]) + added
    ready[rank] = before if takes[rank] else after
    shift, later = after - before, ready[rank] - posted
    return min(shift, later), max(shift, later)


@njit(cache=True)
def skip(shift, source, dest, state):
    """Let all ranks of a round do for so long what they have just done."""
    clock, ready, sent, came, takes = state
    for m in range(len(source)):
        s, d = source[m], dest[m]
        sent[s] += shift
        came[d] += shift
        clock[d] += shift
        ready[d] += shift
        if takes[s] == 0:
            clock[s] += shift
            ready[s] += shift
