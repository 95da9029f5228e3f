"""Agreement before a collective: the same length, dtype and operation on all ranks."""

from collections.abc import Callable

import numpy as np

from dml.types import BadInput, Comm, Op
from dml.wire.buffers import flat
from dml.wire.messages.reduce_scatter import all_gather


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
        mine = describe(flat(comm, buffer), op)
    except BadInput as error:
        problem, mine = str(error), "a bad buffer"
    said = np.zeros((comm.size, 64), np.uint8)
    said[comm.rank, : len(mine)] = list(mine.encode())
    all_gather(comm, said)
    if problem:
        raise BadInput(problem)
    each = [bytes(row).rstrip(b"\0").decode() for row in said]
    for rank, other in enumerate(each):
        if other != each[0]:
            raise BadInput(
                f"all ranks must reduce alike: rank 0 has {each[0]}, rank {rank} has "
                f"{other}; pass buffers of one length and dtype"
            )


def describe(buffer: np.ndarray, op: Op) -> str:
    return f"{len(buffer)} x {buffer.dtype.name} for {op.__name__}"
