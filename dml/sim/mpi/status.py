"""The status of a message."""

from typing import Any

import numpy as np

from dml.sim.mpi.datatypes import CODES
from dml.types import ANY, UNDEFINED


class Status:
    """Source, tag, error and size of a message."""

    def __init__(self, status: "Status | None" = None):
        if status is not None and not isinstance(status, Status):
            raise TypeError(f"expected a Status, got a {type(status).__name__}")
        # source, tag, error, cancelled and two halves of the number of bytes
        self.fields = np.zeros(6, np.int32)
        self.fields[:2] = ANY
        self.elements: int | None = None  # of Set_elements, as its type may have none
        if status is not None:
            self.fields[:] = status.fields

    @property
    def nbytes(self) -> int:
        return int(self.fields[4:].view(np.int64)[0])

    @nbytes.setter
    def nbytes(self, number: int) -> None:
        self.fields[4:].view(np.int64)[0] = number

    def fill(self, source: int = ANY, tag: int = ANY, nbytes: int = 0) -> None:
        """Set all fields, without an error."""
        self.fields[:4] = source, tag, 0, 0
        self.nbytes = nbytes

    def Get_source(self) -> int:
        return int(self.fields[0])

    def Set_source(self, source: int) -> None:
        self.fields[0] = source

    def Get_tag(self) -> int:
        return int(self.fields[1])

    def Set_tag(self, tag: int) -> None:
        self.fields[1] = tag

    def Get_error(self) -> int:
        return int(self.fields[2])

    def Set_error(self, error: int) -> None:
        self.fields[2] = error

    def Get_count(self, datatype: Any = None) -> int:
        """Return the number of whole elements; UNDEFINED if it is no integer."""
        kind = CODES["B"] if datatype is None else datatype
        size = kind.Get_size()
        if not size:
            return 0 if not self.nbytes else UNDEFINED
        count, rest = divmod(self.nbytes, size)
        return UNDEFINED if rest else count

    def Get_elements(self, datatype: Any) -> int:
        """Return the number of basic elements."""
        return datatype.need("Status.Get_elements").layout.elements(self.nbytes)

    def Set_elements(self, datatype: Any, count: int) -> None:
        layout = datatype.need("Status.Set_elements").layout
        each = layout.elements(layout.size)
        self.nbytes = count * layout.size // each if each else 0

    def Is_cancelled(self) -> bool:
        return bool(self.fields[3])

    def Set_cancelled(self, flag: bool) -> None:
        self.fields[3] = flag

    source = property(Get_source, Set_source)
    tag = property(Get_tag, Set_tag)
    error = property(Get_error, Set_error)
    cancelled = property(Is_cancelled, Set_cancelled)

    @property
    def count(self) -> int:
        return self.nbytes

    @count.setter
    def count(self, number: int) -> None:
        self.nbytes = number

    def tomemory(self) -> memoryview:
        array: Any = self.fields  # see `memory.buffer.cast`
        return memoryview(array)

    def py2f(self) -> list[int]:
        return [int(field) for field in self.fields]

    @classmethod
    def f2py(cls, arg: list[int]) -> "Status":
        status = cls()
        status.fields[:] = arg
        return status

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Status) and self.py2f() == other.py2f()

    __hash__ = None  # type: ignore[assignment]

    def __reduce__(self) -> Any:
        return unpickled, (type(self), self.py2f())


def unpickled(kind: type[Status], fields: list[int]) -> Status:
    return kind.f2py(fields)
