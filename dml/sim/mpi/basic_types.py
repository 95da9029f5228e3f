"""The predefined datatypes by mpi4py's names, and by codes of NumPy."""

from typing import Any

import numpy as np

from dml.sim.mpi import layouts
from dml.sim.mpi.constants import CONSTANTS, error
from dml.sim.mpi.datatypes import CODES, PREDEFINED, Contents, TypeObject
from dml.sim.mpi.handles import name_handle
from dml.sim.mpi.packing import Datatype

# names of each type; the first is that of MPI; (NumPy's code, mpi4py's code)
TYPES = {
    "CHAR": ("S1", "c"),
    "WCHAR": ("U1", "U"),
    "SIGNED_CHAR": ("b", "b"),
    "SHORT SIGNED_SHORT": ("h", "h"),
    "INT SIGNED_INT": ("i", "i"),
    "LONG SIGNED_LONG": ("l", "l"),
    "LONG_LONG SIGNED_LONG_LONG": ("q", "q"),
    "UNSIGNED_CHAR": ("B", "B"),
    "UNSIGNED_SHORT": ("H", "H"),
    "UNSIGNED UNSIGNED_INT": ("I", "I"),
    "UNSIGNED_LONG": ("L", "L"),
    "UNSIGNED_LONG_LONG": ("Q", "Q"),
    "FLOAT FLOAT32_T": ("f", "f"),
    "DOUBLE FLOAT64_T": ("d", "d"),
    "LONG_DOUBLE": ("g", "g"),
    "C_BOOL BOOL": ("?", "b1"),
    "INT8_T SINT8_T": ("i1", "i1"),
    "INT16_T SINT16_T": ("i2", "i2"),
    "INT32_T SINT32_T": ("i4", "i4"),
    "INT64_T SINT64_T": ("i8", "i8"),
    "UINT8_T": ("u1", "u1"),
    "UINT16_T": ("u2", "u2"),
    "UINT32_T": ("u4", "u4"),
    "UINT64_T": ("u8", "u8"),
    "FLOAT16_T": ("f2", "e"),
    "C_COMPLEX C_FLOAT_COMPLEX": ("F", "F"),
    "C_DOUBLE_COMPLEX": ("D", "D"),
    "C_LONG_DOUBLE_COMPLEX": ("G", "G"),
    "CXX_BOOL": ("?", "?"),
    "CXX_FLOAT_COMPLEX": ("F", "F"),
    "CXX_DOUBLE_COMPLEX": ("D", "D"),
    "CXX_LONG_DOUBLE_COMPLEX": ("G", "G"),
    "CHARACTER": ("S1", "c"),
    "LOGICAL F_BOOL": ("i", "i"),
    "INTEGER F_INT": ("i", "i"),
    "REAL F_FLOAT": ("f", "f"),
    "DOUBLE_PRECISION F_DOUBLE": ("d", "d"),
    "COMPLEX F_COMPLEX F_FLOAT_COMPLEX": ("F", "F"),
    "DOUBLE_COMPLEX F_DOUBLE_COMPLEX": ("D", "D"),
    "LOGICAL1": ("b", "b"),
    "LOGICAL2": ("h", "h"),
    "LOGICAL4": ("i", "i"),
    "LOGICAL8": ("l", "l"),
    "INTEGER1": ("i1", "i1"),
    "INTEGER2": ("i2", "i2"),
    "INTEGER4": ("i4", "i4"),
    "INTEGER8": ("i8", "i8"),
    "REAL2": ("f2", "e"),
    "REAL4": ("f4", "f4"),
    "REAL8": ("f8", "f8"),
    "COMPLEX8": ("c8", "c8"),
    "COMPLEX16": ("c16", "c16"),
    "BYTE": ("B", "B"),
    "PACKED": ("B", "B"),
    "AINT": ("p", "p"),
    "OFFSET": ("p", "p"),
    "COUNT": ("p", "p"),
}
LONG_DOUBLE = np.dtype("g").itemsize
if LONG_DOUBLE > 8:
    TYPES |= {"REAL16": ("g", "g"), "COMPLEX32": ("G", "G")}
PAIRS = {  # of MINLOC and MAXLOC: a value and an index
    "SHORT_INT": "h",
    "INT_INT TWOINT": "i",
    "LONG_INT": "l",
    "FLOAT_INT": "f",
    "DOUBLE_INT": "d",
    "LONG_DOUBLE_INT": "g",
}
MISSING: tuple[str, ...] = ("LOGICAL16", "INTEGER16", "COMPLEX4", "BFLOAT16_T")
MISSING += () if LONG_DOUBLE > 8 else ("REAL16", "COMPLEX32")
BY_NAME: dict[str, Datatype] = {}  # by mpi4py's names


def pair_dtype(code: str) -> np.dtype:
    """Return the dtype of a value and an index, aligned as in C."""
    return np.dtype([("value", code), ("index", "i")], align=True)


def fill() -> None:
    """Make the predefined types."""
    for names, (character, code) in TYPES.items():
        first = names.split()[0]
        named = {"LONG_LONG": "LONG_LONG_INT"}.get(first, first)
        made = TypeObject(layouts.basic(character), Contents("NAMED", {}))
        made.name, made.code = f"MPI_{named}", code
        handle = Datatype.of(made)
        for name in names.split():
            BY_NAME[name] = handle
        PREDEFINED[id(made)] = name_handle(first, handle)
    for names, code in PAIRS.items():
        dtype = pair_dtype(code)
        layout = layouts.blocks(
            [
                (0, 1, layouts.basic(code)),
                (dtype.fields["index"][1], 1, layouts.basic("i")),  # type: ignore[index]
            ],
            pad=True,
        )
        first = names.split()[0]
        made = TypeObject(layout, Contents("NAMED", {}))
        made.name = f"MPI_{'2INT' if first == 'INT_INT' else first}"
        handle = Datatype.of(made)
        for name in names.split():
            BY_NAME[name] = handle
        PREDEFINED[id(made)] = name_handle(first, BY_NAME[first])
    null = name_handle("DATATYPE_NULL", Datatype.of(None))
    for name in ("DATATYPE_NULL", *MISSING):
        BY_NAME[name] = null


def fill_codes() -> None:
    names = {
        **{"?": "C_BOOL", "c": "CHAR", "S": "CHAR", "b": "SIGNED_CHAR", "h": "SHORT"},
        **{"i": "INT", "l": "LONG", "q": "LONG_LONG", "p": "AINT", "n": "COUNT"},
        **{"B": "UNSIGNED_CHAR", "H": "UNSIGNED_SHORT", "I": "UNSIGNED"},
        **{"L": "UNSIGNED_LONG", "Q": "UNSIGNED_LONG_LONG", "P": "UNSIGNED_LONG"},
        **{"N": "UNSIGNED_LONG", "e": "FLOAT16_T", "f": "FLOAT", "d": "DOUBLE"},
        **{"g": "LONG_DOUBLE", "F": "C_COMPLEX", "D": "C_DOUBLE_COMPLEX"},
        **{"G": "C_LONG_DOUBLE_COMPLEX", "Zf": "C_COMPLEX", "Zd": "C_DOUBLE_COMPLEX"},
        **{"Zg": "C_LONG_DOUBLE_COMPLEX", "U": "WCHAR", "w": "WCHAR"},
        **{"u": "UINT16_T", "U1": "WCHAR", "S1": "CHAR", "b1": "C_BOOL"},
        **{f"i{n}": f"INT{8 * n}_T" for n in (1, 2, 4, 8)},
        **{f"u{n}": f"UINT{8 * n}_T" for n in (1, 2, 4, 8)},
        **{"f2": "FLOAT16_T", "f4": "FLOAT", "f8": "DOUBLE", "c8": "C_COMPLEX"},
        **{"c16": "C_DOUBLE_COMPLEX", f"f{LONG_DOUBLE}": "LONG_DOUBLE"},
        f"c{2 * LONG_DOUBLE}": "C_LONG_DOUBLE_COMPLEX",
    }
    if LONG_DOUBLE == 8:
        names |= {"f8": "DOUBLE", "c16": "C_DOUBLE_COMPLEX"}
    CODES.update({code: BY_NAME[name] for code, name in names.items()})


fill()
fill_codes()


def match_size(typeclass: int, size: int) -> Datatype:
    """Return the datatype of a class such as TYPECLASS_REAL, of a size in bytes."""
    for name in ("LOGICAL", "INTEGER", "REAL", "COMPLEX"):
        if typeclass == CONSTANTS[f"TYPECLASS_{name}"]:
            found = BY_NAME.get(f"{name}{size}")
            if found:
                return found
    raise error(
        "ERR_ARG",
        f"Datatype.Match_size: expected the size of a datatype of this class, got "
        f"{size}",
    )


def value_index(value: Datatype, index: Datatype) -> Datatype:
    """Return the datatype of pairs of a value and an index; null if there is none."""
    if not value or not index:
        raise error("ERR_TYPE", "Datatype.Get_value_index: expected two datatypes")
    for names, code in PAIRS.items():
        if index == BY_NAME["INT"] and value == CODES[code]:
            return BY_NAME[names.split()[0]]
    return BY_NAME["DATATYPE_NULL"]


def f90_type(combiner: str, name: str, **arguments: int) -> Datatype:
    """Return a datatype of Fortran's selected kinds."""
    made = TypeObject(BY_NAME[name].held.layout, Contents(combiner, arguments))
    made.code = BY_NAME[name].held.code
    return Datatype.of(made)


def f90_integer(r: int) -> Datatype:
    sizes = ((2, 1), (4, 2), (9, 4), (18, 8))
    size = next((size for digits, size in sizes if r <= digits), 0)
    if not size:
        raise error(
            "ERR_ARG", f"Datatype.Create_f90_integer: expected r <= 18, got {r}"
        )
    return f90_type("F90_INTEGER", f"INTEGER{size}", r=r)


def f90_real(p: int, r: int) -> Datatype:
    return f90_type("F90_REAL", "REAL4" if p <= 6 and r <= 37 else "REAL8", p=p, r=r)


def f90_complex(p: int, r: int) -> Datatype:
    name = "COMPLEX8" if p <= 6 and r <= 37 else "COMPLEX16"
    return f90_type("F90_COMPLEX", name, p=p, r=r)


FUNCTIONS: dict[str, Any] = {
    "Match_size": match_size,
    "Get_value_index": value_index,
    "Create_f90_integer": f90_integer,
    "Create_f90_real": f90_real,
    "Create_f90_complex": f90_complex,
}
for name, function in FUNCTIONS.items():
    setattr(Datatype, name, staticmethod(function))
