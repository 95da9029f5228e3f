"""All messages of boosting; no other file of this package sends.

                 columns 0..3  columns 4..7         a grid of 2 x 2 ranks: each has
    rows 0..4   │   rank 0   │   rank 1   │         a block of rows and columns
    rows 5..9   │   rank 2   │   rank 3   │
                    down  ▲        across ◄─►

`down` has the ranks of equal columns, `across` those of equal rows. "rows" is a grid of
p x 1 ranks, "columns" of 1 x p. Buffers are integers or exact, so that no result
depends on the order of sums. Words of 8 bytes over all ranks of a group of p:

    add, largest, least   2(p-1)n       all-reduce by halving and doubling
    add_parts             (p-1)n        each rank receives the sums of its part
    share_flags           (p-1)⌈n/64⌉   broadcast of a bit per row
    collect               p(p-1)n       all-gather of n words a rank
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dml.types import BadInput, Comm, Op
from dml.wire.collectives.broadcast import broadcast
from dml.wire.collectives.halving_doubling import halving_doubling_allreduce
from dml.wire.collectives.reduce_scatter import all_gather
from dml.wire.collectives.sum_parts import sum_parts
from dml.wire.comm.plain import as_comm


class Grid(NamedTuple):
    """The place of a rank; a communicator is None if it has one rank.

    Attributes:
      everyone: All ranks.
      down: The ranks with the columns of this one.
      across: The ranks with the rows of this one.
      rows: Number of blocks of rows.
      columns: Number of blocks of columns.
      row: Block of rows of this rank.
      column: Block of columns of this rank.
    """

    everyone: Comm | None = None
    down: Comm | None = None
    across: Comm | None = None
    rows: int = 1
    columns: int = 1
    row: int = 0
    column: int = 0


def shape(split: str, size: int) -> tuple[int, int]:
    """Return the numbers of blocks of rows and of columns of a split."""
    if split in ("rows", "vote"):
        return size, 1
    if split == "columns":
        return 1, size
    found = re.fullmatch(r"([1-9]\d{0,6})x([1-9]\d{0,6})", split)
    if not found:
        raise BadInput(
            f"expected a split rows, columns, vote or RxC such as 2x4, got {split!r}; "
            "correct it"
        )
    rows, columns = int(found[1]), int(found[2])
    if rows * columns != size:
        raise BadInput(
            f"expected {rows * columns} ranks for the split {split}, got {size}; pass "
            "another split, or start as many ranks"
        )
    return rows, columns


def grid(comm: Comm | None, split: str) -> Grid:
    """Return this rank's place in the grid of a split; collective."""
    comm = None if comm is None else as_comm(comm)
    rows, columns = shape(split, comm.size if comm else 1)
    if comm is None or comm.size == 1:
        return Grid()
    row, column = divmod(comm.rank, columns)
    down = comm if columns == 1 else comm.Split(column, row) if rows > 1 else None
    across = comm if rows == 1 else comm.Split(row, column) if columns > 1 else None
    return Grid(comm, down, across, rows, columns, row, column)


def reduced(comm: Comm | None, buffer: np.ndarray, op: Op) -> np.ndarray:
    """Return the buffer, reduced in place over all ranks of a group."""
    if comm and buffer.size:
        halving_doubling_allreduce(comm, buffer, op)
    return buffer


def add(comm: Comm | None, buffer: np.ndarray) -> np.ndarray:
    """Return the buffer with the sum of all ranks of a group, in place."""
    return reduced(comm, buffer, np.add)


def largest(comm: Comm | None, buffer: np.ndarray) -> np.ndarray:
    """Return the buffer with the maximum of all ranks of a group, in place."""
    return reduced(comm, buffer, np.maximum)


def least(comm: Comm | None, buffer: np.ndarray) -> np.ndarray:
    """Return the buffer with the minimum of all ranks of a group, in place."""
    return reduced(comm, buffer, np.minimum)


def add_parts(
    comm: Comm | None, sums_SxW: np.ndarray, edges: Sequence[int]
) -> np.ndarray:
    """Return the sums over a group of rows edges[r] to edges[r+1], for this rank r."""
    if not comm:
        return sums_SxW
    width, rank = sums_SxW.shape[1], comm.rank
    parts = [
        slice(begin * width, end * width)
        for begin, end in zip(edges[:-1], edges[1:], strict=True)
    ]
    sum_parts(comm, sums_SxW.reshape(-1), parts)
    return sums_SxW[edges[rank] : edges[rank + 1]].copy()


def share_flags(comm: Comm | None, flags: np.ndarray, root: int) -> None:
    """Copy flags, each 0 or 1, of the rank `root` of a group to all, in place."""
    if not comm or not len(flags):
        return
    words = np.zeros(-(-len(flags) // 64), np.uint64)
    octets = words.view(np.uint8)
    if comm.rank == root:
        octets[: -(-len(flags) // 8)] = np.packbits(flags)
    broadcast(comm, words, root)
    flags[:] = np.unpackbits(octets, count=len(flags))


def collect(comm: Comm | None, own: np.ndarray) -> np.ndarray:
    """Return the arrays of all ranks of a group, of equal shape, in rank order."""
    if not comm:
        return own[None]
    gathered = np.zeros((comm.size, *own.shape), own.dtype)
    gathered[comm.rank] = own
    if own.size:
        all_gather(comm, gathered)
    return gathered


def gather_texts(comm: Comm | None, text: str) -> list[str]:
    """Return the texts of all ranks."""
    if comm is None:
        return [text]
    comm = as_comm(comm)
    own = np.frombuffer(text.encode(), np.uint8)
    length = largest(comm, np.array([len(own)], np.int64)).item()
    padded = np.zeros(length, np.uint8)
    padded[: len(own)] = own
    return [row.tobytes().rstrip(b"\0").decode() for row in collect(comm, padded)]


def agree(comm: Comm | None, problem: str) -> None:
    """Raise the problem of the lowest rank that has one, on all ranks."""
    if not comm:
        if problem:
            raise BadInput(problem)
        return
    if largest(comm, np.array([bool(problem)], np.int64)).item():
        found = (
            (r, each) for r, each in enumerate(gather_texts(comm, problem)) if each
        )
        raise BadInput("rank {}: {}".format(*next(found)))


def share(
    rank: int, size: int, split: str, rows: int, columns: int, shards: int = 16
) -> tuple:
    """Return the slices of rows and of columns of a rank, as even as possible.

    With split="vote" a rank has whole shards: `shards` is that of the settings.
    """
    row_blocks, column_blocks = shape(split, size)
    row, column = divmod(rank, column_blocks)
    own = part(rows, row_blocks, row)
    if split == "vote":
        some = part(shards, size, rank)
        own = slice(rows * some.start // shards, rows * some.stop // shards)
    return own, part(columns, column_blocks, column)


def part(length: int, parts: int, index: int) -> slice:
    """Return one of the parts of a range, as even as possible."""
    return slice(length * index // parts, length * (index + 1) // parts)
