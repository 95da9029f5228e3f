"""RelaySGD (Vogels 2021): models are relayed along a tree, with equal weights.

    x_i ← (x_i + s_i + Σ_k m_(k→i) + (p - count) x_0) / p

A message to a neighbour is the sum of the models on this side of the edge. A model
arrives, once, after as many rounds as edges lie between: the mean has all ranks with
equal weights, also if their data differ.

With d neighbours in the tree: 1 round, d(n + 2) words of 4 bytes per rank.
"""

from typing import NamedTuple

import numpy as np

from dml.strategies.decentral.replicas import Protocol, strategy
from dml.types import BadInput, Comm
from dml.wire.averaging.relay_sum import RelaySum, relay_sum
from dml.wire.comm.buffers import TreeLayout
from dml.wire.plans.trees import ARITIES, tree


class Relayed(NamedTuple):
    """The latest sums of a rank, in the order of its neighbours.

    Attributes:
      start: x_0.
      terms: Number of terms of each sum; 0 before the first message.
      sums: Sums, one row for each neighbour of the rank with most neighbours.
    """

    start: np.ndarray
    terms: np.ndarray
    sums: np.ndarray


@strategy
def relay(size: int, *, topology: str = "chain") -> Protocol:
    """Train replicas that are relayed along a tree.

    Args:
      size: Number of ranks.
      topology: chain, tree or star.
    """
    if topology not in ARITIES:
        raise BadInput(
            f"expected a topology of {', '.join(ARITIES)} for relay, got "
            f"{topology!r:.40}; pass one of them, or --strategy=gossip"
        )
    edges = tree(topology, size)
    degree = max(len(edges.neighbours(rank)) for rank in range(size))

    def init(start: np.ndarray, like: TreeLayout) -> Relayed:
        sums = np.zeros((degree, len(start)), start.dtype)
        return Relayed(start, np.zeros(degree, np.int64), sums)

    def mix(
        comm: Comm, before: np.ndarray, after: np.ndarray, t: int, last: Relayed
    ) -> Relayed:
        near = edges.neighbours(comm.rank)
        known = {
            neighbour: (t - 1, int(terms), values)
            for neighbour, terms, values in zip(
                near, last.terms, last.sums, strict=False
            )
            if terms
        }
        state = RelaySum(last.start, known)
        relay_sum(comm, after, edges, t, state)
        terms, sums = last.terms.copy(), last.sums.copy()
        for n, neighbour in enumerate(near):
            _, terms[n], sums[n] = state.sums[neighbour]
        return Relayed(last.start, terms, sums)

    return Protocol(init, mix)
