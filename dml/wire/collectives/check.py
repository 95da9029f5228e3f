"""Agreement between ranks: on what to reduce before, on the bits after."""

import hashlib
from collections.abc import Callable

import numpy as np

from dml.types import BadInput, Comm, Op
from dml.wire.collectives.reduce_scatter import all_gather
from dml.wire.comm.buffers import flat, place


def checked(allreduce: Callable[..., None]) -> Callable[..., None]:
    """Make an all-reduce raise, on every rank, where the ranks' buffers differ."""

    def checked_allreduce(
        comm: Comm, buffer: np.ndarray, op: Op = np.add, **kwargs
    ) -> None:
        agree(comm, buffer, op)
        allreduce(comm, buffer, op, **kwargs)

    return checked_allreduce


def agree(comm: Comm, buffer: np.ndarray, op: Op) -> None:
    """Raise `BadInput`, naming two ranks, where length, dtype or op differ.

    A buffer that no collective can take is no reason to be silent: its rank says so
    first, so that the others do not wait for it.
    """
    problem = ""
    try:
        mine = describe(comm, flat(comm, buffer), op)
    except BadInput as error:
        problem, mine = str(error), "a bad buffer"
    said = np.zeros((comm.size, 96), np.uint8)
    said[comm.rank, : len(mine)] = list(mine.encode())
    all_gather(comm, said)
    if problem:
        raise BadInput(problem)
    each = [bytes(row).rstrip(b"\0").decode() for row in said]
    for rank, other in enumerate(each):
        if other != each[0]:
            raise BadInput(
                f"all ranks must reduce alike: rank 0 has {each[0]}, rank {rank} has "
                f"{other}; pass buffers of one length, dtype and place"
            )


def describe(comm: Comm, buffer: np.ndarray, op: Op) -> str:
    registered = place(comm, buffer)
    where = "plain" if registered is None else f"registered at byte {registered}"
    return f"{len(buffer)} x {buffer.dtype.name}, {where}, for {op.__name__}"


def replicas_agree(
    comm: Comm, buffer: np.ndarray, *counts: int
) -> tuple[str, list[int]]:
    """Compare a buffer on all ranks; raise where the bits differ.

    One all-reduce adds hashes and counts. Equal hashes add up to p times each of them;
    hashes that differ do so with a probability below 2^-128.

    Returns:
      The hash of the buffer, and the sum over all ranks of each count.
    """
    digest = hashlib.sha256(buffer.data)
    words = np.frombuffer(digest.digest(), np.uint64)
    sums = np.array([*words, *counts], np.uint64)
    comm.Allreduce(None, sums, np.add)
    if (sums[: len(words)] != words * np.uint64(comm.size)).any():
        digests = np.zeros((comm.size, len(words)), np.uint64)
        digests[comm.rank] = words
        all_gather(comm, digests)
        differ = np.flatnonzero((digests != digests[0]).any(axis=1))
        raise RuntimeError(
            f"expected equal bits on all ranks, but rank {differ[0]} differs from "
            "rank 0; this all-reduce is wrong"
        )
    return digest.hexdigest(), sums[len(words) :].tolist()
