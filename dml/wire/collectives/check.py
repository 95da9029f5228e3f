"""Checks between ranks: equal arguments before an all-reduce, equal bits after it."""

import hashlib
from collections.abc import Callable

import numpy as np

from dml.types import BadInput, Comm, Op
from dml.wire.collectives.reduce_scatter import all_gather
from dml.wire.comm.buffers import flat, place


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


def replica_hash(comm: Comm, buffer: np.ndarray) -> str:
    """Return the buffer's hash; raise if its bits differ between ranks."""
    sha256 = hashlib.sha256(buffer.data)
    digest = np.frombuffer(sha256.digest(), np.uint8)
    # the largest and, as a complement, the smallest value of each byte
    bounds = np.concatenate([digest, ~digest])
    comm.Allreduce(None, bounds, np.maximum)
    largest, smallest = bounds[: len(digest)], ~bounds[len(digest) :]
    if (largest != smallest).any():
        digests = np.zeros((comm.size, len(digest)), np.uint8)
        digests[comm.rank] = digest
        all_gather(comm, digests)
        differ = np.flatnonzero((digests != digests[0]).any(axis=1))
        raise RuntimeError(
            f"expected equal bits on all ranks, but rank {differ[0]} differs from "
            "rank 0; this all-reduce is wrong"
        )
    return sha256.hexdigest()
