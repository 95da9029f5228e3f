"""Memory of buffers: arrays, objects with a buffer, and mpi4py's `buffer`."""

import ctypes
from typing import Any, Self

import numpy as np

from dml.sim.mpi.constants import left_out
from dml.sim.mpi.dlpack import from_dlpack
from dml.types.messages import as_vector

BYTE = np.dtype(np.uint8)
ABSOLUTE = np.zeros(0, BYTE)  # the memory of BOTTOM, whose displacements are addresses
NATIVE = "@=|" + ("<" if np.little_endian else ">")


class buffer(np.ndarray):
    """Bytes of memory: mpi4py's `MPI.buffer`."""

    source: Any
    start: int | None = None  # address of `fromaddress`

    def __new__(cls, buf: Any = b"") -> Self:
        return cls.frombuffer(buf)

    @classmethod
    def allocate(cls, nbytes: int, clear: bool = False) -> Self:
        if nbytes < 0:
            raise ValueError(f"expected at least 0 bytes, got {nbytes}")
        return np.zeros(nbytes, np.uint8).view(cls)

    @classmethod
    def frombuffer(cls, buf: Any, readonly: bool = False) -> Self:
        memory, _ = memory_of(buf, readonly=True)
        made = memory.view(cls)
        made.source = buf
        if readonly:
            made.flags.writeable = False
        return made

    @classmethod
    def fromaddress(cls, address: int, nbytes: int, readonly: bool = False) -> Self:
        if nbytes < 0 or (nbytes and not address):
            raise ValueError(f"expected memory of at least 0 bytes, got {nbytes}")
        kind = ctypes.c_ubyte * nbytes
        found: Any = kind.from_address(address or 1)
        memory = np.frombuffer(found, np.uint8).view(cls)
        memory.start = address
        if readonly:
            memory.flags.writeable = False
        return memory

    @property
    def address(self) -> int:
        return self.__array_interface__["data"][0] if self.start is None else self.start

    @property
    def obj(self) -> Any:
        return getattr(self, "source", self)

    @property
    def readonly(self) -> bool:
        return not self.flags.writeable

    format = "B"

    def cast(self, format: Any, shape: Any = None) -> memoryview:
        array: Any = self  # NumPy's types for Python 3.11 have no buffer protocol
        whole: Any = memoryview(array)
        return whole.cast(format) if shape is None else whole.cast(format, shape)

    def tobytes(self, order: Any = None) -> bytes:
        return super().tobytes()

    def toreadonly(self) -> Self:
        made = self[:]
        made.flags.writeable = False
        made.source = self.obj
        return made

    def release(self) -> None:
        """Do nothing: the memory is freed with its last reference."""

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        return found if isinstance(found, np.ndarray) else int(found)

    def __setitem__(self, key: Any, value: Any) -> None:
        if not isinstance(value, int):
            value = memory_of(value, readonly=True)[0]
        super().__setitem__(key, value)

    def __eq__(self, other: Any) -> Any:
        try:
            return bytes(self) == bytes(memory_of(other, readonly=True)[0])
        except (TypeError, ValueError):
            return NotImplemented

    def __ne__(self, other: Any) -> Any:
        return not self == other

    __hash__ = None

    def __bool__(self) -> bool:
        return len(self) > 0


def memory_of(data: Any, readonly: bool) -> tuple[np.ndarray, str]:
    """Return the bytes of a buffer, and the code of its type.

    Args:
      data: An array, an object with a buffer or a DLPack tensor in the memory of the
        processor; None, for no bytes; or BOTTOM.
      readonly: Whether read-only memory is accepted.

    Raises:
      TypeError: It has no memory.
      BufferError: The memory is not contiguous, read-only, or not of native order.
    """
    if data is None:
        return np.zeros(0, BYTE), "B"
    if data is BOTTOM:
        return ABSOLUTE, "B"
    if isinstance(data, np.ndarray):
        array = data
    elif hasattr(data, "__dlpack__") and not is_buffer(data):
        memory, code = from_dlpack(data)
        if not (readonly or memory.flags.writeable):
            raise BufferError("expected a writeable buffer, got a read-only tensor")
        return memory, code
    else:
        array = array_of(data)
    if not array.flags.forc:
        raise BufferError(
            f"expected a contiguous array, got strides {array.strides} of shape "
            f"{array.shape}; pass a contiguous copy"
        )
    if not (readonly or array.flags.writeable):
        raise BufferError(
            "expected a writeable buffer, got a read-only one; pass a copy"
        )
    dtype = array.dtype
    if dtype.hasobject:
        return np.zeros(0, BYTE), "O"
    code = dtype.char if dtype.byteorder in NATIVE else f"{dtype.byteorder}{dtype.char}"
    if dtype.kind in "SVU":
        code = f"{dtype.itemsize}{dtype.kind}" if dtype.itemsize > 1 else "c"
    vector = as_vector(array)
    if vector.__class__ is not np.ndarray:
        vector = vector.view(np.ndarray)
    return (vector if dtype is BYTE else bytes_of(vector)), code


def is_buffer(data: Any) -> bool:
    try:
        return bool(memoryview(data).format)
    except TypeError:
        return False


def bytes_of(vector: np.ndarray) -> np.ndarray:
    """View a vector as bytes, also if it has none."""
    return vector.view(BYTE) if vector.itemsize else np.zeros(0, BYTE)


def array_of(data: Any) -> np.ndarray:
    """Return the memory of an object as an array."""
    try:
        view = memoryview(data)
    except TypeError:
        if hasattr(data, "__cuda_array_interface__"):
            raise left_out(f"a buffer of a GPU ({type(data).__name__})") from None
        if hasattr(data, "__array__") or hasattr(data, "__array_interface__"):
            return np.asarray(data)
        raise TypeError(
            f"expected a buffer such as a NumPy array, got a {type(data).__name__}; "
            "pass an array, or call the method in lower case for objects"
        ) from None
    if not view.contiguous:
        raise BufferError("expected a contiguous buffer, got a memoryview with steps")
    code = view.format.strip("@=") if view.format else "B"
    flat = np.frombuffer(view.cast("B") if view.nbytes else b"", np.uint8)
    try:
        dtype = np.dtype(code if code != "c" else "S1")
    except TypeError:
        dtype = np.dtype(f"V{view.itemsize}")
    return flat.view(dtype) if view.nbytes else np.zeros(0, dtype)


class Special(int):
    """A constant in the place of a buffer."""

    name = ""

    def __repr__(self) -> str:
        return self.name

    def __reduce__(self) -> Any:
        return constant, (self.name,)


class BottomType(Special):
    """The type of BOTTOM, the address 0."""

    name = "BOTTOM"


class InPlaceType(Special):
    """The type of IN_PLACE."""

    name = "IN_PLACE"


class BufferAutomaticType(Special):
    """The type of BUFFER_AUTOMATIC."""

    name = "BUFFER_AUTOMATIC"


BOTTOM, IN_PLACE, BUFFER_AUTOMATIC = (
    BottomType(),
    InPlaceType(-1),
    BufferAutomaticType(-2),
)
SPECIAL = {one.name: one for one in (BOTTOM, IN_PLACE, BUFFER_AUTOMATIC)}


def constant(name: str) -> Any:
    """Return a special buffer by name, for pickles."""
    return SPECIAL[name]
