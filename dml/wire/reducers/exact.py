"""The exact mean of all ranks' gradients, by any all-reduce."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dml.types import AllReduce, Comm, Reducer
from dml.wire.collectives.sum_parts import sum_parts
from dml.wire.comm.buffers import TreeLayout
from dml.wire.comm.plain import as_comm
from dml.wire.reducers.rows import sum_rows


def exact(allreduce: AllReduce) -> Reducer:
    """Return the stateless reducer that sums by an all-reduce.

    On a parameter server no all-reduce runs: the terms are added in worker order. Parts
    that ranks own are added in rank order, as by `star_allreduce`.

    Args:
      allreduce: A value of `dml.wire.collectives.ALLREDUCE`.
    """

    def init(layout: TreeLayout) -> None:
        return None

    def reduce(comm: Comm, buffer: np.ndarray, state: Any) -> None:
        allreduce(as_comm(comm), buffer, op=np.add)

    def reduce_parts(
        comm: Comm, terms: Sequence[np.ndarray], parts: Sequence[slice], state: Any
    ) -> None:
        sum_parts(comm, terms[0], parts)

    return Reducer(init, reduce, sum_rows, reduce_parts=reduce_parts)
