"""Virtual time of a schedule on a network without shared links, round by round.

`evaluate_uniform` maps the clocks of all ranks before a schedule to those after it,
with the arithmetic of running ranks (`sim.comm`, `sim.transfer`,
`wire.collectives.segments`). No link is shared, so the order of arrival does not
matter, with one exception: if only the last segment is eager, it is sent here after
segments that wait for their receives; running ranks may send it at the same time.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numba import njit

from dml.sim.networks.fabric import Rates
from dml.types import Round

ROUNDING = 1e-15  # of the latest clock: equal shifts may differ by this much


class State(NamedTuple):
    """Times of every rank within a round, in seconds, and its number of segments.

    Between rounds only `clock` matters: a rank leaves a round when both ports are free.
    """

    clock: np.ndarray
    ready: np.ndarray  # the next segment is posted
    sent: np.ndarray  # the out port is free
    came: np.ndarray  # the in port is free
    takes: np.ndarray  # segments to receive


def evaluate_uniform(
    rounds: Iterable[Round], rates: Rates, clock: np.ndarray
) -> np.ndarray:
    """Return the clock of every rank after the rounds, from the clocks before them."""
    size = len(clock)
    ready, sent, came = np.zeros((3, size))
    state = State(clock.copy(), ready, sent, came, np.zeros(size, np.int64))
    for each in rounds:
        repeat(each, rates, state)
    return state.clock


def repeat(one: Round, rates: Rates, state: State) -> None:
    """Play a round `times` times, or until it shifts all its ranks by one constant.

    A round maps clocks to clocks by maxima and sums. If it shifts all clocks by one
    constant once, it does so in every repetition, from any origin.
    """
    clock, how = state.clock, (one.reduces, one.segment)
    messages = one.source, one.dest, one.nbytes
    if one.times == 1:
        return play(*messages, how, rates, state)
    ranks = np.zeros(len(clock), np.bool_)
    ranks[one.source] = ranks[one.dest] = True
    origin = clock[ranks].min()  # a small shift is lost in the last bits of a late one
    clock[ranks] -= origin
    for left in reversed(range(one.times)):
        before = clock[ranks]
        play(*messages, how, rates, state)
        shift = clock[ranks] - before
        if np.ptp(shift) <= ROUNDING * clock[ranks].max():
            clock[ranks] += left * shift.mean()
            break
    clock[ranks] += origin


@njit(cache=True)
def play(source, dest, nbytes, how, rates, state):
    """Send and receive the messages of a round, segment by segment."""
    reduces, segment = how
    clock, ready, sent, came, takes = state
    most, least = 0, np.iinfo(np.int64).max
    for m in range(len(source)):
        s, d = source[m], dest[m]
        ready[s] = sent[s] = came[s] = clock[s]
        ready[d] = sent[d] = came[d] = clock[d]
        takes[d] = parts(nbytes[m], segment)
        most, least = max(most, takes[d]), min(least, takes[d])
    k = 0
    while k < most:
        low, high = send_segment(k, source, dest, nbytes, segment, rates, state)
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
        # If a segment shifts all times by one constant, continue with the last two.
        if k < least - 2 and high - low <= ROUNDING * clock[dest[0]]:
            skip((least - 2 - k) * (low + high) / 2, source, dest, state)
            k = least - 2
    for m in range(len(source)):
        takes[dest[m]] = 0


@njit(cache=True, inline="always")
def send_segment(k, source, dest, nbytes, segment, rates, state):
    """Send segment k of all messages, with all ports as they are before it."""
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
def parts(nbytes, segment):
    """Return the number of segments of a message."""
    return (nbytes + segment - 1) // segment if 0 < segment < nbytes else 1


@njit(cache=True, inline="always")
def part(k, nbytes, segment):
    """Return the bytes of segment k."""
    return min(segment, nbytes - k * segment) if segment else nbytes


@njit(cache=True, inline="always")
def wait(rank, added, state):
    """Advance a rank to when both ports are free; return the least and largest shift.

    A rank that receives has posted the next segment before it waited, a rank that only
    sends posts the next segment after it waited.
    """
    clock, ready, sent, came, takes = state
    before, posted = clock[rank], ready[rank]
    clock[rank] = after = max(before, came[rank], sent[rank]) + added
    ready[rank] = before if takes[rank] else after
    shift, later = after - before, ready[rank] - posted
    return min(shift, later), max(shift, later)


@njit(cache=True)
def skip(shift, source, dest, state):
    """Shift all times of the ranks of a round by one constant."""
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
