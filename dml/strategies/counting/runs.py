"""Merge the sorted runs of counts of all ranks into one sorted file of records.

rank 0   ==|====|=|=   ==|===|=|==      a run: records by word, then context
rank 1   =|=====|==|   ===|===|==|
          ▲ slab ▲                      the words of a slab, of all runs, fit into
         0: ==|==   1: ==|=|=           memory: a rank sums, weighs and writes
                                        about equally many records of it
"""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dml.data.scratch import Scratch, Spool
from dml.data.text import cooccurrence as kernels
from dml.data.text.cooccurrence import COUNT, RECORD, Sums
from dml.types import BadInput, Comm
from dml.wire.collectives import ALLREDUCE, all_to_all
from dml.wire.collectives.all_gather_parts import gather_lengths

MAX_SLAB_RECORDS = 1 << 20  # records of a slab on a rank; larger slabs are not faster


class Runs(NamedTuple):
    """A rank's sorted runs of COUNTs, one after another."""

    spool: Spool
    edges: list[int]
    totals: np.ndarray  # records of each word


def merge(comm: Comm, runs: Runs, path: Path, memory: int) -> int:
    """Merge the runs of all ranks into one file; return the number of records.

    Args:
      comm: Ranks.
      runs: Runs of this rank.
      path: File that all ranks see.
      memory: Number of records that fit into a rank's memory.
    """
    words, size = len(runs.totals), comm.size
    # A slab is in memory several times: records sent, records received (twice), and the
    # merged records before and after the received ones are added.
    limit = (memory - (2 * size + 12) * words) // 6
    totals, max_totals = runs.totals.copy(), runs.totals.copy()
    turns = np.array([len(runs.edges) - 1])
    ALLREDUCE["ring"](comm, totals, np.add)
    ALLREDUCE["ring"](comm, max_totals, np.maximum)
    ALLREDUCE["ring"](comm, turns, np.maximum)
    at, sums, done = list(runs.edges), kernels.sums(words), 0
    with Scratch(path, RECORD) as file:
        for start, stop in slabs(max_totals, min(limit, MAX_SLAB_RECORDS)):
            edges = cut(totals, start, stop, size)
            merged = np.empty(0, COUNT)
            for turn in range(turns[0]):
                parts = take(runs, turn, at, edges)
                parts = all_to_all(comm, parts)
                words_of_rank = edges[comm.rank], edges[comm.rank + 1]
                merged = fuse([merged, *parts], words_of_rank, sums)
                del parts
            each = gather_lengths(comm, len(merged))
            records = merged.view(RECORD)
            kernels.to_values(merged, records)
            file.put(done + int(each[: comm.rank].sum()), records)
            done += int(each.sum())
    comm.Barrier()
    return done


def slabs(max_totals: np.ndarray, limit: int) -> Iterator[tuple[int, int]]:
    """Cut the words into slabs, each with at most `limit` records per rank.

    A word with more records on a rank is a separate slab.

    >>> [*slabs(np.array([5, 9, 2, 2, 2, 1]), 6)]
    [(0, 1), (1, 2), (2, 5), (5, 6)]
    """
    ends, start = np.cumsum(max_totals), 0
    while start < len(ends):
        before = ends[start - 1] if start else 0
        stop = int(np.searchsorted(ends, before + limit, "right"))
        yield start, (stop := max(stop, start + 1))
        start = stop


def cut(totals: np.ndarray, start: int, stop: int, size: int) -> list[int]:
    """Cut a slab's words into `size` ranges of about equally many records.

    >>> cut(np.array([9, 9, 4, 4, 4, 4]), 1, 6, 3)
    [1, 2, 4, 6]
    """
    ends = np.cumsum(totals[start:stop])
    goals = ends[-1] * np.arange(1, size) // size
    return [start, *(start + np.searchsorted(ends, goals, "left") + 1).tolist(), stop]


def take(runs: Runs, turn: int, at: list[int], edges: list[int]) -> list[np.ndarray]:
    """Read the next slab of a run, divided among ranks; advance at[turn].

    Args:
      runs: Runs of this rank.
      turn: Number of the run.
      at: Next record of each run.
      edges: Bounds of the ranks' words.
    """
    if turn >= len(runs.edges) - 1:
        return [np.empty(0, COUNT)] * (len(edges) - 1)
    first = at[turn]
    # numbers of words in records start at 1: edges[-1] + 1 is the first after the slab
    stop = runs.spool.search("word", edges[-1] + 1, (first, runs.edges[turn + 1]))
    records, at[turn] = runs.spool.get(first, stop - first), stop
    inner = np.searchsorted(records["word"], np.array(edges[1:-1], np.int32) + 1)
    return np.split(records, inner)


def fuse(parts: list[np.ndarray], rows: tuple[int, int], sums: Sums) -> np.ndarray:
    """Sum sorted parts with records of the words rows[0] … rows[1] - 1.

    The first part has the sums so far; the others are those of ranks 0, 1, …
    """
    filled = [part for part in parts if len(part)]
    if len(filled) < 2:
        return filled[0] if filled else np.empty(0, COUNT)
    edges = np.cumsum([0, *map(len, parts)])
    merged = np.empty(edges[-1], COUNT)
    # as bytes: numpy copies records field by field
    joined = np.concatenate([part.view(np.uint8) for part in parts]).view(COUNT)
    used = kernels.merge(joined, edges, *rows, sums, merged)
    if used < 0:
        rank = int(np.searchsorted(edges, ~used, "right")) - 2
        raise BadInput(
            f"expected sorted records of words {rows[0]} to {rows[1] - 1} and contexts "
            f"up to {len(sums.units) - 1} from rank {rank}, got {joined[~used]}; start "
            "all ranks with the same vocabulary and flags"
        )
    return merged[:used]
