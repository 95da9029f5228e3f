"""Checks of equal arguments before, and equal results after an all-reduce."""

import hashlib
from collections.abc import Callable
from typing import Any

import numpy as np

from dml.types import ANY, BadInput, Comm, Op, ufunc_of
from dml.wire.collectives.reduce_scatter import all_gather
from dml.wire.comm.buffers import flat, registered_offset
from dml.wire.comm.plain import as_comm
from dml.wire.comm.wrapper import Wrapper

WIDTH = 128  # bytes of the description of a call
SMALL = (1, 3, 1000)  # lengths of the check of an all-reduce's first call


class WrongResult(RuntimeError):
    """The result of an all-reduce is wrong, or differs between ranks."""


def with_check(allreduce: Callable[..., None]) -> Callable[..., None]:
    """Return the all-reduce, preceded by `check_arguments`."""

    def checked_allreduce(
        comm: Comm, buffer: np.ndarray, op: Op = np.add, **kwargs
    ) -> None:
        comm, op = as_comm(comm), ufunc_of(op)
        check_arguments(comm, buffer, op.__name__)
        allreduce(comm, buffer, op, **kwargs)

    return checked_allreduce


def with_first_check(allreduce: Callable[..., None], name: str) -> Callable[..., None]:
    """Return the all-reduce; its first call on a communicator checks small sums."""
    known: dict[int, Comm] = {}
    allreduce = with_call_note(allreduce, name)

    def allreduce_checked_once(
        comm: Comm, buffer: np.ndarray, op: Op = np.add, **kwargs
    ) -> None:
        comm = as_comm(comm)
        if id(comm) not in known:
            known[id(comm)] = comm
            check_small_sums(comm, allreduce, name)
        allreduce(comm, buffer, op, **kwargs)

    return allreduce_checked_once


def with_call_note(allreduce: Callable[..., None], name: str) -> Callable[..., None]:
    """Return the all-reduce; a note of its exceptions has the arguments of the call."""

    def noted_allreduce(comm: Comm, buffer: np.ndarray, *args: Op, **kwargs) -> None:
        comm = as_comm(comm)
        try:
            allreduce(comm, buffer, *args, **kwargs)
        except Exception as error:
            op = (*args, kwargs.get("op", np.add))[0]
            dtype = getattr(buffer, "dtype", type(buffer).__name__)
            error.add_note(
                f"in a call of {name} on rank {comm.rank} of {comm.size} with "
                f"{np.size(buffer)} x {dtype}, {ufunc_of(op).__name__}"
            )
            raise

    return noted_allreduce


def check_small_sums(comm: Comm, allreduce: Callable[..., None], name: str) -> None:
    """Raise BadInput if sums of a few elements are wrong; collective."""
    inner: Any = comm
    while isinstance(inner, Wrapper):
        inner = inner.comm  # elements of the check are not counted
    p, advice = comm.size, f"run python -m dml.conformance {name}"
    for length in SMALL:
        ramp = np.arange(length, dtype=np.float64)
        buffer = (comm.rank + 1) * ramp + comm.rank
        allreduce(inner, buffer, np.add)
        if not np.array_equal(buffer, p * (p + 1) / 2 * ramp + p * (p - 1) / 2):
            raise BadInput(
                f"expected {name} to sum {length} elements of {p} ranks, got another "
                f"result on rank {comm.rank}; {advice}"
            )
    inner.Barrier()
    is_left = inner.Iprobe(ANY, ANY)
    inner.Barrier()  # no rank sends the next message before all ranks have looked
    if is_left:
        raise BadInput(
            f"expected {name} to receive all messages, got one that is left on rank "
            f"{comm.rank}; {advice}"
        )


def check_arguments(comm: Comm, buffer: np.ndarray, purpose: str) -> None:
    """Raise BadInput on all ranks if length, dtype, registration or purpose differ.

    A rank with an invalid buffer takes part in the check before it raises, so that the
    other ranks do not wait for it. Collective.

    Args:
      comm: The ranks.
      buffer: The buffer of this rank.
      purpose: Its use, such as the name of an operation.
    """
    comm, error_text = as_comm(comm), ""
    try:
        description = describe(comm, flat(comm, buffer), purpose)
    except BadInput as error:
        error_text, description = str(error), "a bad buffer"
    table = np.zeros((comm.size, WIDTH), np.uint8)
    encoded = description.encode()[:WIDTH]
    table[comm.rank, : len(encoded)] = list(encoded)
    all_gather(comm, table)
    if error_text:
        raise BadInput(error_text)
    descriptions = [bytes(row).rstrip(b"\0").decode(errors="replace") for row in table]
    for rank, other in enumerate(descriptions):
        if other != descriptions[0]:
            raise BadInput(
                f"expected equal arguments on all ranks, but rank 0 has "
                f"{descriptions[0]}, rank {rank} has {other}; pass buffers of one "
                "length and dtype, all plain or all registered at the same byte"
            )


def describe(comm: Comm, buffer: np.ndarray, purpose: str) -> str:
    """Describe the arguments of an all-reduce in one line."""
    offset = registered_offset(comm, buffer)
    memory = "plain" if offset is None else f"registered at byte {offset}"
    return f"{len(buffer)} x {buffer.dtype.name}, {memory}, for {purpose}"


def compare_replicas(
    comm: Comm, buffer: np.ndarray, *counts: int
) -> tuple[str, list[int]]:
    """Compare a buffer on all ranks; raise WrongResult unless all are bit-identical.

    One all-reduce adds hashes and counts. The sum of p equal hashes is p times the
    hash; for different hashes this holds with a probability below 2^-128.

    Args:
      comm: The ranks; collective.
      buffer: The buffer to compare.
      counts: Further integers of this rank, to sum over all ranks.

    Returns:
      The hash of the buffer, and the sum of each count over all ranks.
    """
    comm, digest = as_comm(comm), hashlib.sha256(buffer.data)
    hashes = np.frombuffer(digest.digest(), np.uint64)  # 4 parts of the sha256
    sums = np.array([*hashes, *counts], np.uint64)
    comm.Allreduce(None, sums, np.add)
    if (sums[: len(hashes)] != hashes * np.uint64(comm.size)).any():
        digests = np.zeros((comm.size, len(hashes)), np.uint64)
        digests[comm.rank] = hashes
        all_gather(comm, digests)
        differ = np.flatnonzero((digests != digests[0]).any(axis=1))
        raise WrongResult(
            f"expected bit-identical results on all ranks, but rank {differ[0]} "
            "differs from rank 0"
        )
    return digest.hexdigest(), sums[len(hashes) :].tolist()
