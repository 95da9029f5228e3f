"""Exchange a fraction Q of the examples between the shards of ranks, every epoch.

              rank 0     rank 1     rank 2
    shards    a b c d    e f g h    i j k l
    selected    b   d      f g      i     l    Q = ½ of each shard, at random
    moved       g   i      d l      f     b    by one permutation of the selected

Q = 0 shuffles within shards only and Q = 1 is a global reshuffle; Nguyen 2022 exchanges
fractions between them. All ranks draw the selection and the permutation from the same
seed, so that only examples are sent. The lengths of shards do not change.

At most p-1 messages per rank and epoch. Of N examples on p ranks with equal shards, a
rank sends QN/p·(1 - 1/p) in the mean: a selected example stays on its rank with
probability 1/p. Every rank draws the moves of all ranks: O(N) time, O(QN) memory.
"""

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from dml.data.shards import bounds
from dml.types import BadInput, Comm
from dml.wire.collectives.all_to_all import send_parts

MOVES, ORDER = 1, 2  # random streams of an epoch


class Moves(NamedTuple):
    """The selected examples of all ranks, numbered by rank, and where they move.

    Attributes:
      total: Number of examples in all shards.
      edges: Rank r has the selected examples edges[r] … edges[r + 1] - 1.
      positions: Position of each selected example in its shard.
      targets: Number of the selected example whose position each one takes.
      sources: Number of the selected example that each one is replaced by; the inverse
        of `targets`.
    """

    total: int
    edges: np.ndarray
    positions: np.ndarray
    targets: np.ndarray
    sources: np.ndarray

    @property
    def size(self) -> int:
        """Number of ranks."""
        return len(self.edges) - 1

    def of_rank(self, rank: int) -> slice:
        """Return the numbers of a rank's selected examples."""
        return slice(int(self.edges[rank]), int(self.edges[rank + 1]))

    def examples_sent(self, rank: int) -> int:
        """Return the number of examples that a rank sends to other ranks."""
        own = self.of_rank(rank)
        targets = self.targets[own]
        return int(((targets < own.start) | (targets >= own.stop)).sum())


@lru_cache(maxsize=1)  # virtual ranks share the moves
def draw_moves(count: int, size: int, fraction: float, seed: int, epoch: int) -> Moves:
    """Return the moves of an epoch, equal on all ranks.

    Args:
      count: Number of examples in all shards.
      size: Number of ranks.
      fraction: Fraction Q of each shard that is selected.
      seed: Random seed.
      epoch: Number of the epoch.
    """
    if not 0 <= fraction <= 1:
        raise BadInput(
            f"expected a fraction of examples in [0, 1], got {fraction}; pass 0 for "
            "a shuffle within shards, or 1 for a global one"
        )
    draws = np.random.default_rng([seed, epoch, MOVES])
    positions = []
    for rank in range(size):
        start, stop = bounds(count, rank, size)
        chosen = selected_count(stop - start, fraction, epoch)
        drawn = draws.choice(stop - start, chosen, replace=False, shuffle=False)
        positions.append(np.sort(drawn))
    edges = np.cumsum([0, *map(len, positions)])
    targets = draws.permutation(edges[-1])
    return Moves(count, edges, np.concatenate(positions), targets, np.argsort(targets))


def selected_count(length: int, fraction: float, epoch: int) -> int:
    """Return the number of selected examples of a shard in an epoch.

    The numbers of the first E epochs add up to E * fraction * length, rounded.
    """
    before, after = (round(fraction * length * e) for e in (epoch, epoch + 1))
    return after - before


def exchange(comm: Comm, shard: Sequence[np.ndarray], moves: Moves) -> None:
    """Move examples between shards, in place; collective.

    Args:
      comm: Ranks.
      shard: Arrays of this rank's shard, such as inputs and targets; their first axis
        is over examples.
      moves: Moves of the epoch, equal on all ranks.
    """
    check_shard(comm, shard, moves)
    own = moves.of_rank(comm.rank)
    positions, targets = moves.positions[own], moves.targets[own]
    # order matters: both ranks of a message sort its examples by target
    leaving = np.argsort(targets)
    sources = np.searchsorted(moves.edges, moves.sources[own], "right") - 1  # ranks
    arriving = np.argsort(sources, kind="stable")
    sent = pack_examples(shard, positions[leaving])
    received = np.empty_like(sent)
    ends = np.searchsorted(targets[leaving], moves.edges[1:-1])
    received_ends = np.searchsorted(sources[arriving], range(1, moves.size))
    send_parts(comm, np.split(sent, ends), np.split(received, received_ends))
    unpack_examples(received, shard, positions[arriving])


def check_shard(comm: Comm, shard: Sequence[np.ndarray], moves: Moves) -> None:
    """Raise BadInput unless the moves are those of this shard and communicator."""
    if comm.size != moves.size:
        raise BadInput(
            f"expected moves between {comm.size} ranks, got {moves.size}; pass "
            "size=comm.size to draw_moves"
        )
    start, stop = bounds(moves.total, comm.rank, comm.size)
    lengths = [len(array) for array in shard]
    if any(length != stop - start for length in lengths):
        raise BadInput(
            f"rank {comm.rank}: expected arrays of {stop - start} examples, this "
            f"rank's shard of {moves.total}, got lengths {lengths}; split the data "
            "by dml.data.shards.shard"
        )


def example_bytes(arrays: Sequence[np.ndarray]) -> int:
    """Return the number of bytes of one example in all arrays."""
    return sum(math.prod(array.shape[1:]) * array.itemsize for array in arrays)


def pack_examples(arrays: Sequence[np.ndarray], positions: np.ndarray) -> np.ndarray:
    """Return copies of examples as rows of bytes."""
    columns = [
        np.ascontiguousarray(array[positions])
        .reshape(len(positions), math.prod(array.shape[1:]))
        .view(np.uint8)
        for array in arrays
    ]
    return np.concatenate(columns, axis=1)


def unpack_examples(
    rows: np.ndarray, arrays: Sequence[np.ndarray], positions: np.ndarray
) -> None:
    """Store rows of bytes as the examples at `positions`."""
    start = 0
    for array in arrays:
        stop = start + example_bytes([array])
        values = np.ascontiguousarray(rows[:, start:stop]).view(array.dtype)
        array[positions] = values.reshape(len(rows), *array.shape[1:])
        start = stop


@lru_cache(maxsize=4)  # virtual ranks share them, and may be in different epochs
def epoch_minibatches(
    count: int, size: int, batch: int, seed: int, epoch: int
) -> Sequence[np.ndarray]:
    """Return the minibatches of an epoch, with `batch` examples of every shard.

    A minibatch has positions in the shards of all ranks, concatenated in rank order, as
    strategies expect. Each rank's part of it is in its own shard, and each epoch has
    each example once. The last minibatch may be shorter.

    Args:
      count: Number of examples in all shards.
      size: Number of ranks.
      batch: Number of examples of a rank in a minibatch.
      seed: Random seed.
      epoch: Number of the epoch.
    """
    if batch < 1:
        raise BadInput(f"expected a batch of 1 or more, got {batch}; pass 1 or more")
    draws = np.random.default_rng([seed, epoch, ORDER])
    orders = []
    for rank in range(size):
        start, stop = bounds(count, rank, size)
        orders.append(start + draws.permutation(stop - start))
    longest = len(orders[0])
    return [
        np.concatenate([order[first : first + batch] for order in orders])
        for first in range(0, longest, batch)
    ]


def exchanged_minibatches(
    comm: Comm,
    shard: Sequence[np.ndarray],
    *,
    count: int,
    batch: int,
    fraction: float,
    seed: int,
    epochs: int,
) -> Iterator[np.ndarray]:
    """Yield the minibatches of all epochs; exchange examples before each epoch.

    The exchange is collective, so a strategy must not prefetch these minibatches.

    Args:
      comm: Ranks.
      shard: Arrays of this rank's shard, changed by every exchange.
      count: Number of examples in all shards.
      batch: Number of examples of a rank in a minibatch.
      fraction: Fraction Q of each shard that is selected for an exchange.
      seed: Random seed.
      epochs: Number of epochs.
    """
    for epoch in range(epochs):
        moves = draw_moves(count, comm.size, fraction, seed, epoch)
        exchange(comm, shard, moves)
        yield from epoch_minibatches(count, comm.size, batch, seed, epoch)
