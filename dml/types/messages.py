"""Arguments of messages, with mpi4py's meaning: buffers, ranks, tags and colors.

Virtual ranks call these functions for arguments that are not plain, real ranks after an
error of mpi4py. Both therefore refuse the same arguments in the same words.
"""

from operator import index
from typing import Any

import numpy as np

from dml.types.comm import ANY, PROC_NULL, TOO_LONG, UNDEFINED, WITHDRAWN, Status
from dml.types.defaults import BadInput
from dml.types.operations import mpi4py

TAG_UB = 2**29 - 1  # largest tag that MPICH and Open MPI accept
CONTIGUOUS = 0x3  # bits of flags.num: the array is a vector, in C and Fortran order
WRITEABLE = 0x403  # and it is writeable
NOTHING = np.empty(0, np.uint8)


def is_vector(buffer: Any, flags: int) -> bool:
    """Return whether a buffer is an array of one axis with these flags, of numbers."""
    return (
        isinstance(buffer, np.ndarray)
        and buffer.ndim == 1
        and buffer.flags.num & flags == flags
        and not buffer.dtype.hasobject
    )


def as_vector(array: np.ndarray) -> np.ndarray:
    """View a C- or Fortran-contiguous array as a vector, in the order of its memory."""
    return array.reshape(-1) if array.flags.c_contiguous else array.T.reshape(-1)


def as_bytes(buffer: Any, writeable: bool = False) -> np.ndarray:
    """Return the memory of a buffer as a vector of bytes."""
    return memory_of(buffer, writeable).view(np.uint8)


def memory_of(buffer: Any, writeable: bool = False) -> np.ndarray:
    """Return the memory of a buffer as a vector.

    Args:
      buffer: A contiguous array; another object with a buffer; None, for no bytes; or
        [data, MPI.TYPE] or [data, count, MPI.TYPE] with a type of the data's itemsize.
      writeable: Whether the call writes to the memory.

    Raises:
      BadInput: MPI does not define the call for this buffer.
    """
    if buffer is None:
        return NOTHING
    if isinstance(buffer, list | tuple):
        return specified(buffer, writeable)
    array = buffer
    if not isinstance(buffer, np.ndarray):
        try:
            has_array = hasattr(buffer, "__array__")
            array = np.asarray(buffer if has_array else memoryview(buffer))
        except (TypeError, ValueError, BufferError) as error:
            got = f"a {type(buffer).__name__}"
            raise refusal("a NumPy array", got) from error
    if array.dtype.hasobject:
        raise refusal("an array of numbers", "an array of Python objects")
    if not array.flags.forc:
        problem = f"strides {array.strides} of shape {array.shape}"
        raise refusal("a contiguous array", problem, "a contiguous copy")
    if writeable and not array.flags.writeable:
        raise refusal("a writeable array", "a read-only array")
    return as_vector(array)


def specified(buffer: Any, writeable: bool) -> np.ndarray:
    """Return the memory of a buffer specification of mpi4py."""
    mpi, (data, *count) = mpi4py(), (*buffer, None)[:4]
    count, datatype = count[:-2], count[-2] if len(buffer) > 1 else None
    if (
        len(buffer) not in (2, 3)
        or mpi is None
        or not isinstance(datatype, mpi.Datatype)
        or isinstance(data, list | tuple)
    ):
        raise refusal("[array, MPI.TYPE] or [array, count, MPI.TYPE]", buffer)
    memory, size = memory_of(data, writeable), datatype.Get_size()
    if datatype == mpi.BYTE:
        memory = memory.view(np.uint8)
    if not datatype.is_predefined or size != memory.itemsize:
        raise refusal(
            f"MPI.BYTE or a type of {memory.itemsize} bytes for {memory.dtype}",
            f"one of {size} bytes",
            "the type of the array",
        )
    if not count:
        return memory
    length = integer(count[0], f"a count from 0 to {len(memory)}")
    if not 0 <= length <= len(memory):
        raise refusal(f"a count from 0 to {len(memory)}", length)
    return memory[:length]


def dest_of(dest: Any, size: int) -> int:
    """Return a destination as a rank or PROC_NULL, also that of mpi4py."""
    expected = f"a dest from 0 to {size - 1} or PROC_NULL"
    return peer_of(dest, size, expected, {"PROC_NULL": PROC_NULL})


def source_of(source: Any, size: int) -> int:
    """Return a source as a rank, ANY or PROC_NULL, also those of mpi4py."""
    names = {"PROC_NULL": PROC_NULL, "ANY_SOURCE": ANY}
    expected = f"a source from 0 to {size - 1}, ANY or PROC_NULL"
    return peer_of(source, size, expected, names)


def peer_of(peer: Any, size: int, expected: str, names: dict[str, int]) -> int:
    """Return a rank of a communicator, or one of the constants of `names`."""
    number = integer(peer, expected)
    if 0 <= number < size or number in names.values():
        return peer
    if mpi := mpi4py():
        for name, value in names.items():
            if number == getattr(mpi, name):
                return value
    raise refusal(expected, peer, "a rank of the communicator")


def tag_of(tag: Any, receives: bool = False) -> int:
    """Return a tag; ANY, also that of mpi4py, in a receive."""
    expected = f"a tag from 0 to {TAG_UB}" + (" or ANY" if receives else "")
    number = integer(tag, expected)
    if 0 <= number <= TAG_UB or (receives and number == ANY):
        return tag
    if receives and (mpi := mpi4py()) and number == mpi.ANY_TAG:
        return ANY
    raise refusal(expected, tag, "another tag")


def color_of(color: Any) -> int:
    """Return the color of a Split."""
    expected = "a color of at least 0 or UNDEFINED"
    number = integer(color, expected)
    if 0 <= number < 2**31 or number == UNDEFINED:
        return number
    raise refusal(expected, color, "another color")


def null_comm() -> Any:
    """Return the result of a Split of UNDEFINED, whose truth value is false."""
    mpi = mpi4py()
    return None if mpi is None else mpi.COMM_NULL


def integer(value: Any, expected: str) -> int:
    """Return a Python or NumPy integer as an int."""
    try:
        return index(value)
    except TypeError as error:
        raise refusal(expected, repr(value), "an integer") from error


def refusal(expected: str, got: Any, advice: str = "an array") -> BadInput:
    return BadInput(f"expected {expected}, got {got}; pass {advice}")


def sent_nbytes(buffer: Any, dest: Any) -> int:
    """Return the number of bytes of a send; 0 to PROC_NULL, and if it is not valid."""
    try:
        return 0 if dest < 0 else memory_of(buffer).nbytes
    except (BadInput, TypeError):
        return 0


def truncated(source: int) -> BadInput:
    """Return the error of a message that is longer than its buffer."""
    return BadInput(
        "message truncated: expected one that fits into the buffer, got a longer one "
        f"from rank {source}; pass a longer buffer, or equal lengths and dtypes on all "
        "ranks"
    )


def set_status(status: Any, source: int, tag: int, count: int) -> None:
    """Set the fields of a Status, or of a status of mpi4py.

    Raises:
      BadInput: The message was cut, which a status of mpi4py cannot contain, or
        `status` has another type.
    """
    if isinstance(status, Status):
        status.source, status.tag, status.count = source, tag, count
        return
    mpi = mpi4py()
    if mpi is None or not isinstance(status, mpi.Status):
        got = f"a {type(status).__name__}"
        raise refusal("a status of dml.types or mpi4py", got, "dml.types.Status()")
    if count == TOO_LONG:
        raise truncated(source)
    names = {ANY: mpi.ANY_SOURCE, PROC_NULL: mpi.PROC_NULL}
    status.Set_source(names.get(source, source))
    status.Set_tag(mpi.ANY_TAG if tag == ANY else tag)
    status.Set_elements(mpi.BYTE, max(count, 0))
    status.Set_cancelled(count == WITHDRAWN)


def check_nbytes(
    status: Status, rank: int, least: int, most: int | None = None
) -> None:
    """Refuse a message of fewer than `least` or more than `most` bytes.

    Args:
      status: Status of the message.
      rank: Receiver.
      least: Smallest number of bytes.
      most: Largest number of bytes; None: `least`.
    """
    count, nbytes = status.count, least if most is None else most
    if least <= count <= nbytes:
        return
    expected = f"{nbytes}" if least == nbytes else f"{least} to {nbytes}"
    got = f"one of {count} bytes" if count >= 0 else "a longer one"
    raise BadInput(
        f"rank {rank}: expected a message of {expected} bytes from rank "
        f"{status.source}, got {got}; start all ranks with equal flags"
    )
