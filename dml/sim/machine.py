"""All that the ranks of a schedule do and know, laid flat for compiled code.

Rounds and a network come in; operations by rank, messages with their ways, and what
ranks and links are doing, go out.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dml.sim.networks.fabric import Network, Rates
from dml.types import Round

NONE = -1  # no message, no slot; of a time: not known yet


class Program(NamedTuple):
    """What every rank does: operation o gives one message and takes one, or NONE."""

    starts: np.ndarray  # rank r does operations starts[r] … starts[r + 1] - 1
    gives: np.ndarray
    takes: np.ndarray
    segment: np.ndarray  # bytes
    reduces: np.ndarray
    times: np.ndarray  # that it is repeated


class Messages(NamedTuple):
    """All messages of all rounds, and those of their segments that wait to be taken."""

    source: np.ndarray
    dest: np.ndarray
    nbytes: np.ndarray
    alpha: np.ndarray
    beta: np.ndarray
    starts: np.ndarray  # message m crosses links[starts[m]] … links[starts[m + 1] - 1]
    links: np.ndarray
    first: np.ndarray  # slots of segments that no receive is posted for, in order
    last: np.ndarray
    waits: (
        np.ndarray
    )  # when receives were posted that no segment is there for, in order
    waiting: np.ndarray  # how many of them


class Ranks(NamedTuple):
    """Where every rank is in its program."""

    clock: np.ndarray
    out_free: np.ndarray
    in_free: np.ndarray
    met_free: np.ndarray  # when what waited for its receive has come
    came: np.ndarray  # when segment k has come, at k mod 2
    sent: np.ndarray  # when it has left, likewise
    operation: np.ndarray
    done: np.ndarray  # times that the operation has been done
    segment: np.ndarray  # that is waited for; NONE before the first
    departed: np.ndarray  # messages so far


class Slots(NamedTuple):
    """Segments under way."""

    message: np.ndarray
    segment: np.ndarray
    size: np.ndarray  # bytes
    start: np.ndarray  # when it could depart
    posted: np.ndarray  # when its receive was
    head: np.ndarray  # when its head is at the in port
    beta: np.ndarray  # of the narrowest place on its way
    after: np.ndarray  # the next slot of a list
    free: np.ndarray  # the first free one: an array of one


class Wires(NamedTuple):
    """The links of the network, and when each can take the next head."""

    alpha: np.ndarray
    beta: np.ndarray
    free: np.ndarray


class Machine(NamedTuple):
    """All that a step changes or needs."""

    program: Program
    messages: Messages
    ranks: Ranks
    slots: Slots
    wires: Wires
    rates: Rates


def programs(rounds: Sequence[Round], size: int) -> Program:
    """Sort what all rounds do by rank, and merge what a rank does in one round."""
    number = np.repeat(np.arange(len(rounds)), [len(one.source) for one in rounds])
    ranks = np.concatenate([joined(rounds, "source"), joined(rounds, "dest")])
    keys = ranks * len(rounds) + np.tile(number, 2)
    found, operation = np.unique(keys, return_inverse=True)
    gives, takes = np.full((2, len(found)), NONE)
    gives[operation[: len(number)]] = takes[operation[len(number) :]] = np.arange(
        len(number)
    )
    starts = np.searchsorted(found, np.arange(size + 1) * len(rounds))
    how = np.array([one[3:] for one in rounds], np.int64).reshape(-1, 3)
    reduces, segment, times = how[found % max(1, len(rounds))].T.copy()
    return Program(starts, gives, takes, segment, reduces, times)


def messages(rounds: Sequence[Round], network: Network) -> Messages:
    """Lay all messages and their ways one after another."""
    source, dest = joined(rounds, "source"), joined(rounds, "dest")
    alpha, beta, starts, links = network.paths(source, dest)
    count = len(source)
    return Messages(
        source,
        dest,
        joined(rounds, "nbytes"),
        np.asarray(alpha, np.float64),
        np.asarray(beta, np.float64),
        np.asarray(starts, np.int64),
        np.asarray(links, np.int32),
        np.full(count, NONE),
        np.full(count, NONE),
        np.zeros((count, 2)),
        np.zeros(count, np.int64),
    )


def joined(rounds: Sequence[Round], name: str) -> np.ndarray:
    parts = [getattr(one, name) for one in rounds]
    return np.concatenate([np.zeros(0, np.int64), *parts]).astype(np.int64)


def begin(program: Program, clock: np.ndarray) -> Ranks:
    size = len(clock)
    out_free, in_free, met_free = np.zeros((3, size))
    came, sent = np.zeros((2, size, 2))
    done, departed = np.zeros((2, size), np.int64)
    return Ranks(
        clock.copy(),
        out_free,
        in_free,
        met_free,
        came,
        sent,
        program.starts[:-1].copy(),
        done,
        np.full(size, NONE),
        departed,
    )


def slots(room: int) -> Slots:
    message, segment, size = np.zeros((3, room), np.int64)
    start, posted, head, beta = np.zeros((4, room))
    after = np.append(np.arange(1, room), NONE)
    free = np.zeros(1, np.int64)
    return Slots(message, segment, size, start, posted, head, beta, after, free)


def wires(network: Network) -> Wires:
    links = network.links()
    alpha = np.asarray(links.alpha, np.float64)
    return Wires(alpha, np.asarray(links.beta, np.float64), np.zeros(len(alpha)))
