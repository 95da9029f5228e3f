"""Mixing matrices as data: the messages of a round of averaging, with their weights.

    x_i ← w_ii x_i + Σ_j w_ij x_j          0 ── 1 ── 2 ── 3     W of a chain of 4
                                           │ 2/3  1/3            Every row and every
    A round is a sequence of links.        │ 1/3  1/3  1/3       column sums to 1, so
    In a link each rank sends at most      │      1/3  1/3  1/3  the mean of all x_i
    one message and receives at most one.  │           1/3  2/3  stays where it is.

Ranks are numbers or arrays of numbers, so that the same arithmetic gives the partners
of one rank and those of a million. Pure arithmetic, without communication.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dml.types import BadInput
from dml.wire.plans.averaging.faults import Faults, arrivals
from dml.wire.plans.averaging.grouping import Groups

NO_RANK = -1  # partner of a rank that does not send or receive in a link
MAX_DENSE = 4096  # largest number of ranks of a dense matrix
TOLERANCE = 1e-12  # of sums of rows and columns


class Link(NamedTuple):
    """Messages with at most one from each rank and at most one to each rank.

    Attributes:
      source: ranks -> ranks from which they receive, or NO_RANK.
      dest: ranks -> ranks to which they send, or NO_RANK.
      weight: ranks -> weights of the values that they receive.
    """

    source: Callable[[np.ndarray], np.ndarray]
    dest: Callable[[np.ndarray], np.ndarray]
    weight: Callable[[np.ndarray], np.ndarray]


class Topology(NamedTuple):
    """The rounds of a communication graph.

    Attributes:
      name: Text from which the topology was made.
      size: Number of ranks.
      period: Number of rounds after which the rounds repeat; 0 for random rounds.
      links: round -> its links.
      groups: round -> groups whose ranks all take the mean of their group; None if the
        rounds are not of this kind.
      spectrum: round -> eigenvalues of the matrix, the one of the mean first. All
        rounds have the same orthogonal eigenvectors in the same order. None if there is
        no formula.
    """

    name: str
    size: int
    period: int
    links: Callable[[int], Sequence[Link]]
    groups: Callable[[int], Groups] | None = None
    spectrum: Callable[[int], np.ndarray] | None = None


class Messages(NamedTuple):
    """The messages of one link: arrays with an element for each message."""

    source: np.ndarray
    dest: np.ndarray
    weight: np.ndarray


class Edges(NamedTuple):
    """The messages of one rank in a round, as lists in the order of links.

    A message of a rank to itself is no message: its weight belongs to the own value.
    """

    receive_links: list[int]
    sources: list[int]
    receive_weights: list[float]
    send_links: list[int]
    dests: list[int]
    send_weights: list[float]


def messages(topology: Topology, t: int) -> Iterator[Messages]:
    """Yield the messages of each link of round t, in the order of their receivers."""
    ranks = np.arange(topology.size)
    for link in topology.links(t):
        source = link.source(ranks)
        receives = (source != NO_RANK) & (source != ranks)
        weight = np.broadcast_to(link.weight(ranks), ranks.shape)
        if receives.all():
            yield Messages(source, ranks, weight)
        else:
            yield Messages(source[receives], ranks[receives], weight[receives])


class MessageTable(NamedTuple):
    """All messages of a round, by receiver and by sender."""

    received: list[np.ndarray]  # link, source, weight; in the order of receivers
    received_starts: np.ndarray
    sent: list[np.ndarray]  # link, dest, weight; in the order of senders
    sent_starts: np.ndarray


@lru_cache(maxsize=64)
def _table(topology: Topology, t: int) -> MessageTable:
    empty = Messages(np.empty(0, int), np.empty(0, int), np.empty(0))
    by_link = [empty, *messages(topology, t)]
    counts = [len(one.source) for one in by_link]
    link = np.repeat(np.arange(-1, len(by_link) - 1), counts)
    source, dest, weight = map(np.concatenate, zip(*by_link, strict=True))
    ranks = np.arange(topology.size + 1)
    by_dest = np.argsort(dest, kind="stable")
    by_source = np.argsort(source, kind="stable")
    return MessageTable(
        [array[by_dest] for array in (link, source, weight)],
        np.searchsorted(dest[by_dest], ranks),
        [array[by_source] for array in (link, dest, weight)],
        np.searchsorted(source[by_source], ranks),
    )


def edges(topology: Topology, t: int, rank: int) -> Edges:
    """Return the messages of a rank in round t; tables of rounds are cached."""
    table = _table(topology, t % topology.period if topology.period else t)
    into = slice(*table.received_starts[rank : rank + 2])
    out = slice(*table.sent_starts[rank : rank + 2])
    links, sources, weights = (array[into].tolist() for array in table.received)
    send_links, dests, send_weights = (array[out].tolist() for array in table.sent)
    return Edges(links, sources, weights, send_links, dests, send_weights)


@lru_cache(maxsize=64)
def _arrivals(topology: Topology, t: int, faults: Faults) -> tuple[list[int], ...]:
    table = _table(topology, t % topology.period if topology.period else t)
    ranks = np.arange(topology.size)
    dest = np.repeat(ranks, np.diff(table.received_starts))
    source = np.repeat(ranks, np.diff(table.sent_starts))
    return (
        arrivals(faults, t, table.received[1], dest).tolist(),
        arrivals(faults, t, source, table.sent[1]).tolist(),
        table.received_starts.tolist(),
        table.sent_starts.tolist(),
    )


def edge_arrivals(
    topology: Topology, t: int, rank: int, faults: Faults
) -> tuple[list[int], list[int]]:
    """Return the rounds in which messages of round t arrive, or LOST for each.

    Args:
      topology: The topology.
      t: Number of the round.
      rank: The rank.
      faults: Losses, delays and absences.

    Returns:
      The rounds of the messages that `edges` lists as received, and as sent.
    """
    received, sent, into, out = _arrivals(topology, t, faults)
    return received[into[rank] : into[rank + 1]], sent[out[rank] : out[rank + 1]]


def matrix(topology: Topology, t: int = 0) -> np.ndarray:
    """Return the dense matrix of round t, for tests and small graphs."""
    p = topology.size
    if p > MAX_DENSE:
        raise BadInput(
            f"expected at most {MAX_DENSE} ranks for a dense matrix, got {p} of "
            f"{topology.name}; use the links or the spectrum of the topology"
        )
    weights_PxP = np.zeros((p, p))
    for source, dest, weight in messages(topology, t):
        weights_PxP[dest, source] += weight
    diagonal = np.arange(p)
    weights_PxP[diagonal, diagonal] = 1 - weights_PxP.sum(1)
    return weights_PxP


def spectral_gap(weights_PxP: np.ndarray) -> float:
    """Return 1 - |λ_2|, where λ_2 is the second largest eigenvalue in magnitude."""
    return gap(np.linalg.eigvals(weights_PxP))


def gap(eigenvalues: np.ndarray) -> float:
    """Return 1 - |λ_2| of the eigenvalues of a mixing matrix; 1 for one rank."""
    magnitudes = np.abs(eigenvalues)
    if len(magnitudes) == 1:
        return 1.0
    return float(1 - np.partition(magnitudes, -2)[-2])


def is_row_stochastic(weights_PxP: np.ndarray) -> bool:
    """Return whether all weights are 0 or more and all rows sum to 1."""
    rows = np.abs(weights_PxP.sum(1) - 1).max()
    return bool(weights_PxP.min() >= -TOLERANCE and rows <= TOLERANCE)


def is_column_stochastic(weights_PxP: np.ndarray) -> bool:
    """Return whether all weights are 0 or more and all columns sum to 1."""
    return is_row_stochastic(weights_PxP.T)


def is_doubly_stochastic(weights_PxP: np.ndarray) -> bool:
    """Return whether rows and columns sum to 1: values average and keep their mean."""
    return is_row_stochastic(weights_PxP) and is_column_stochastic(weights_PxP)
