"""The exchange of a robust estimate over ranks: slices of terms, then of the result.

    rank 0   a0 a1 a2         a0 b0 c0  ─ estimate ─►  e0         e0 e1 e2
    rank 1   b0 b1 b2   ──►   a1 b1 c1  ─ estimate ─►  e1   ──►   e0 e1 e2
    rank 2   c0 c1 c2         a2 b2 c2  ─ estimate ─►  e2         e0 e1 e2
             terms            slices, and one sum of distances    estimate

`scatter` trusts the owner of a slice to estimate it. By `gather` every rank receives
all terms and estimates all slices itself.

For t terms on each of p ranks, n = tp, and d coordinates, a rank sends by `scatter`
(p-1)/p·(t+1)d words in 2(p-1) rounds, and n + (n+2)² numbers by an all-reduce (n
numbers if the rule uses no distances); by `gather` (p-1)td words in p-1 rounds.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from dml.types import AllReduce, Comm, identity
from dml.wire.collectives.all_gather_parts import all_gather_parts
from dml.wire.comm.tags import Tag
from dml.wire.plans.topology import chunks
from dml.wire.reducers.robust.threads import Run, on_threads, serially


class Slices(NamedTuple):
    """A slice of the terms of all ranks.

    Attributes:
      rows: n x d values: the terms in the order of the ranks.
      place: Position of the slice in a term.
      total: Returns the sum of a small float64 array over all slices; collective.
      gather: slice of a vector -> the vector; collective.
      run: Calls functions of parts of the columns.
    """

    rows: np.ndarray
    place: slice
    total: Callable[[np.ndarray], np.ndarray]
    gather: Callable[[np.ndarray], np.ndarray]
    run: Run = serially


# (comm, terms of this rank, number of terms of each rank, allreduce) -> slices
Exchange = Callable[[Comm, Sequence[np.ndarray], np.ndarray, AllReduce], Slices]


def scatter(
    comm: Comm, terms: Sequence[np.ndarray], counts: np.ndarray, allreduce: AllReduce
) -> Slices:
    """Return this rank's slice of the terms of all ranks.

    Args:
      comm: The ranks.
      terms: Terms of this rank, of equal lengths on all ranks; at least one.
      counts: Number of terms of each rank.
      allreduce: Sums the facts about slices.
    """
    rank, size, length = comm.rank, comm.size, len(terms[0])
    if size == 1:
        threads = serially if comm.platform.virtual else on_threads
        return alone(np.stack(terms))._replace(run=threads)
    firsts = np.concatenate([[0], np.cumsum(counts)])
    places = chunks(length, size)
    own = places[rank]
    rows = np.empty((firsts[-1], own.stop - own.start), np.float32)
    for n, term in enumerate(terms):
        rows[firsts[rank] + n] = term[own]
    for k in range(1, size):
        dest, source = (rank + k) % size, (rank - k) % size
        outgoing = np.concatenate([term[places[dest]] for term in terms])
        incoming = rows[firsts[source] : firsts[source + 1]].reshape(-1)
        comm.Sendrecv(outgoing, dest, Tag.ALL_TO_ALL, incoming, source, Tag.ALL_TO_ALL)

    def total(facts: np.ndarray) -> np.ndarray:
        allreduce(comm, facts, op=np.add)
        return facts

    lengths = np.array([place.stop - place.start for place in places])
    return Slices(rows, own, total, lambda part: all_gather_parts(comm, part, lengths))


def gather(
    comm: Comm, terms: Sequence[np.ndarray], counts: np.ndarray, allreduce: AllReduce
) -> Slices:
    """Return all terms of all ranks; see `scatter`."""
    if comm.size == 1:
        return alone(np.stack(terms))
    length = len(terms[0])
    gathered = all_gather_parts(comm, np.concatenate(terms), counts * length)
    return alone(gathered.reshape(-1, length))


def alone(rows: np.ndarray) -> Slices:
    """Return the slice of a process that has all terms."""
    everything = slice(0, rows.shape[1])
    return Slices(rows, everything, identity, identity)


EXCHANGES: dict[str, Exchange] = {"scatter": scatter, "gather": gather}
