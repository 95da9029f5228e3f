"""Collective operations, one algorithm per file.

All use point-to-point calls, except `shared` (shared memory) and `native` (MPI's own).
Docstrings state the time for p ranks: α per message, β per byte sent, γ per byte
reduced; lg is the logarithm to base 2. n is the size of the buffer: words (elements)
where words are counted, bytes where n is multiplied by β or γ.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from dml import extend
from dml.types import Comm, Op, ufunc_of
from dml.wire.collectives.all_to_all import all_to_all as all_to_all
from dml.wire.collectives.auto import chosen_allreduce as chosen_allreduce
from dml.wire.collectives.background import allreduce_async as allreduce_async
from dml.wire.collectives.broadcast import broadcast as broadcast
from dml.wire.collectives.check import with_check as with_check
from dml.wire.collectives.check import with_first_check as with_first_check
from dml.wire.collectives.operands import accumulating as accumulating
from dml.wire.collectives.operands import check_order
from dml.wire.collectives.predicted import called as called
from dml.wire.collectives.predicted import predicted_seconds as predicted_seconds
from dml.wire.collectives.rates import machine_rates as machine_rates
from dml.wire.collectives.reduce_scatter import all_gather as all_gather
from dml.wire.collectives.reduce_scatter import reduce_scatter as reduce_scatter
from dml.wire.collectives.star import star_allreduce as star_allreduce
from dml.wire.collectives.swarm import swarm_broadcast as swarm_broadcast
from dml.wire.collectives.table import ALLREDUCE as ALLREDUCE
from dml.wire.collectives.table import AUTO as AUTO
from dml.wire.collectives.table import COLLECTIVES as COLLECTIVES
from dml.wire.collectives.table import ORDERED
from dml.wire.collectives.tree import tree_allreduce as tree_allreduce
from dml.wire.comm.buffers import flat
from dml.wire.comm.plain import as_comm


def allreduce(
    comm: Comm,
    buffer: np.ndarray,
    op: Op = np.add,
    algorithm: str | Callable[..., None] = "auto",
    accumulate: Any = None,
) -> None:
    """Reduce a buffer in place over all ranks.

    Args:
      comm: Communicator of dml or of mpi4py; collective.
      buffer: Contiguous array, of equal length and dtype on all ranks.
      op: Reduction, such as np.add, np.maximum or MPI.MAX. One that does not commute,
        such as np.copysign, needs an algorithm that adds in rank order, as star.
      algorithm: Key of ALLREDUCE, FILE.py:NAME, MODULE:NAME, or a function.
      accumulate: Type in which elements are added, such as np.float32 for float16; the
        result is rounded once. None: that of the buffer, but float32 for bfloat16.
    """
    comm, ufunc = as_comm(comm), ufunc_of(op)
    if not isinstance(buffer, np.ndarray):
        flat(comm, buffer)  # raises BadInput
    if accumulate is None and buffer.dtype.name == "bfloat16":
        accumulate = np.float32
    if callable(algorithm):
        function = algorithm
    else:
        function = extend.find(str(algorithm), ALLREDUCE, extend.ALLREDUCES)
        if algorithm in ALLREDUCE:
            dtype = np.dtype(accumulate or buffer.dtype)
            check_order(ufunc, dtype, str(algorithm), ORDERED)
    if accumulate is not None:
        function = accumulating(function, accumulate)
    function(comm, buffer, ufunc)
