"""Partition a sequence, such as a global minibatch, into one shard per rank.

Shards are contiguous and in rank order, without padding or duplicates. Their lengths
differ by at most one, so a mean over ranks must be weighted by the lengths.
"""

from typing import Any

from dml.types import BadInput


def bounds(count: int, rank: int, size: int) -> tuple[int, int]:
    """Return the start and stop of a rank's shard of `count` elements.

    The shards of the first count % size ranks have one element more.

    >>> [bounds(7, rank, 3) for rank in range(3)]
    [(0, 3), (3, 5), (5, 7)]
    """
    if not 0 <= rank < size or count < 0:
        raise BadInput(
            "expected 0 <= rank < size and 0 <= count, got "
            f"{rank=}, {size=}, {count=}; correct them"
        )
    length, remainder = divmod(count, size)
    start = rank * length + min(rank, remainder)
    return start, start + length + (rank < remainder)


def shard(index: Any, rank: int, size: int) -> Any:
    """Return a rank's shard of a sequence; empty if there are too few elements."""
    start, stop = bounds(len(index), rank, size)
    return index[start:stop]


def shards(index: Any, size: int) -> list[Any]:
    """Return the shards of all ranks, in rank order."""
    if size < 1:
        raise BadInput(f"expected 1 shard or more, got {size}; pass a larger number")
    return [shard(index, rank, size) for rank in range(size)]


def microbatches(index: Any, rank: int, size: int, parts: int) -> list[Any]:
    """Return a rank's shard of `index`, split into `parts` microbatches."""
    return logical_microbatches(index, rank, size, size, parts)


def logical_microbatches(
    index: Any, rank: int, size: int, count: int, parts: int
) -> list[Any]:
    """Return the microbatches of a rank's logical shards, one shard after another.

    `index` is split into `count` logical shards, for any number of ranks, of which
    each rank has consecutive ones. Each is split into `parts` microbatches.

    Args:
      index: Sequence to split.
      rank: The rank.
      size: Number of ranks.
      count: Number of logical shards, at least `size`.
      parts: Number of microbatches of a logical shard.
    """
    return [
        microbatch
        for number in range(*bounds(count, rank, size))
        for microbatch in shards(shard(index, number, count), parts)
    ]
