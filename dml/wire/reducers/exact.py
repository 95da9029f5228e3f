"""The exact mean of all ranks' gradients, by any all-reduce."""

from typing import Any

import numpy as np

from dml.types import AllReduce, Comm, Reducer
from dml.wire.comm.buffers import Layout
from dml.wire.reducers.rows import sum_rows


def exact(allreduce: AllReduce) -> Reducer:
    """Return the stateless reducer that sums by an all-reduce.

    On a parameter server no all-reduce runs: the terms are added in worker order.

    Args:
      allreduce: A value of `dml.wire.collectives.ALLREDUCE`.
    """

    def init(layout: Layout) -> None:
        return None

    def reduce(comm: Comm, buffer: np.ndarray, state: Any) -> None:
        allreduce(comm, buffer, op=np.add)

    return Reducer(init, reduce, sum_rows)
