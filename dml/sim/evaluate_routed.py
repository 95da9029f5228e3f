"""Virtual time of a schedule on a network whose links are shared, message by message.

The clocks equal those of running ranks, by the arithmetic of `sim.routed`. Events
(departure of a message, entry of a link, arrival) are processed in the order of (time,
source, number of messages that the source sent before). Between events each rank
advances until it waits for a message that has not arrived. A message is a segment of
one entry of the table `messages`; while it is in transit, it occupies a slot.
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


@njit(cache=True)
def process_messages(tables):
    """Process all messages; return False if there is no free slot."""
    heap = [(0.0, 0, 0, 0)]
    heap.clear()
    ranks, slots, eager = tables.ranks, tables.slots, tables.rates.eager
    for rank in range(len(ranks)):
        if not advance(rank, tables, heap):
            return False
    while len(heap):
        time, source, _, slot = heappop(heap)
        state, waits = slots[slot], slots[slot].nbytes > eager
        if state.head == NONE:
            if state.hop == NONE and waits and ranks[source].rendezvous_free > time:
                schedule(slot, ranks[source].rendezvous_free, tables, heap)
                continue
            if not take_link(slot, time, tables, heap):
                continue
            state.head = time
        if state.posted > time:
            schedule(slot, state.posted, tables, heap)
        elif state.posted != NONE:
            dest = arrive(slot, tables)
            # order matters: both ranks may post their next messages at the same time
            if waits and not advance(source, tables, heap):
                return False
            if not advance(dest, tables, heap):
                return False
    return True


@njit(cache=True)
def advance(rank, tables, heap):
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
                if not post(rank, k, k < segments_in, k < segments_out, tables, heap):
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
            if not post(rank, k, k < segments_in, k < segments_out, tables, heap):
                return False
        else:
            rank_state.segment = NONE
            rank_state.done += 1
            if rank_state.done == operation.times:
                rank_state.done = 0
                rank_state.operation += 1
    return True


@njit(cache=True)
def post(rank, k, receives, sends, tables, heap):
    """Post the receive and the send of segment k; return False if no slot is free.

    Args:
      rank: Rank that posts.
      k: Index of the segment.
      receives: Whether there is a segment k to receive.
      sends: Whether there is a segment k to send.
      tables: State of the evaluation.
      heap: Events.
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
            match(slot, rank_state.clock, tables, heap)
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
            schedule(slot, state.start, tables, heap)
        if message.waiting:
            posted = message.posted[0]
            message.posted[0] = message.posted[1]
            message.waiting -= 1
            match(slot, posted, tables, heap)
        elif message.first == NONE:
            message.first = message.last = slot
        else:
            slots[message.last].after = slot
            message.last = slot
    return True


@njit(cache=True)
def match(slot, posted, tables, heap):
    """Match a segment with a receive that was posted at this time."""
    state = tables.slots[slot]
    state.posted = posted
    if state.nbytes > tables.rates.eager:
        schedule(slot, max(state.start, posted), tables, heap)
    elif state.head != NONE:
        schedule(slot, max(state.head, posted), tables, heap)


@njit(cache=True)
def schedule(slot, start, tables, heap):
    """Add the next event of a segment."""
    state = tables.slots[slot]
    heappush(heap, (start, tables.messages[state.message].source, state.number, slot))


@njit(cache=True)
def take_link(slot, time, tables, heap):
    """Depart or take the next link; return whether the in port is reached."""
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
        return True
    link = tables.route_links[state.hop]
    state.hop += 1
    state.beta = max(state.beta, links.beta[link])
    time = max(time, links.free[link])
    links.free[link] = time + state.nbytes * links.beta[link]
    schedule(slot, time + links.alpha[link], tables, heap)
    return False


@njit(cache=True)
def arrive(slot, tables):
    """Pass the in port and free the slot; return the receiving rank."""
    state = tables.slots[slot]
    message, k = tables.messages[state.message], state.segment % 2
    receiver, sender = tables.ranks[message.dest], tables.ranks[message.source]
    start = max(state.head, state.posted, receiver.in_free)
    end = start + (message.alpha + state.beta * state.nbytes)
    receiver.in_free = receiver.arrived[k] = end
    if state.nbytes > tables.rates.eager:
        sender.sent[k] = end
        sender.rendezvous_free = max(sender.rendezvous_free, end)
    state.after = tables.free[0]
    tables.free[0] = slot
    return message.dest
