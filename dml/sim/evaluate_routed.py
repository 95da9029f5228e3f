"""Virtual time of a schedule on a network whose links are shared, message by message.

The clocks are those of running ranks, with the arithmetic of `sim.routed`. Events
(departure of a message, next link, arrival) are processed in the order of (time,
source, number of messages that the source has sent before). Between events each rank
advances until it waits for a message that has not arrived.
"""

from collections.abc import Sequence
from heapq import heappop, heappush

import numpy as np
from numba import njit

from dml.sim.evaluate_tables import NONE, build
from dml.sim.evaluate_uniform import part, parts
from dml.sim.networks.fabric import Network, Rates
from dml.types import Round


def evaluate_routed(
    rounds: Sequence[Round], network: Network, rates: Rates, clock: np.ndarray
) -> np.ndarray:
    """Return every rank's clock after the rounds, from that before them."""
    capacity = 1024 + 4 * len(clock)
    while True:
        machine = build(rounds, network, rates, clock, capacity)
        if drive(machine):
            break
        capacity *= 4  # too many messages in transit: start again with more slots
    ranks = machine.ranks
    assert (ranks["operation"] == ranks["end"]).all()
    return ranks["clock"].copy()


@njit(cache=True)
def drive(machine):
    """Process all messages; return False if the slots did not suffice."""
    heap = [(0.0, 0, 0, 0)]
    heap.clear()
    ranks, slots, eager = machine.ranks, machine.slots, machine.rates.eager
    for rank in range(len(ranks)):
        if not advance(rank, machine, heap):
            return False
    while len(heap):
        time, source, _, slot = heappop(heap)
        one, waits = slots[slot], slots[slot].nbytes > eager
        if one.head == NONE:
            if one.hop == NONE and waits and ranks[source].met_free > time:
                leave(slot, ranks[source].met_free, machine, heap)
                continue
            if not cross(slot, time, machine, heap):
                continue
            one.head = time
        if one.posted > time:
            leave(slot, one.posted, machine, heap)
        elif one.posted != NONE:
            dest = land(slot, machine)
            # The order of the two matters if both post next at the same time.
            if waits and not advance(source, machine, heap):
                return False
            if not advance(dest, machine, heap):
                return False
    return True


@njit(cache=True)
def advance(rank, machine, heap):
    """Advance a rank until it waits; return False if the slots did not suffice."""
    me = machine.ranks[rank]
    while me.operation < me.end:
        operation = machine.operations[me.operation]
        segment = operation.segment
        ins, outs, nbytes = 0, 0, 0
        if operation.takes != NONE:
            nbytes = machine.messages[operation.takes].nbytes
            ins = parts(nbytes, segment)
        if operation.gives != NONE:
            outs = parts(machine.messages[operation.gives].nbytes, segment)
        ahead = 1 if ins else 0  # a Send is over before the next one is posted
        if me.segment == NONE:
            me.segment = 0
            for k in range(1 + ahead):
                if not post(rank, k, k < ins, k < outs, machine, heap):
                    return False
        k = me.segment
        takes, gives = k < ins, k < outs
        if (takes and me.came[k % 2] == NONE) or (gives and me.sent[k % 2] == NONE):
            return True
        if gives:
            me.clock = max(me.clock, me.sent[k % 2])
        if takes:
            me.clock = max(me.clock, me.came[k % 2])
            if operation.reduces:
                me.clock += machine.rates.gamma * part(k, nbytes, segment)
        me.segment = k = k + 1
        if k < max(ins, outs):
            k += ahead
            if not post(rank, k, k < ins, k < outs, machine, heap):
                return False
        else:
            me.segment = NONE
            me.done += 1
            if me.done == operation.times:
                me.done = 0
                me.operation += 1
    return True


@njit(cache=True)
def post(rank, k, takes, gives, machine, heap):
    """Post the receive and the send of segment k; return False without a free slot."""
    me, slots = machine.ranks[rank], machine.slots
    operation = machine.operations[me.operation]
    if takes:
        me.came[k % 2] = NONE
        message = machine.messages[operation.takes]
        slot = message.first
        if slot == NONE:
            message.posted[message.waiting] = me.clock
            message.waiting += 1
        else:
            message.first = slots[slot].after
            meet(slot, me.clock, machine, heap)
    if gives:
        slot = machine.free[0]
        if slot == NONE:
            return False
        one, message = slots[slot], machine.messages[operation.gives]
        machine.free[0] = one.after
        one.message, one.segment = operation.gives, k
        one.nbytes = part(k, message.nbytes, operation.segment)
        one.posted = one.head = one.after = one.hop = NONE
        one.start = max(me.clock, me.out_free)
        one.number = me.posts
        me.posts += 1
        me.sent[k % 2] = NONE
        if one.nbytes <= machine.rates.eager:
            over = one.start + (message.alpha + message.beta * one.nbytes)
            me.out_free = me.sent[k % 2] = over
            leave(slot, one.start, machine, heap)
        if message.waiting:
            posted = message.posted[0]
            message.posted[0] = message.posted[1]
            message.waiting -= 1
            meet(slot, posted, machine, heap)
        elif message.first == NONE:
            message.first = message.last = slot
        else:
            slots[message.last].after = slot
            message.last = slot
    return True


@njit(cache=True)
def meet(slot, posted, machine, heap):
    """Schedule a segment whose receive is posted."""
    one = machine.slots[slot]
    one.posted = posted
    if one.nbytes > machine.rates.eager:
        leave(slot, max(one.start, posted), machine, heap)
    elif one.head != NONE:
        leave(slot, max(one.head, posted), machine, heap)


@njit(cache=True)
def leave(slot, start, machine, heap):
    """Insert a segment into the queue of departures."""
    one = machine.slots[slot]
    heappush(heap, (start, machine.messages[one.message].source, one.number, slot))


@njit(cache=True)
def cross(slot, time, machine, heap):
    """Depart or take the next link; return whether the in port is reached."""
    one, wires = machine.slots[slot], machine.wires
    message = machine.messages[one.message]
    if one.hop == NONE:
        one.hop, one.beta = message.begin, message.beta
        if one.nbytes > machine.rates.eager:
            sender = machine.ranks[message.source]
            sender.met_free = time + (message.alpha + message.beta * one.nbytes)
    if one.hop == message.end:
        return True
    link = machine.ways[one.hop]
    one.hop += 1
    one.beta = max(one.beta, wires.beta[link])
    time = max(time, wires.free[link])
    wires.free[link] = time + one.nbytes * wires.beta[link]
    leave(slot, time + wires.alpha[link], machine, heap)
    return False


@njit(cache=True)
def land(slot, machine):
    """Pass the in port and free the slot; return the receiving rank."""
    one = machine.slots[slot]
    message, k = machine.messages[one.message], one.segment % 2
    receiver, sender = machine.ranks[message.dest], machine.ranks[message.source]
    start = max(one.head, one.posted, receiver.in_free)
    over = start + (message.alpha + one.beta * one.nbytes)
    receiver.in_free = receiver.came[k] = over
    if one.nbytes > machine.rates.eager:
        sender.sent[k] = over
        sender.met_free = max(sender.met_free, over)
    one.after = machine.free[0]
    machine.free[0] = slot
    return message.dest
