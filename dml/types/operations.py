"""Operations of reductions: NumPy's functions, and mpi4py's with the same meaning.

An all-reduce of messages accepts every NumPy function of two arguments. `Allreduce` is
that of MPI and accepts the operations of the table, for MPI's dtypes of each.
"""

import sys
from typing import Any

import numpy as np

from dml.types.defaults import BadInput

NUMBERS = "bhilqBHILQefdgFDG"  # characters of the dtypes of MPI, and float16
INTEGERS, ORDERED = NUMBERS[:10], NUMBERS[:14]
OPERATIONS: dict[str, tuple[np.ufunc, str]] = {  # by mpi4py's names
    "SUM": (np.add, NUMBERS),
    "PROD": (np.multiply, NUMBERS),
    "MAX": (np.maximum, ORDERED),
    "MIN": (np.minimum, ORDERED),
    "LAND": (np.logical_and, "?" + INTEGERS),
    "LOR": (np.logical_or, "?" + INTEGERS),
    "LXOR": (np.logical_xor, "?" + INTEGERS),
    "BAND": (np.bitwise_and, INTEGERS),
    "BOR": (np.bitwise_or, INTEGERS),
    "BXOR": (np.bitwise_xor, INTEGERS),
}
DTYPES = {ufunc: characters for ufunc, characters in OPERATIONS.values()}


def mpi4py() -> Any:
    """Return the module mpi4py.MPI if the program has imported it, else None."""
    return sys.modules.get("mpi4py.MPI")


def ufunc_of(op: Any) -> np.ufunc:
    """Return the NumPy function of an operation, such as np.add or MPI.SUM.

    Raises:
      BadInput: It is no function of two arguments, or an operation of mpi4py without a
        NumPy function.
    """
    if isinstance(op, np.ufunc) and (op.nin, op.nout) == (2, 1):
        return op
    mpi = mpi4py()
    if mpi is not None and isinstance(op, mpi.Op):
        for name, (ufunc, _) in OPERATIONS.items():
            if op == getattr(mpi, name):
                return ufunc
    got = repr(op) if isinstance(op, np.ufunc) else f"a {type(op).__name__}"
    raise BadInput(
        f"expected an operation such as np.add, np.maximum or MPI.SUM, got {got}; pass "
        "a NumPy function of two arguments"
    )


def reduction(sendbuf: Any, recvbuf: Any, op: Any) -> tuple[Any, np.ufunc]:
    """Return the array to send, None for `recvbuf` itself, and the function of `op`.

    Raises:
      BadInput: MPI does not define the operation for the dtype, or the buffers are not
        arrays of one dtype and length in separate memory.
    """
    ufunc, mpi = ufunc_of(op), mpi4py()
    if mpi is not None and sendbuf is mpi.IN_PLACE:
        sendbuf = None
    for buffer in (recvbuf,) if sendbuf is None else (recvbuf, sendbuf):
        if not isinstance(buffer, np.ndarray):
            raise BadInput(
                f"expected a NumPy array in Allreduce, got a {type(buffer).__name__}; "
                "pass an array"
            )
        if not buffer.flags.forc:
            raise BadInput(
                f"expected a contiguous array in Allreduce, got strides "
                f"{buffer.strides}; pass np.ascontiguousarray(array)"
            )
    dtype = recvbuf.dtype
    if dtype.char not in DTYPES.get(ufunc, "") or not dtype.isnative:
        raise BadInput(
            f"expected an operation and a dtype of MPI in Allreduce, got "
            f"{ufunc.__name__} of {dtype}; use another all-reduce of dml.ALLREDUCE"
        )
    if not recvbuf.flags.writeable:
        raise BadInput(
            "expected a writeable recvbuf in Allreduce, got a read-only array; pass a "
            "copy"
        )
    if sendbuf is not None:
        if sendbuf.dtype != dtype or sendbuf.size != recvbuf.size:
            raise BadInput(
                f"expected sendbuf and recvbuf of one length and dtype in Allreduce, "
                f"got {sendbuf.size} x {sendbuf.dtype} and {recvbuf.size} x {dtype}; "
                "pass equal ones"
            )
        if np.may_share_memory(sendbuf, recvbuf):
            raise BadInput(
                "expected sendbuf and recvbuf in separate memory in Allreduce, got "
                "overlapping ones; pass sendbuf=None to reduce in place"
            )
        sendbuf = sendbuf.view(dtype)  # "l" and "q" are two types of MPI
    return sendbuf, ufunc


def reduce_local(inbuf: Any, inoutbuf: Any, op: Any, out: Any, error: Exception) -> Any:
    """Repeat a failed Reduce_local with the NumPy function of `op`.

    Raises:
      BadInput: There is none, or it is not defined for the buffers.
    """
    ufunc = ufunc_of(op)
    try:
        if ufunc is op:
            raise error
        return ufunc(inoutbuf, inbuf, out=inoutbuf if out is None else out)
    except (AttributeError, TypeError, ValueError) as reason:  # of objects, too
        kinds = ", ".join(
            f"{np.size(buffer)} x {getattr(buffer, 'dtype', type(buffer).__name__)}"
            for buffer in (inbuf, inoutbuf, *(() if out is None else (out,)))
        )
        raise BadInput(
            f"expected buffers of one length and dtype for {ufunc.__name__} in "
            f"Reduce_local, got {kinds}; pass equal ones"
        ) from reason
