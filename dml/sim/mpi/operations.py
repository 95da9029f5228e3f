"""Operations of reductions: the predefined ones, and functions of the program."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dml.sim.mpi.constants import error
from dml.sim.mpi.datatypes import TypeHandle
from dml.sim.mpi.handles import NAMED, Handle, name_handle
from dml.sim.mpi.layouts import DatatypeLayout
from dml.sim.mpi.memory import buffer
from dml.sim.mpi.ranks import current

MAX_CREATED = 32  # operations of a program that are not freed, as in mpi4py

ARRAYS: dict[str, Callable[..., Any]] = {  # of (left, right, out=right)
    "SUM": np.add,
    "PROD": np.multiply,
    "MAX": np.maximum,
    "MIN": np.minimum,
    "LAND": np.logical_and,
    "LOR": np.logical_or,
    "LXOR": np.logical_xor,
    "BAND": np.bitwise_and,
    "BOR": np.bitwise_or,
    "BXOR": np.bitwise_xor,
}
KINDS = {  # kinds of NumPy's dtypes for which MPI defines an operation
    **dict.fromkeys(("SUM", "PROD"), "iufc"),
    **dict.fromkeys(("MAX", "MIN"), "iuf"),
    **dict.fromkeys(("LAND", "LOR", "LXOR"), "iub"),
    **dict.fromkeys(("BAND", "BOR", "BXOR"), "iub"),
    **dict.fromkeys(("REPLACE", "NO_OP"), "iufcbSUV"),
}


def located(first: Any, second: Any, better: bool, equal: bool) -> tuple[Any, Any]:
    """Return the better pair of a value and an index; of equal ones the lower index."""
    (x, i), (y, j) = first, second
    if equal:
        return (x, i) if i <= j else (y, j)
    return (x, i) if better else (y, j)


OBJECTS: dict[str, Callable[[Any, Any], Any]] = {
    "SUM": lambda x, y: x + y,
    "PROD": lambda x, y: x * y,
    "MAX": lambda x, y: y if y > x else x,
    "MIN": lambda x, y: y if y < x else x,
    "LAND": lambda x, y: bool(x) & bool(y),
    "LOR": lambda x, y: bool(x) | bool(y),
    "LXOR": lambda x, y: bool(x) ^ bool(y),
    "BAND": lambda x, y: x & y,
    "BOR": lambda x, y: x | y,
    "BXOR": lambda x, y: x ^ y,
    "MAXLOC": lambda u, v: located(u, v, u[0] > v[0], u[0] == v[0]),
    "MINLOC": lambda u, v: located(u, v, u[0] < v[0], u[0] == v[0]),
    "REPLACE": lambda x, y: y,
    "NO_OP": lambda x, y: x,
}


class Operation:
    """The object of an Op."""

    def __init__(
        self, name: str, function: Callable[..., Any] | None, commutes: bool
    ) -> None:
        self.name, self.function, self.commutes = name, function, commutes


class Op(Handle):
    """An operation of mpi4py, which also combines two objects when it is called."""

    null_error = "ERR_OP"

    @classmethod
    def Create(cls, function: Callable[..., Any], commute: bool = False) -> "Op":
        """Return an operation of a function(inbuf, inoutbuf, datatype)."""
        if not callable(function):
            raise TypeError(
                f"Op.Create: expected a function, got a {type(function).__name__}"
            )
        rank = current()
        if rank.operations >= MAX_CREATED:
            raise RuntimeError(
                f"Op.Create: expected at most {MAX_CREATED} operations at a time, got "
                "one more; free some"
            )
        rank.operations += 1
        return Op.of(Operation("", function, bool(commute)))

    def Free(self) -> None:
        if self.need("Op.Free").name:
            raise error("ERR_OP", "Op.Free: expected an operation of Op.Create")
        current().operations -= 1
        self.held = None

    def Is_commutative(self) -> bool:
        return self.need("Op.Is_commutative").commutes

    is_commutative = property(Is_commutative)

    @property
    def is_predefined(self) -> bool:
        return self.held is None or bool(self.held.name)

    def __call__(self, x: Any, y: Any, /) -> Any:
        if self.held is None:
            raise ValueError("expected an operation, got OP_NULL")
        if self.held.name:
            return OBJECTS[self.held.name](x, y)
        return self.held.function(x, y, None)

    def Reduce_local(self, inbuf: Any, inoutbuf: Any) -> None:
        """Combine two buffers: inoutbuf = inbuf op inoutbuf."""
        from dml.sim.mpi.reductions import reduce_local

        reduce_local(self, inbuf, inoutbuf)

    def __reduce__(self) -> Any:
        if self.held is not None and not self.held.name:
            if self.held.function is None:
                raise ValueError("expected an operation with a function")
            return Op.Create, (self.held.function, self.held.commutes)
        return super().__reduce__()


Op.root = Op


class UserFunction:
    """A function of Op.Create as an operation of arrays of elements."""

    def __init__(
        self, function: Callable[..., Any], datatype: Any, layout: DatatypeLayout
    ):
        self.function, self.datatype, self.layout = function, datatype, layout

    def __call__(self, left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
        layout, count = self.layout, len(left)
        if layout.dense:
            memories = [side.view(np.uint8).view(buffer) for side in (left, right)]
            self.function(*memories, self.datatype)
            return
        indices = layout.indices(0, count)
        spread = []
        for side in (left, right):
            memory = np.zeros(count * layout.extent, np.uint8)
            memory[indices] = side.view(np.uint8)
            spread.append(memory.view(buffer))
        self.function(*spread, self.datatype)
        right.view(np.uint8)[:] = np.asarray(spread[1])[indices]


def select(pick: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Callable[..., Any]:
    """Return MAXLOC or MINLOC of arrays of pairs, by a function of two values."""

    def apply(left: np.ndarray, right: np.ndarray, out: np.ndarray) -> None:
        x, y = left["value"], right["value"]
        better = pick(x, y) | ((x == y) & (left["index"] < right["index"]))
        right[better] = left[better]

    return apply


ARRAYS["MAXLOC"], ARRAYS["MINLOC"] = select(np.greater), select(np.less)
ARRAYS["REPLACE"] = lambda left, right, out: None
ARRAYS["NO_OP"] = lambda left, right, out: right.__setitem__(slice(None), left)


def array_operation(
    op: Op, layout: DatatypeLayout, datatype: TypeHandle | None
) -> tuple[Callable[..., Any], np.dtype]:
    """Return a function of (left, right, out=right), and the dtype of its arrays."""
    held = op.need("a reduction")
    if not held.name:
        function = UserFunction(held.function, datatype, layout)
        return function, np.dtype(f"V{layout.size}")
    pairs = held.name in ("MAXLOC", "MINLOC")
    if pairs and layout.basic is None and len(layout.sizes) == 2:
        (_, value), (_, index) = layout.sizes
        if value.basic is not None and index.basic is not None:
            # without the gap of the aligned pair: messages have no gaps
            return ARRAYS[held.name], np.dtype(
                [("value", value.basic), ("index", index.basic)]
            )
    if pairs and layout.basic is not None and layout.size == 2 * layout.basic.itemsize:
        kind = layout.basic
        return ARRAYS[held.name], np.dtype([("value", kind), ("index", kind)])
    basic = layout.basic
    if basic is None or basic.kind not in KINDS.get(held.name, ""):
        raise error(
            "ERR_OP",
            f"expected a datatype for MPI.{held.name}, got "
            f"{datatype.Get_name() if datatype is not None else basic}",
        )
    return ARRAYS[held.name], basic


for name in OBJECTS:
    name_handle(name, Op.of(Operation(name, None, name not in ("REPLACE", "NO_OP"))))
name_handle("OP_NULL", Op.of(None))
OPS = {name: NAMED[name] for name in (*OBJECTS, "OP_NULL")}
