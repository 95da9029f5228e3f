"""Reductions of buffers: the vector to combine, and the function that does it."""

from typing import Any, NamedTuple

import numpy as np

from dml.sim.mpi.messages import Block, parts, simple
from dml.sim.mpi.operations import ARRAYS, OPS, Op, array_operation

BY_UFUNC = {
    function: OPS[name]
    for name, function in ARRAYS.items()
    if isinstance(function, np.ufunc)
}


class Reduction(NamedTuple):
    """A function of arrays (left, right, out=right), their dtype, and its order."""

    function: Any
    dtype: np.dtype
    commutes: bool

    def vector(self, block: Block) -> np.ndarray:
        """Return a copy of a block as a vector of elements."""
        data = block.pack()
        if not self.dtype.itemsize:
            return np.zeros(block.number, self.dtype)
        return np.array(data).view(self.dtype)


def datatype_of(spec: Any) -> Any:
    """Return the datatype of a specification, as the program knows it."""
    return parts(spec, True).datatype


def reduction(op: Any, spec: Any, block: Block) -> Reduction:
    """Return the reduction of a buffer by an operation of mpi4py, or one of NumPy."""
    if isinstance(op, np.ufunc):
        op = BY_UFUNC.get(op, op)
    if not isinstance(op, Op):
        raise TypeError(
            f"expected an operation such as MPI.SUM, got a {type(op).__name__}; pass "
            "one, or make one by MPI.Op.Create"
        )
    datatype = datatype_of(spec)
    function, dtype = array_operation(op, block.layout, datatype)
    return Reduction(function, dtype, op.held.commutes)


def reduce_local(op: Op, inbuf: Any, inoutbuf: Any) -> None:
    left, right = simple(inbuf, True), simple(inoutbuf, False)
    if left.nbytes != right.nbytes:
        raise ValueError(
            f"Op.Reduce_local: expected buffers of one size, got {left.nbytes} and "
            f"{right.nbytes} bytes"
        )
    function, dtype, _ = found = reduction(op, inbuf, left)
    result = found.vector(right)
    function(found.vector(left), result, out=result)
    right.unpack(result.view(np.uint8))
