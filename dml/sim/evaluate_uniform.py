"""Virtual time of a schedule on a network without shared links, round by round.

`evaluate_uniform` maps the clocks of all ranks before a schedule to those after it,
by the arithmetic of running ranks (`sim.comm`, `sim.transfer`,
`wire.collectives.segments`). No link is shared, so the order of arrival does not
matter, with one exception: if only the last segment is eager, it is sent here after
segments that wait for their receives, whereas running ranks may send it simultaneously.
"""

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numba import njit

from dml.sim.networks.fabric import Rates
from dml.types import Round

ROUNDING = 1e-15  # shifts are equal if they differ by this share of a late clock


# The name must not change: Numba reads it from the cache of compiled kernels.
class State(NamedTuple):
    """Times in seconds, and numbers of segments, of every rank within a round.

    Between rounds only `clock` matters: a rank leaves a round when both ports are free.
    """

    clock: np.ndarray
    ready: np.ndarray  # time at which the next segment is posted
    sent: np.ndarray  # time from which the out port is free
    arrived: np.ndarray  # time from which the in port is free
    incoming: np.ndarray  # number of segments to receive


def evaluate_uniform(
    rounds: Iterable[Round], rates: Rates, clock: np.ndarray
) -> np.ndarray:
    """Return the clock of every rank after the rounds, from the clocks before them."""
    size = len(clock)
    ready, sent, arrived = np.zeros((3, size))
    state = State(clock.copy(), ready, sent, arrived, np.zeros(size, np.int64))
    for entry in rounds:
        repeat_round(entry, rates, state)
    return state.clock


def repeat_round(entry: Round, rates: Rates, state: State) -> None:
    """Run a round `times` times.

    A round maps clocks to clocks by maxima and sums. Once it shifts all clocks by one
    constant, it does so in every further repetition: these are computed at once.
    """
    clock, options = state.clock, (int(entry.reduces), entry.segment)
    messages = entry.source, entry.dest, entry.nbytes
    if entry.times == 1:
        return run_round(*messages, options, rates, state)
    ranks = np.zeros(len(clock), np.bool_)
    ranks[entry.source] = ranks[entry.dest] = True
    # subtracted, because rounding of late clocks would hide differences of small shifts
    origin = clock[ranks].min()
    clock[ranks] -= origin
    for remaining in reversed(range(entry.times)):
        before = clock[ranks]
        run_round(*messages, options, rates, state)
        shift = clock[ranks] - before
        if np.ptp(shift) <= ROUNDING * clock[ranks].max():
            clock[ranks] += remaining * shift.mean()
            break
    clock[ranks] += origin


@njit(cache=True)
def run_round(source, dest, nbytes, options, rates, state):
    """Send and receive the messages of a round, segment by segment."""
    reduces, segment = options
    clock, ready, sent, arrived, incoming = state
    most, least = 0, np.iinfo(np.int64).max
    for m in range(len(source)):
        s, d = source[m], dest[m]
        ready[s] = sent[s] = arrived[s] = clock[s]
        ready[d] = sent[d] = arrived[d] = clock[d]
        incoming[d] = parts(nbytes[m], segment)
        most, least = max(most, incoming[d]), min(least, incoming[d])
    k = 0
    while k < most:
        low, high = send_segment(k, source, dest, nbytes, segment, rates, state)
        for m in range(len(source)):
            s, d = source[m], dest[m]
            if k < incoming[d]:
                added = rates.gamma * part(k, nbytes[m], segment) * reduces
                least_shift, most_shift = wait(d, added, state)
                low, high = min(low, least_shift), max(high, most_shift)
                if k >= incoming[s]:
                    least_shift, most_shift = wait(s, 0.0, state)
                    low, high = min(low, least_shift), max(high, most_shift)
        k += 1
        # If a segment shifts all times by one constant, skip to the last two segments.
        if k < least - 2 and high - low <= ROUNDING * clock[dest[0]]:
            skip((least - 2 - k) * (low + high) / 2, source, dest, state)
            k = least - 2
    for m in range(len(source)):
        incoming[dest[m]] = 0


@njit(cache=True, inline="always")
def send_segment(k, source, dest, nbytes, segment, rates, state):
    """Send segment k of all messages; return the least and largest shift of a port."""
    _, ready, sent, arrived, incoming = state
    low, high = np.inf, 0.0
    for m in range(len(source)):
        s, d = source[m], dest[m]
        if k < incoming[d]:
            size = part(k, nbytes[m], segment)
            duration = rates.alpha + rates.beta * size
            departure = max(ready[s], sent[s])
            sent_before, arrived_before = sent[s], arrived[d]
            arrived[d] = max(departure, ready[d], arrived[d]) + duration
            sent[s] = departure + duration if size <= rates.eager else arrived[d]
            out_shift, in_shift = sent[s] - sent_before, arrived[d] - arrived_before
            low = min(low, out_shift, in_shift)
            high = max(high, out_shift, in_shift)
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
    """Wait until both ports of a rank are free; return the least and largest shift.

    A rank that receives posts the next segment before it waits; a rank that only sends
    posts it after it waits.
    """
    clock, ready, sent, arrived, incoming = state
    before, posted = clock[rank], ready[rank]
    clock[rank] = after = max(before, arrived[rank], sent[rank]) + added
    ready[rank] = before if incoming[rank] else after
    shift, later = after - before, ready[rank] - posted
    return min(shift, later), max(shift, later)


@njit(cache=True)
def skip(shift, source, dest, state):
    """Shift all times of the ranks of a round by one constant."""
    clock, ready, sent, arrived, incoming = state
    for m in range(len(source)):
        s, d = source[m], dest[m]
        sent[s] += shift
        arrived[d] += shift
        clock[d] += shift
        ready[d] += shift
        if incoming[s] == 0:
            clock[s] += shift
            ready[s] += shift
