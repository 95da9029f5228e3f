"""BATCH: which part of a global batch belongs to which rank.

The partition is exact: contiguous, in rank order, no padding and no duplicates. Parts
differ by at most one example, so a mean over ranks must be weighted by their counts.
"""

from typing import Any

from dml.types import BadInput


def bounds(count: int, rank: int, size: int) -> tuple[int, int]:
    """Return where a rank's part starts and stops; the first count % size are longer.

    >>> [bounds(7, rank, 3) for rank in range(3)]
    [(0, 3), (3, 5), (5, 7)]
    """
    if not 0 <= rank < size:
        raise BadInput(f"expected 0 <= rank < size, got {rank=} of {size=}")
    least, longer = divmod(count, size)
    start = rank * least + min(rank, longer)
    return start, start + least + (rank < longer)


def shard(index: Any, rank: int, size: int) -> Any:
    """Return a rank's part of any sequence; empty where there is less than one each."""
    start, stop = bounds(len(index), rank, size)
    return index[start:stop]


def shards(index: Any, size: int) -> list[Any]:
    """Return every rank's part, in order."""
    return [shard(index, rank, size) for rank in range(size)]


def microbatches(index: Any, rank: int, size: int, parts: int) -> list[Any]:
    """Return a rank's part in so many parts."""
    return shards(shard(index, rank, size), parts)
