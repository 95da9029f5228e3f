"""Tables of a schedule for compiled code: operations, messages, routes, ranks, links.

The tables are structured arrays: compiled code counts references to every array that it
passes, so a few arrays are faster than many.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dml.sim.networks.fabric import Network, Rates
from dml.types import Round

NONE = -1  # no message, no slot; of a time: not known yet
Fields = list[tuple]


def fields(kind: type, *names: str) -> Fields:
    return [(name, kind) for name in names]


# What a rank does in a round: it gives one message and takes one, or NONE.
OPERATION = np.dtype(fields(np.int64, "gives", "takes", "reduces", "segment", "times"))

# From source to dest over links ways[begin] … ways[end - 1]. Either segments wait that
# no receive is posted for, in slots first … last, or receives do, posted then.
MESSAGE = np.dtype(
    fields(np.int64, "source", "dest", "nbytes", "begin", "end")
    + fields(np.float64, "alpha", "beta")
    + fields(np.int64, "first", "last", "waiting")
    + [("posted", np.float64, (2,))]
)

# A rank has done its operation `done` times and waits for a segment of it, NONE before
# the first. Of segment k it keeps at k mod 2 when it came and when it was sent.
# `met_free` is when the last came that had waited for its receive.
RANK = np.dtype(
    fields(np.float64, "clock", "out_free", "in_free", "met_free")
    + [("came", np.float64, (2,)), ("sent", np.float64, (2,))]
    + fields(np.int64, "operation", "end", "done", "segment", "posts")
)

# A segment under way: it can depart at start, its receive is posted, its head is at the
# in port, β is that of the narrowest place on its way up to link ways[hop], which is
# next; `after` is next in a list; `number` says how many its rank had sent before.
SLOT = np.dtype(
    fields(np.int64, "message", "segment", "nbytes", "after", "hop", "number")
    + fields(np.float64, "start", "posted", "head", "beta")
)


class Wires(NamedTuple):
    """The links of the network, and when each can take the next head."""

    alpha: np.ndarray
    beta: np.ndarray
    free: np.ndarray


class Tables(NamedTuple):
    """State of an evaluation."""

    operations: np.ndarray
    messages: np.ndarray
    ways: np.ndarray
    ranks: np.ndarray
    slots: np.ndarray
    free: np.ndarray  # the first free slot: an array of one
    wires: Wires
    rates: Rates


def build(
    rounds: Sequence[Round],
    network: Network,
    rates: Rates,
    clock: np.ndarray,
    capacity: int,
) -> Tables:
    """Lay out what is to be done from these clocks on, with so many slots."""
    operations, starts = program(rounds, len(clock))
    ranks = np.zeros(len(clock), RANK)
    ranks["clock"], ranks["segment"] = clock, NONE
    ranks["operation"], ranks["end"] = starts[:-1], starts[1:]
    slots = np.zeros(capacity, SLOT)
    slots["after"] = np.append(np.arange(1, capacity), NONE)
    free = np.zeros(1, np.int64)
    alpha, beta = (np.asarray(each, np.float64) for each in network.links())
    wires = Wires(alpha, beta, np.zeros(len(alpha)))
    return Tables(
        operations, *messages(rounds, network), ranks, slots, free, wires, rates
    )


def program(rounds: Sequence[Round], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Sort what all rounds do by rank, and merge what a rank does in one round.

    Return the operations, and where those of each rank begin.
    """
    number = np.repeat(np.arange(len(rounds)), [len(one.source) for one in rounds])
    ranks = np.concatenate([joined(rounds, "source"), joined(rounds, "dest")])
    keys = ranks * len(rounds) + np.tile(number, 2)
    found, place = np.unique(keys, return_inverse=True)
    operations = np.zeros(len(found), OPERATION)
    for name, places in zip(("gives", "takes"), np.split(place, 2), strict=True):
        operations[name] = NONE
        operations[name][places] = np.arange(len(number))
    for name in ("reduces", "segment", "times"):
        values = np.array([getattr(one, name) for one in rounds], np.int64)
        operations[name] = values[found % max(1, len(rounds))]
    return operations, np.searchsorted(found, np.arange(size + 1) * len(rounds))


def messages(
    rounds: Sequence[Round], network: Network
) -> tuple[np.ndarray, np.ndarray]:
    """Return all messages one after another, and the links that they cross."""
    source, dest = joined(rounds, "source"), joined(rounds, "dest")
    paths = network.paths(source, dest)
    table = np.zeros(len(source), MESSAGE)
    table["source"], table["dest"] = source, dest
    table["nbytes"] = joined(rounds, "nbytes")
    table["alpha"], table["beta"] = paths.alpha, paths.beta
    table["begin"], table["end"] = paths.starts[:-1], paths.starts[1:]
    table["first"] = table["last"] = NONE
    return table, np.asarray(paths.links, np.int32)


def joined(rounds: Sequence[Round], name: str) -> np.ndarray:
    parts = [getattr(one, name) for one in rounds]
    return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)
