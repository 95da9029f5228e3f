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
bytes. The term of a group is that of its majority. Terms of groups are added in the
order of groups; other terms are never read, so that the sum has the same bits for any
wrong terms of at most s workers of each group. A robust rule of the groups' terms
(DETOX, Rajput 2019) also tolerates groups whose majority is wrong.

Cyclic: facts are norms and projections of the terms, from which `syndromes` locates at
most s wrong terms; the sum is decoded from the others, with rounding errors.

The owners of slices are trusted; only terms are not. For n terms on p ranks, with equal
numbers of terms and slices of equal length: 2(p-1) rounds, in which all ranks together
send (p-1)/p·nd + (p-1)d words, and a tree all-reduce of facts: n·s numbers of 8 bytes
by repetition:s, 4n by cyclic:s, and those of the rule.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations

import numpy as np

from dml.types import BadInput, Comm
from dml.wire.plans.codes.coding import Code, decoding
from dml.wire.plans.codes.syndromes import PROJECTIONS, check_sets, locate
from dml.wire.plans.topology import segments
from dml.wire.reducers.robust.estimate import Estimator, estimate_slice
from dml.wire.reducers.robust.rule import Byzantine
from dml.wire.reducers.robust.slices import Slices
from dml.wire.reducers.robust.terms import Terms

TILE = 1 << 14  # elements of a term that are converted to float64 at once
Total = Callable[[np.ndarray], np.ndarray]  # sums float64 arrays over all slices


class CodedSum:
    """Sums the gradients of all parts over ranks, from coded terms.

    Args:
      comm: Ranks.
      code: Code of the workers.
      length: Number of elements of a gradient.
      rule: Estimates the mean of the groups' gradients; None: their exact mean.
      byzantine: Attack; None: none.
      seed: Random seed of the projections.
    """

    def __init__(
        self,
        comm: Comm,
        code: Code,
        length: int,
        *,
        rule: Estimator | None = None,
        byzantine: Byzantine | None = None,
        seed: int = 0,
    ):
        check_sets(code)
        check_rule(code, rule)
        self.code, self.rule, self.seed = code, rule, seed
        self.terms = Terms(comm, code.workers, length, byzantine)

    def add_up(self, terms: Sequence[np.ndarray], step: int) -> tuple[np.ndarray, int]:
        """Return the sum of all parts, and the number of wrong terms; collective.

        Args:
          terms: Terms of this rank's workers.
          step: Number of earlier sums.
        """

        def mean(gradients: np.ndarray, slices: Slices) -> np.ndarray:
            part, _ = self.decode(gradients, slices, step)
            return part / np.float32(self.code.parts)

        slices = self.terms.collect(terms, step, mean)
        part, wrong = self.decode(slices.rows, slices, step)
        return slices.gather(part), wrong

    def decode(
        self, rows: np.ndarray, slices: Slices, step: int
    ) -> tuple[np.ndarray, int]:
        """Return a slice of the sum of all parts, and the number of wrong terms.

        Args:
          rows: Slice of the terms.
          slices: Place of the slice, and sums over slices.
          step: Number of earlier sums.
        """
        if not self.code.repeats:
            return self.decode_cyclic(rows, slices, step)
        winners, wrong = votes(self.code, rows, slices.total)
        part = add_in_order(rows, winners)
        if self.rule:
            gradients = self.terms.gradients(slices._replace(rows=rows))[winners]
            # of gradients, whose mean is the sum of the groups' terms
            part[: gradients.shape[1]] = estimate_slice(
                self.rule, gradients, None, step, slices.total, scale=self.code.parts
            )
        return part, wrong

    def decode_cyclic(
        self, rows: np.ndarray, slices: Slices, step: int
    ) -> tuple[np.ndarray, int]:
        """Return a slice of the sum without wrong terms, and their number."""
        draws = np.random.default_rng([self.seed, step, slices.place.start])
        facts = slices.total(project(rows, draws).reshape(-1))
        facts = facts.reshape(len(rows), -1)
        wrong = locate(self.code, facts[:, 1:], np.sqrt(facts[:, 0]))
        if wrong is None:
            raise BadInput(
                f"expected at most {self.code.faulty} wrong terms of "
                f"{self.code.workers} workers, got more; use a code that corrects more "
                "wrong terms"
            )
        right = np.ones(self.code.workers, bool)
        right[wrong] = False
        return combine(decoding(self.code, right), rows), len(wrong)


def check_rule(code: Code, rule: Estimator | None) -> None:
    """Raise BadInput if a rule does not fit to a code."""
    if rule is None:
        return
    if not code.repeats:
        raise BadInput(
            f"expected the exact mean of the parts of a cyclic code, got the rule "
            f"{rule.rule.name}; use repetition, or --reduce=exact"
        )
    if rule.centred:
        raise BadInput(
            f"expected a rule of groups that does not use the last estimate, got "
            f"{rule.rule.name}; use another rule, such as median"
        )
    if code.parts < rule.least():
        raise BadInput(
            f"expected at least {rule.least()} groups of workers for {rule.name}, got "
            f"{code.parts}; use more workers, or a smaller f"
        )


def add_in_order(
    rows: np.ndarray | Sequence[np.ndarray], chosen: Sequence[int]
) -> np.ndarray:
    """Return the sum of rows, added in the order in which they are chosen."""
    total: np.ndarray = rows[chosen[0]].copy()
    for number in chosen[1:]:
        total += rows[number]
    return total


def votes(code: Code, rows: np.ndarray, total: Total) -> tuple[list[int], int]:
    """Return the first worker of each group's majority, and the number of others.

    Others are the workers whose terms differ from that of the majority.

    Args:
      code: A repetition code.
      rows: n x d: slices of the terms of all workers.
      total: Sums arrays over the slices of all ranks.

    Raises:
      BadInput: A group has no majority.
    """
    groups = [code.workers_of(part).tolist() for part in range(code.parts)]
    pairs = [pair for group in groups for pair in combinations(group, 2)]
    leaders = np.concatenate([first_equal(rows, group) for group in groups])
    leader = dict(zip(np.concatenate(groups), leaders, strict=True))
    differ = [leader[one] != leader[other] for one, other in pairs]
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
    return winners, code.workers - int(equal[winners].sum())


def first_equal(rows: np.ndarray, group: Sequence[int]) -> list[int]:
    """Return, for each worker of a group, the first one whose row has equal bytes."""
    bits = np.ascontiguousarray(rows).view(np.uint8)
    leaders: list[int] = []
    result = []
    for worker in group:
        equal = (k for k in leaders if np.array_equal(bits[k], bits[worker]))
        result.append(next(equal, worker))
        if result[-1] == worker:
            leaders.append(worker)
    return result


def project(rows: np.ndarray, draws: np.random.Generator) -> np.ndarray:
    """Return the squared norm of each row, and its products with random vectors."""
    facts = np.zeros((len(rows), 1 + PROJECTIONS))
    for tile in segments(rows.shape[1], TILE):
        values = rows[:, tile].astype(np.float64)
        vectors = draws.uniform(-1, 1, (values.shape[1], PROJECTIONS))
        with np.errstate(over="ignore", invalid="ignore"):
            facts[:, 0] += np.einsum("nd,nd->n", values, values)
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
