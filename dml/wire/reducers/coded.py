"""Sums of coded terms over ranks: wrong terms are outvoted or located, not added.

    workers       slices of d elements on ranks
                  rank 0   rank 1   rank 2
    term 0        ░░░░░░   ░░░░░░   ░░░░░░     rank j receives slice j of all n terms,
    term 1        ░░░░░░   ░░░░░░   ░░░░░░     and computes facts of it;
     …                                         all ranks sum the facts: equal decisions;
    term n-1      ░░░░░░   ░░░░░░   ░░░░░░     rank j decodes slice j;
                  decode   decode   decode     all ranks gather the sum
                  └──── all-gather ─────┘

Repetition: facts are the numbers of slices in which two terms of a group differ, as
bytes. The term that most workers of a group sent is the term of the group; terms of
groups are added in the order of groups. Other terms are never read, so that the sum has
the same bits for any wrong terms of at most s workers of each group.

Cyclic: facts are norms and projections of the terms, from which `syndromes` locates at
most s wrong terms; the sum is decoded from the others, with rounding errors.

The owners of slices are trusted; only terms are not. For n terms on p ranks, with equal
numbers of terms and slices of equal length: p-1 messages of each rank and an all-gather
of p-1 rounds; all ranks together send n(p-1)/p·d + (p-1)d elements, and those of an
all-reduce of the facts, n·s numbers of 8 bytes by repetition, and 4n by cyclic codes.
"""

from collections.abc import Callable, Mapping
from itertools import combinations

import numpy as np

from dml.types import BadInput, Comm
from dml.wire.collectives.all_gather_parts import all_gather_parts
from dml.wire.collectives.all_to_all import send_parts
from dml.wire.collectives.tree import tree_allreduce
from dml.wire.plans.coding import Code, decoding
from dml.wire.plans.syndromes import PROJECTIONS, check_sets, locate
from dml.wire.plans.topology import chunks, segments

TILE = 1 << 14  # elements of a term that are converted to float64 at once
Total = Callable[[np.ndarray], np.ndarray]  # sums float64 arrays over all slices
Forge = Callable[[np.ndarray, int, Total], None]


class CodedSum:
    """Sums the gradients of all parts over ranks, from coded terms.

    Args:
      comm: Ranks.
      code: Code of the workers. Each rank has consecutive workers, in equal numbers.
      seed: Random seed of the projections.
      forge: (rows, step, total) replaces slices of the terms of attackers, in place.
    """

    def __init__(
        self, comm: Comm, code: Code, seed: int = 0, forge: Forge | None = None
    ):
        check_sets(code)
        self.comm, self.code, self.seed, self.forge = comm, code, seed, forge
        self.decode = self.decode_votes if code.repeats else self.decode_cyclic

    def add_up(self, terms: np.ndarray, step: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the sum of all parts and the workers with wrong terms; collective.

        Args:
          terms: Terms of this rank's workers, one in a row.
          step: Number of earlier sums.
        """
        rows = exchange_slices(self.comm, terms, self.code.workers)
        if self.forge:
            self.forge(rows, step, self.total)
        part, wrong = self.decode(rows, step)
        return gather_slices(self.comm, part, terms.shape[1]), wrong

    def total(self, facts: np.ndarray) -> np.ndarray:
        """Return the sum of an array over the slices of all ranks; collective."""
        facts = facts.astype(np.float64)
        tree_allreduce(self.comm, facts)
        return facts

    def decode_votes(
        self, rows: np.ndarray, step: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the sum of the terms of groups, and the workers that were outvoted."""
        winners, wrong = votes(self.code, rows, self.total)
        part = rows[winners[0]].copy()
        for winner in winners[1:]:  # order matters: that of groups
            part += rows[winner]
        return part, wrong

    def decode_cyclic(
        self, rows: np.ndarray, step: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the sum without wrong terms, and the workers that sent them."""
        vectors = np.random.default_rng([self.seed, step, self.comm.rank])
        facts = self.total(project(rows, vectors))
        wrong = locate(self.code, facts[:, 1:], np.sqrt(facts[:, 0]))
        if wrong is None:
            raise BadInput(
                f"expected at most {self.code.faulty} wrong terms of "
                f"{self.code.workers} workers, got more; use a code that corrects more "
                "wrong terms"
            )
        right = np.ones(self.code.workers, bool)
        right[wrong] = False
        return combine(decoding(self.code, right), rows), wrong


def votes(code: Code, rows: np.ndarray, total: Total) -> tuple[list[int], np.ndarray]:
    """Return the first worker of each group's majority, and the outvoted workers.

    Args:
      code: A repetition code.
      rows: n x d: slices of the terms of all workers.
      total: Sums arrays over the slices of all ranks.

    Raises:
      BadInput: A group has no majority.
    """
    groups = [code.workers_of(part).tolist() for part in range(code.parts)]
    pairs = [pair for group in groups for pair in combinations(group, 2)]
    bits = np.ascontiguousarray(rows).view(np.uint8)
    differ = [not np.array_equal(bits[one], bits[other]) for one, other in pairs]
    differences = total(np.array(differ, np.float64))
    equal = np.eye(code.workers, dtype=bool)
    for (one, other), count in zip(pairs, differences, strict=True):
        equal[one, other] = equal[other, one] = count == 0
    supporters = equal.sum(axis=1)
    winners = []
    for part, group in enumerate(groups):
        winner = max(group, key=lambda worker: supporters[worker])  # the first one
        if supporters[winner] <= code.copies // 2:
            raise BadInput(
                f"expected {code.copies // 2 + 1} equal terms of the workers {group} "
                f"of group {part}, got at most {supporters[winner]}; use a code that "
                "corrects more wrong terms"
            )
        winners.append(winner)
    return winners, np.flatnonzero(~equal[winners].any(axis=0))


def project(rows: np.ndarray, draws: np.random.Generator) -> np.ndarray:
    """Return the squared norm of each row, and its products with random vectors."""
    facts = np.zeros((len(rows), 1 + PROJECTIONS))
    for tile in segments(rows.shape[1], TILE):
        values = rows[:, tile].astype(np.float64)
        vectors = draws.uniform(-1, 1, (values.shape[1], PROJECTIONS))
        with np.errstate(over="ignore", invalid="ignore"):
            facts[:, 0] += np.square(values).sum(axis=1)
            facts[:, 1:] += values @ vectors
    return facts


def combine(weights: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Return the weighted sum of rows, in float64; rows of weight 0 are not read."""
    used = np.flatnonzero(weights)
    total = np.empty(rows.shape[1], rows.dtype)
    for tile in segments(rows.shape[1], TILE):
        total[tile] = weights[used] @ rows[used, tile].astype(np.float64)
    return total


def encode(code: Code, worker: int, parts: Mapping[int, np.ndarray]) -> np.ndarray:
    """Return the term of a worker, from the gradients of its parts."""
    chosen = code.parts_of(worker)
    if code.repeats:
        return parts[chosen[0]]
    total = np.zeros(len(parts[chosen[0]]))
    for part in chosen:
        total += code.coefficients[worker, part] * parts[part]
    return total


def exchange_slices(comm: Comm, terms: np.ndarray, workers: int) -> np.ndarray:
    """Return this rank's slice of the terms of all workers; collective.

    Args:
      comm: Ranks.
      terms: Terms of this rank's workers, one in a row.
      workers: Number of workers on all ranks.
    """
    slices = chunks(terms.shape[1], comm.size)
    own = slices[comm.rank]
    rows = np.empty((workers, own.stop - own.start), terms.dtype)
    received = [rows[of_rank] for of_rank in chunks(workers, comm.size)]
    sent = [np.ascontiguousarray(terms[:, columns]) for columns in slices]
    send_parts(comm, sent, received)
    return rows


def gather_slices(comm: Comm, part: np.ndarray, length: int) -> np.ndarray:
    """Return the slices of all ranks as one vector; collective."""
    slices = chunks(length, comm.size)
    lengths = np.array([columns.stop - columns.start for columns in slices])
    return all_gather_parts(comm, part, lengths)
