"""Checks between ranks: equal arguments before an all-reduce, equal bits after it."""

import hashlib
from collections.abc import Callable

import numpy as np

from dml.types import BadInput, Comm, Op
from dml.wire.collectives.reduce_scatter import all_gather
from dml.wire.comm.buffers import flat, place


class WrongResult(RuntimeError):
    """An all-reduce whose result is wrong, or differs between ranks."""


def checked(allreduce: Callable[..., None]) -> Callable[..., None]:
    """Return the all-reduce, preceded by `check_arguments`."""

    def checked_allreduce(
        comm: Comm, buffer: np.ndarray, op: Op = np.add, **kwargs
    ) -> None:
        check_arguments(comm, buffer, op)
        allreduce(comm, buffer, op, **kwargs)

    return checked_allreduce


def check_arguments(comm: Comm, buffer: np.ndarray, op: Op) -> None:
    """Raise BadInput on all ranks if length, dtype, registration or op differ.

    A rank with an invalid buffer takes part in the check before it raises, so that the
    other ranks do not wait for it. Collective.
    """
    problem = ""
    try:
        description = describe(comm, flat(comm, buffer), op)
    except BadInput as error:
        problem, description = str(error), "a bad buffer"
    table = np.zeros((comm.size, 96), np.uint8)
    table[comm.rank, : len(description)] = list(description.encode())
    all_gather(comm, table)
    if problem:
        raise BadInput(problem)
    descriptions = [bytes(row).rstrip(b"\0").decode() for row in table]
    for rank, other in enumerate(descriptions):
        if other != descriptions[0]:
            raise BadInput(
                f"expected equal arguments on all ranks, but rank 0 has "
                f"{descriptions[0]}, rank {rank} has {other}; pass buffers of one "
                "length and dtype, all plain or all registered at one byte"
            )


def describe(comm: Comm, buffer: np.ndarray, op: Op) -> str:
    """Return a line about the arguments of an all-reduce."""
    registered = place(comm, buffer)
    where = "plain" if registered is None else f"registered at byte {registered}"
    return f"{len(buffer)} x {buffer.dtype.name}, {where}, for {op.__name__}"


def compare_replicas(
    comm: Comm, buffer: np.ndarray, *counts: int
) -> tuple[str, list[int]]:
    """Compare a buffer on all ranks; raise WrongResult if the bits differ.

    One all-reduce adds hashes and counts. The sum of p equal hashes is p times each of
    them; for different hashes this holds with a probability below 2^-128.

    Args:
      comm: The ranks; collective.
      buffer: The buffer to compare.
      counts: Numbers to add up over all ranks.

    Returns:
      The hash of the buffer, and the sum of each count over all ranks.
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
        raise WrongResult(
            f"expected equal bits on all ranks, but rank {differ[0]} differs from "
            "rank 0"
        )
    return digest.hexdigest(), sums[len(words) :].tolist()
