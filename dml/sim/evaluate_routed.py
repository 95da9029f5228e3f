"""Virtual time of a schedule on a network whose links are shared, message by message.

The clocks equal those of running ranks, by the arithmetic of `sim.routed`. Events
(departure of a message, entry of a link, arrival) are processed in the order of (time,
source, number of messages that the source sent before). Between events each rank
advances until it waits for a message that has not arrived. A message is a segment of
one entry of the table `messages`; while it is in transit, it occupies a slot.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numba import njit

from dml.sim.evaluate_tables import NONE, build
from dml.sim.evaluate_uniform import part, parts
from dml.sim.networks.fabric import Network, Rates
from dml.types import Round

# No function allocates memory. Without counts of references an evaluation takes half of
# the time.
compiled = partial(njit, cache=True, _nrt=False)


def evaluate_routed(
    rounds: Sequence[Round], network: Network, rates: Rates, clock: np.ndarray
) -> np.ndarray:
    """Return the clock of every rank after the rounds, from the clocks before them."""
    capacity = 1024 + 4 * len(clock)
    while True:
        tables = build(rounds, network, rates, clock, capacity)
        if process_messages(tables):
            break
        capacity *= 4  # too many messages in transit: start again with more slots
    ranks = tables.ranks
    assert (ranks["operation"] == ranks["end"]).all()
    return ranks["clock"].copy()


@compiled()
def process_messages(tables):
    """Process all messages; return False if there is no free slot."""
    ranks, slots, eager = tables.ranks, tables.slots, tables.rates.eager
    for rank in range(len(ranks)):
        if not advance(rank, tables):
            return False
    events, waiting = tables.events, tables.waiting
    while waiting[0]:
        time, source, slot = events[0].time, events[0].source, events[0].slot
        state, waits = slots[slot], slots[slot].nbytes > eager
        if state.head == NONE:
            if state.hop == NONE and waits and ranks[source].rendezvous_free > time:
                delay(ranks[source].rendezvous_free, events, waiting)
                continue
            later = take_link(slot, time, tables)
            if later != NONE:
                delay(later, events, waiting)
                continue
            state.head = time
        if state.posted > time:
            delay(state.posted, events, waiting)
            continue
        pop(events, waiting)
        if state.posted != NONE:
            dest = arrive(slot, tables)
            # order matters: both ranks may post their next messages at the same time
            if waits and not advance(source, tables):
                return False
            if not advance(dest, tables):
                return False
    return True


@compiled()
def advance(rank, tables):
    """Advance a rank until it waits or ends; return False if there is no free slot."""
    rank_state = tables.ranks[rank]
    while rank_state.operation < rank_state.end:
        operation = tables.operations[rank_state.operation]
        segment = operation.segment
        segments_in, segments_out, nbytes = 0, 0, 0
        if operation.received != NONE:
            nbytes = tables.messages[operation.received].nbytes
            segments_in = parts(nbytes, segment)
        if operation.sent != NONE:
            segments_out = parts(tables.messages[operation.sent].nbytes, segment)
        # a receive is posted one segment ahead; a Send ends before the next is posted
        ahead = 1 if segments_in else 0
        if rank_state.segment == NONE:
            rank_state.segment = 0
            for k in range(1 + ahead):
                if not post(rank, k, k < segments_in, k < segments_out, tables):
                    return False
        k = rank_state.segment
        receives, sends = k < segments_in, k < segments_out
        if (receives and rank_state.arrived[k % 2] == NONE) or (
            sends and rank_state.sent[k % 2] == NONE
        ):
            return True
        if sends:
            rank_state.clock = max(rank_state.clock, rank_state.sent[k % 2])
        if receives:
            rank_state.clock = max(rank_state.clock, rank_state.arrived[k % 2])
            if operation.reduces:
                added = tables.rates.gamma * part(k, nbytes, segment)
                rank_state.clock += added * operation.reduces
        rank_state.segment = k = k + 1
        if k < max(segments_in, segments_out):
            k += ahead
            if not post(rank, k, k < segments_in, k < segments_out, tables):
                return False
        else:
            rank_state.segment = NONE
            rank_state.done += 1
            if rank_state.done == operation.times:
                rank_state.done = 0
                rank_state.operation += 1
    return True


@compiled()
def post(rank, k, receives, sends, tables):
    """Post the receive and the send of segment k; return False if no slot is free.

    Args:
      rank: Rank that posts.
      k: Index of the segment.
      receives: Whether there is a segment k to receive.
      sends: Whether there is a segment k to send.
      tables: State of the evaluation.
    """
    rank_state, slots = tables.ranks[rank], tables.slots
    operation = tables.operations[rank_state.operation]
    if receives:
        rank_state.arrived[k % 2] = NONE
        message = tables.messages[operation.received]
        slot = message.first
        if slot == NONE:
            message.posted[message.waiting] = rank_state.clock
            message.waiting += 1
        else:
            message.first = slots[slot].after
            match(slot, rank_state.clock, tables)
    if sends:
        slot = tables.free[0]
        if slot == NONE:
            return False
        state, message = slots[slot], tables.messages[operation.sent]
        tables.free[0] = state.after
        state.message, state.segment = operation.sent, k
        state.nbytes = part(k, message.nbytes, operation.segment)
        state.posted = state.head = state.after = state.hop = NONE
        state.start = max(rank_state.clock, rank_state.out_free)
        state.number = rank_state.posts
        rank_state.posts += 1
        rank_state.sent[k % 2] = NONE
        if state.nbytes <= tables.rates.eager:
            end = state.start + (message.alpha + message.beta * state.nbytes)
            rank_state.out_free = rank_state.sent[k % 2] = end
            schedule(slot, state.start, tables)
        if message.waiting:
            posted = message.posted[0]
            message.posted[0] = message.posted[1]
            message.waiting -= 1
            match(slot, posted, tables)
        elif message.first == NONE:
            message.first = message.last = slot
        else:
            slots[message.last].after = slot
            message.last = slot
    return True


@compiled()
def match(slot, posted, tables):
    """Match a segment with a receive that was posted at this time."""
    state = tables.slots[slot]
    state.posted = posted
    if state.nbytes > tables.rates.eager:
        schedule(slot, max(state.start, posted), tables)
    elif state.head != NONE:
        schedule(slot, max(state.head, posted), tables)


@compiled()
def schedule(slot, start, tables):
    """Add the next event of a segment."""
    state = tables.slots[slot]
    push(tables, start, tables.messages[state.message].source, state.number, slot)


@compiled()
def push(tables, time, source, number, slot):
    """Add an event to the heap, whose root is the earliest one.

    The children of place k are the places 4k + 1 … 4k + 4. A slot has at most one
    event, so that there is a place for each.
    """
    events, waiting = tables.events, tables.waiting
    place = waiting[0]
    waiting[0] += 1
    while place:
        above = events[(place - 1) // 4]
        if not before(time, source, number, above):
            break
        copy(above, events[place])
        place = (place - 1) // 4
    event = events[place]
    event.time, event.source, event.number, event.slot = time, source, number, slot


@compiled()
def pop(events, waiting):
    """Delete the earliest event."""
    waiting[0] -= 1
    last = events[waiting[0]]
    sink(last.time, last.source, last.number, last.slot, events, waiting[0])


@compiled()
def delay(time, events, waiting):
    """Set the time of the earliest event, which may then be another one."""
    first = events[0]
    sink(time, first.source, first.number, first.slot, events, waiting[0])


@compiled()
def sink(time, source, number, slot, events, count):
    """Replace the root of a heap of `count` events."""
    place = 0
    while 4 * place + 1 < count:
        least = 4 * place + 1
        for child in range(least + 1, min(least + 4, count)):
            event = events[child]
            if before(event.time, event.source, event.number, events[least]):
                least = child
        below = events[least]
        if before(time, source, number, below):
            break
        copy(below, events[place])
        place = least
    event = events[place]
    event.time, event.source, event.number, event.slot = time, source, number, slot


@njit(cache=True, inline="always")
def before(time, source, number, event):
    """Return whether an event with these keys is earlier than another one."""
    if time != event.time:
        return time < event.time
    if source != event.source:
        return source < event.source
    return number < event.number


@njit(cache=True, inline="always")
def copy(event, place):
    """Copy an event."""
    place.time, place.source = event.time, event.source
    place.number, place.slot = event.number, event.slot


@compiled()
def take_link(slot, time, tables):
    """Depart or take the next link; return the time after it, NONE at the in port."""
    state, links = tables.slots[slot], tables.links
    message = tables.messages[state.message]
    if state.hop == NONE:
        state.hop, state.beta = message.begin, message.beta
        if state.nbytes > tables.rates.eager:
            sender = tables.ranks[message.source]
            sender.rendezvous_free = time + (
                message.alpha + message.beta * state.nbytes
            )
    if state.hop == message.end:
        return NONE
    link = tables.route_links[state.hop]
    state.hop += 1
    state.beta = max(state.beta, links.beta[link])
    time = max(time, links.free[link])
    links.free[link] = time + state.nbytes * links.beta[link]
    return time + links.alpha[link]


@compiled()
def arrive(slot, tables):
    """Pass the in port and free the slot; return the receiving rank."""
    state = tables.slots[slot]
    message, k = tables.messages[state.message], state.segment % 2
    receiver, sender = tables.ranks[message.dest], tables.ranks[message.source]
    duration = message.alpha + state.beta * state.nbytes
    if receiver.memory:
        end = max(state.head + duration, state.posted)
    else:
        end = max(state.head, state.posted, receiver.in_free) + duration
        receiver.in_free = end
    receiver.arrived[k] = end
    if state.nbytes > tables.rates.eager:
        sender.sent[k] = end
        sender.rendezvous_free = max(sender.rendezvous_free, end)
    state.after = tables.free[0]
    tables.free[0] = slot
    return message.dest
