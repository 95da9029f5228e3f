"""Tables of a schedule for compiled code: operations, messages, routes, ranks, links.

The tables are structured arrays, because compiled code counts references to every array
that it passes, so that a few arrays are faster than many.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dml.sim.networks.fabric import Network, Rates
from dml.types import Round

NONE = -1  # no message or no slot; for a time: not known yet
Fields = list[tuple]


def fields(dtype: type, *names: str) -> Fields:
    """Return fields of one dtype."""
    return [(name, dtype) for name in names]


# Work of a rank in a round: it sends one message and receives one, or NONE. `times` is
# the number of repetitions.
OPERATION = np.dtype(
    fields(np.int64, "sent", "received", "reduces", "segment", "times")
)

# A message from source to dest over the links route_links[begin : end]. Segments
# without a receive are a list of slots from first to last. Receives without a segment,
# at most two, are counted by `waiting`; `posted` has the times of their posts.
MESSAGE = np.dtype(
    fields(np.int64, "source", "dest", "nbytes", "begin", "end")
    + fields(np.float64, "alpha", "beta")
    + fields(np.int64, "first", "last", "waiting")
    + [("posted", np.float64, (2,))]
)

# A rank has repeated its operation `done` times, and waits for segment `segment`, NONE
# before the first. For segment k, arrived[k % 2] and sent[k % 2] are the times at which
# it was received and sent. `posts` counts sends. `rendezvous_free` is the end of the
# last send that waited for its receive. With `memory` it receives several at once.
RANK = np.dtype(
    fields(np.float64, "clock", "out_free", "in_free", "rendezvous_free")
    + [("arrived", np.float64, (2,)), ("sent", np.float64, (2,))]
    + fields(np.int64, "operation", "end", "done", "segment", "posts")
    + fields(np.bool_, "memory")
)

# A segment in transit: `start` is its earliest departure, `posted` the time of its
# receive, `head` the arrival of its head at the in port, `beta` the largest β of its
# port and links so far, `hop` the index of its next link in `route_links`, `after` the
# next slot of a list, `number` the number of earlier sends of the source.
SLOT = np.dtype(
    fields(np.int64, "message", "segment", "nbytes", "after", "hop", "number")
    + fields(np.float64, "start", "posted", "head", "beta")
)

# A departure, an entry of a link or an arrival of the segment in a slot. Events have
# the order of (time, source, number).
EVENT = np.dtype(
    fields(np.float64, "time") + fields(np.int64, "source", "number", "slot")
)


class LinkTable(NamedTuple):
    """The links of the network."""

    alpha: np.ndarray  # seconds until the head has left
    beta: np.ndarray  # seconds per byte
    free: np.ndarray  # time in s from which the next head may enter


class Tables(NamedTuple):
    """State of an evaluation."""

    operations: np.ndarray  # OPERATION, by rank and round
    messages: np.ndarray  # MESSAGE, by round
    route_links: np.ndarray  # links of all messages, in order of crossing
    ranks: np.ndarray  # RANK
    slots: np.ndarray  # SLOT
    free: np.ndarray  # index of the first free slot: an array of length 1
    events: np.ndarray  # EVENT, a heap
    waiting: np.ndarray  # number of events: an array of length 1
    links: LinkTable
    rates: Rates


def build(
    rounds: Sequence[Round],
    network: Network,
    rates: Rates,
    clock: np.ndarray,
    capacity: int,
) -> Tables:
    """Return the tables of an evaluation.

    Args:
      rounds: The schedule.
      network: The network.
      rates: Rates of ports and reductions.
      clock: Clock of each rank before the schedule, in seconds.
      capacity: Number of slots, the largest number of messages in transit.
    """
    operations, starts = program(rounds, len(clock))
    ranks = np.zeros(len(clock), RANK)
    ranks["clock"], ranks["segment"] = clock, NONE
    ranks["operation"], ranks["end"] = starts[:-1], starts[1:]
    ranks["memory"][getattr(network, "memory", slice(0))] = True
    slots = np.zeros(capacity, SLOT)
    slots["after"] = np.append(np.arange(1, capacity), NONE)
    free = np.zeros(1, np.int64)
    alpha, beta = (np.asarray(column, np.float64) for column in network.links())
    links = LinkTable(alpha, beta, np.zeros(len(alpha)))
    return Tables(
        operations,
        *messages(rounds, network),
        ranks,
        slots,
        free,
        np.zeros(capacity, EVENT),
        np.zeros(1, np.int64),
        links,
        rates,
    )


def program(rounds: Sequence[Round], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the operations, by rank and round, and the first operation of each rank.

    The send and the receive of a rank in one round are one operation.
    """
    lengths = [len(entry.source) for entry in rounds]
    index = np.repeat(np.arange(len(rounds)), lengths)  # round of each message
    ranks = np.concatenate([concatenate(rounds, "source"), concatenate(rounds, "dest")])
    keys, place = np.unique(
        ranks * len(rounds) + np.tile(index, 2), return_inverse=True
    )
    operations = np.zeros(len(keys), OPERATION)
    for name, places in zip(("sent", "received"), np.split(place, 2), strict=True):
        operations[name] = NONE
        operations[name][places] = np.arange(len(index))
    for name in ("reduces", "segment", "times"):
        values = np.array([getattr(entry, name) for entry in rounds], np.int64)
        operations[name] = values[keys % max(1, len(rounds))]
    return operations, np.searchsorted(keys, np.arange(size + 1) * len(rounds))


def messages(
    rounds: Sequence[Round], network: Network
) -> tuple[np.ndarray, np.ndarray]:
    """Return the messages of all rounds in order, and the links that they cross."""
    source, dest = concatenate(rounds, "source"), concatenate(rounds, "dest")
    paths = network.paths(source, dest)
    table = np.zeros(len(source), MESSAGE)
    table["source"], table["dest"] = source, dest
    table["nbytes"] = concatenate(rounds, "nbytes")
    table["alpha"], table["beta"] = paths.alpha, paths.beta
    table["begin"], table["end"] = paths.starts[:-1], paths.starts[1:]
    table["first"] = table["last"] = NONE
    return table, np.asarray(paths.links, np.int32)


def concatenate(rounds: Sequence[Round], name: str) -> np.ndarray:
    """Return a field of all rounds as one array."""
    parts = [getattr(entry, name) for entry in rounds]
    return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)
