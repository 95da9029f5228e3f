"""Collectives that a cut layer should have, by formula.

A stream is batch x places x width x 4 bytes. An all-reduce of n bytes sends
2 n (t - 1)/t bytes from each of t devices, an all-gather, a reduce-scatter or an
all-to-all half as many, a permutation n.
"""

from typing import NamedTuple

from dml.models.experts import Mixture, capacity
from dml.models.transformer import Shape

ALL_REDUCE, ALL_GATHER, REDUCE_SCATTER = "all-reduce", "all-gather", "reduce-scatter"
ALL_TO_ALL, PERMUTE = "all-to-all", "collective-permute"
# collectives of a whole stream by kind, forward and backward
STREAMS: dict[bool, dict[str, tuple[dict[str, int], dict[str, int]]]] = {
    False: {
        "embed": ({ALL_REDUCE: 1}, {}),
        "block": ({ALL_REDUCE: 2}, {ALL_REDUCE: 2}),
        "head": ({}, {ALL_REDUCE: 1}),
    },
    True: {  # in slices of places
        "embed": ({REDUCE_SCATTER: 1}, {ALL_GATHER: 1}),
        "block": (
            {ALL_GATHER: 2, REDUCE_SCATTER: 2},
            {ALL_GATHER: 2, REDUCE_SCATTER: 2},
        ),
        "head": ({ALL_GATHER: 1}, {REDUCE_SCATTER: 1}),
    },
}
CROSS_ENTROPY = 3  # numbers a place that the head reduces: maximum, sum, target's score


class Formula(NamedTuple):
    """Collectives of one size by kind, forward and backward."""

    kinds: tuple[dict[str, int], dict[str, int]]
    nbytes: int  # of each
    small: int = 0  # bytes of smaller all-reduces in the forward pass


def transformer(name: str, shape: Shape, batch: int, sequence: bool) -> Formula:
    """Return the collectives of an embedding, a block or a head."""
    places = 4 * batch * shape.length
    small = places * CROSS_ENTROPY if name == "head" else 0
    return Formula(STREAMS[sequence][name], places * shape.width, small)


def experts(mixture: Mixture, rows: int, size: int) -> Formula:
    """Return the collectives of a mixture: to the experts and back, in each pass."""
    slots = mixture.experts * capacity(mixture, rows, size)
    return Formula(({ALL_TO_ALL: 2}, {ALL_TO_ALL: 2}), 4 * slots * mixture.width)


def ring(shape: Shape, batch: int, size: int) -> Formula:
    """Return the collectives of ring attention: keys, values, and their gradients."""
    keys = 4 * batch * (shape.length // size) * shape.width
    rounds = 2 * (size - 1)
    # On two devices XLA unrolls the loop and keeps the keys of the forward pass.
    again = rounds if size > 2 else 0
    return Formula(({PERMUTE: rounds}, {PERMUTE: again + 2 * size}), keys)
