"""Virtual time of a schedule on a network whose links are shared, message by message.

Rounds and a network come in, the clock of every rank goes out. Messages depart in the
order of (time, source, how many it has sent before), and take their links in it; in
between each rank runs ahead, until it waits for one that has not departed.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np
from numba import njit

from dml.sim.machine import NONE, Machine, begin, messages, programs, slots, wires
from dml.sim.networks.fabric import Network, Rates, cross
from dml.types import Round


def contend(
    rounds: Sequence[Round], network: Network, rates: Rates, clock: np.ndarray
) -> np.ndarray:
    """Return every rank's clock after the rounds, from that before them."""
    size, room = len(clock), 1024 + 4 * len(clock)
    program = programs(rounds, size)
    while True:
        moving = messages(rounds, network), begin(program, clock), slots(room)
        machine = Machine(program, *moving, wires(network), rates)
        if drive(machine):
            break
        room *= 2  # more were under way than there was room for: again, with more
    assert (machine.ranks.operation == program.starts[1:]).all()
    return machine.ranks.clock


@njit(cache=True)
def drive(machine):
    """Let messages depart until none is left; return whether there was room for all."""
    heap = [(0.0, 0, 0, 0)]
    heap.clear()
    messages, ranks, slots = machine.messages, machine.ranks, machine.slots
    for rank in range(len(ranks.clock)):
        if not advance(rank, machine, heap):
            return False
    while len(heap):
        time, source, _, slot = heappop(heap)
        m, waits = slots.message[slot], slots.size[slot] > machine.rates.eager
        if waits and ranks.met_free[source] > time:
            leave(slot, ranks.met_free[source], machine, heap)
            continue
        depart(slot, time, machine)
        if slots.posted[slot] != NONE:
            land(slot, machine)
            if not advance(messages.dest[m], machine, heap):
                return False
            if waits and not advance(source, machine, heap):
                return False
    return True


@njit(cache=True)
def advance(rank, machine, heap):
    """Let a rank run until it has to wait; return whether there was room."""
    program, ranks = machine.program, machine.ranks
    while ranks.operation[rank] < program.starts[rank + 1]:
        o = ranks.operation[rank]
        ins = parts(program.takes[o], o, machine)
        outs = parts(program.gives[o], o, machine)
        ahead = 1 if ins else 0  # a Send is over before the next one is posted
        if ranks.segment[rank] == NONE:
            ranks.segment[rank] = 0
            room = post(rank, 0, machine, heap)
            if not room or (ahead and not post(rank, 1, machine, heap)):
                return False
        k = ranks.segment[rank]
        came, sent = ranks.came[rank, k % 2], ranks.sent[rank, k % 2]
        if (k < ins and came == NONE) or (k < outs and sent == NONE):
            return True
        if k < outs:
            ranks.clock[rank] = max(ranks.clock[rank], sent)
        if k < ins:
            ranks.clock[rank] = max(ranks.clock[rank], came)
            if program.reduces[o]:
                size = part(k, program.takes[o], o, machine)
                ranks.clock[rank] += machine.rates.gamma * size
        ranks.segment[rank] += 1
        if k + 1 < max(ins, outs):
            if not post(rank, k + 1 + ahead, machine, heap):
                return False
        else:
            ranks.segment[rank] = NONE
            ranks.done[rank] += 1
            if ranks.done[rank] == program.times[o]:
                ranks.done[rank] = 0
                ranks.operation[rank] += 1
    return True


@njit(cache=True)
def parts(m, o, machine):
    """How many segments a message has; none if there is no message."""
    if m == NONE:
        return 0
    segment, nbytes = machine.program.segment[o], machine.messages.nbytes[m]
    return (nbytes + segment - 1) // segment if 0 < segment < nbytes else 1


@njit(cache=True)
def part(k, m, o, machine):
    """The bytes of its k-th segment."""
    segment, nbytes = machine.program.segment[o], machine.messages.nbytes[m]
    return min(segment, nbytes - k * segment) if segment else nbytes


@njit(cache=True)
def post(rank, k, machine, heap):
    """Post the receive and the send of segment k, where there are; say if room was."""
    program, messages, ranks, slots = machine[:4]
    o, now = ranks.operation[rank], ranks.clock[rank]
    m = program.takes[o]
    if k < parts(m, o, machine):
        ranks.came[rank, k % 2] = NONE
        slot = messages.first[m]
        if slot == NONE:
            messages.waits[m, messages.waiting[m]] = now
            messages.waiting[m] += 1
        else:
            messages.first[m] = slots.after[slot]
            meet(slot, now, machine, heap)
    m = program.gives[o]
    if k < parts(m, o, machine):
        slot = slots.free[0]
        if slot == NONE:
            return False
        slots.free[0] = slots.after[slot]
        slots.message[slot], slots.segment[slot] = m, k
        slots.size[slot] = part(k, m, o, machine)
        slots.posted[slot] = slots.head[slot] = slots.after[slot] = NONE
        slots.start[slot] = start = max(now, ranks.out_free[rank])
        ranks.sent[rank, k % 2] = NONE
        if slots.size[slot] <= machine.rates.eager:
            took = messages.alpha[m] + messages.beta[m] * slots.size[slot]
            ranks.out_free[rank] = ranks.sent[rank, k % 2] = start + took
            leave(slot, start, machine, heap)
        if messages.waiting[m]:
            posted = messages.waits[m, 0]
            messages.waits[m, 0] = messages.waits[m, 1]
            messages.waiting[m] -= 1
            meet(slot, posted, machine, heap)
        elif messages.first[m] == NONE:
            messages.first[m] = messages.last[m] = slot
        else:
            slots.after[messages.last[m]] = slot
            messages.last[m] = slot
    return True


@njit(cache=True)
def meet(slot, posted, machine, heap):
    """A segment and its receive are both posted: what waited for that goes on."""
    slots = machine.slots
    slots.posted[slot] = posted
    if slots.size[slot] > machine.rates.eager:
        leave(slot, max(slots.start[slot], posted), machine, heap)
    elif slots.head[slot] != NONE:
        land(slot, machine)


@njit(cache=True)
def leave(slot, start, machine, heap):
    """Put a segment into the order of departures."""
    rank = machine.messages.source[machine.slots.message[slot]]
    heappush(heap, (start, rank, machine.ranks.departed[rank], slot))
    machine.ranks.departed[rank] += 1


@njit(cache=True)
def depart(slot, time, machine):
    """Cross the links."""
    messages, slots, wires = machine.messages, machine.slots, machine.wires
    m, size = slots.message[slot], slots.size[slot]
    links = messages.links[messages.starts[m] : messages.starts[m + 1]]
    slots.head[slot], slots.beta[slot] = cross(
        time, size, messages.beta[m], links, wires.alpha, wires.beta, wires.free
    )


@njit(cache=True)
def land(slot, machine):
    """Come through the receiver's in port, and give the slot back."""
    messages, ranks, slots = machine.messages, machine.ranks, machine.slots
    m, size, k = slots.message[slot], slots.size[slot], slots.segment[slot] % 2
    source, dest = messages.source[m], messages.dest[m]
    start = max(slots.head[slot], slots.posted[slot], ranks.in_free[dest])
    over = start + (messages.alpha[m] + slots.beta[slot] * size)
    ranks.in_free[dest] = ranks.came[dest, k] = over
    if size > machine.rates.eager:
        ranks.sent[source, k] = ranks.met_free[source] = over
        ranks.out_free[source] = max(ranks.out_free[source], over)
    slots.after[slot] = slots.free[0]
    slots.free[0] = slot
