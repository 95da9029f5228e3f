"""What every rank of a schedule does, laid flat for compiled code.

Rounds and a network come in; operations by rank, and messages with their ways, go out.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.sim.networks.fabric import Network
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


def programs(rounds: Sequence[Round], size: int) -> Program:
    """Sort what all rounds do by rank."""
    first, rows = 0, [np.zeros((6, 0), np.int64)]
    for one in rounds:
        count = len(one.source)
        both_2xR = np.full((2, size), NONE)
        both_2xR[0, one.source] = both_2xR[1, one.dest] = np.arange(count) + first
        ranks = np.flatnonzero(both_2xR.max(axis=0) != NONE)
        row = np.empty((6, len(ranks)), np.int64)
        row[0], row[1:3] = ranks, both_2xR[:, ranks]
        row[3], row[4], row[5] = one.segment, one.reduces, one.times
        rows.append(row)
        first += count
    table = np.concatenate(rows, axis=1)
    order = np.argsort(table[0], kind="stable")
    starts = np.searchsorted(table[0][order], np.arange(size + 1))
    return Program(starts, *np.ascontiguousarray(table[1:, order]))


def messages(rounds: Sequence[Round], network: Network) -> Messages:
    """Lay all messages and their ways one after another."""
    paths = [network.paths(one.source, one.dest) for one in rounds]
    crossed = [np.diff(path.starts) for path in paths]

    def joined(parts: Sequence[np.ndarray], dtype: Any) -> np.ndarray:
        return np.concatenate([np.zeros(0, dtype), *parts]).astype(dtype)

    source = joined([one.source for one in rounds], np.int64)
    return Messages(
        source,
        joined([one.dest for one in rounds], np.int64),
        joined([one.nbytes for one in rounds], np.int64),
        joined([path.alpha for path in paths], np.float64),
        joined([path.beta for path in paths], np.float64),
        np.concatenate([[0], np.cumsum(joined(crossed, np.int64))]),
        joined([path.links for path in paths], np.int32),
        np.full(len(source), NONE),
        np.full(len(source), NONE),
        np.zeros((len(source), 2)),
        np.zeros(len(source), np.int64),
    )
