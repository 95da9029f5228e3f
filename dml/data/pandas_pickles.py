"""Read columns of a pickled pandas table without pandas.

A pickle names classes and functions to call, and none of them is called: each object is
a Placeholder with its arguments and state. Arrays are then made from the placeholders
of numpy's constructors, with dtypes of numbers, or from lists: a pickle can also
describe an array of objects over bytes, which are pointers to any address.
"""

import lzma
import math
import pickle
from typing import IO, Any

import numpy as np

NUMBERS = "biufcM"  # kinds of dtypes
MALFORMED = (pickle.UnpicklingError, lzma.LZMAError, EOFError)


class Placeholder:
    """The arguments and the state of an object whose class is not imported."""

    state: Any = None

    def __init__(self, *args: Any):
        self.args = args

    def __setstate__(self, state: Any) -> None:
        self.state = state


class Reader(pickle.Unpickler):
    """An unpickler whose objects are Placeholders, except slices."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "slice"):
            return slice
        if module.split(".")[0] == "numpy":
            return type(name, (Placeholder,), {})
        return Placeholder


def array(made: Any) -> np.ndarray:
    """Return the array of a Placeholder of numpy's `_frombuffer` or `_reconstruct`."""
    kind = type(made).__name__
    if kind == "_frombuffer":
        data, dtype, shape, order = made.args
    elif kind == "_reconstruct":
        _, shape, dtype, is_fortran, data = made.state
        order = "F" if is_fortran else "C"
    else:
        raise ValueError(f"an array made by {kind}")
    if isinstance(data, list):  # of objects, here names
        names = np.empty(len(data), object)
        names[:] = data
        return names.reshape(shape, order=order)
    found = np.dtype(dtype.args[0])
    if found.kind not in NUMBERS:
        raise ValueError(f"an array of {found}")
    found = found.newbyteorder(dtype.state[1] if dtype.state else "=")
    flat = np.frombuffer(data, found, math.prod(shape))
    return flat.reshape(shape, order=order)


def columns(file: IO[bytes], names: list[str]) -> list[np.ndarray]:
    """Return columns by name from an xz-compressed pickle of a pandas table."""
    # a block of a table: the values of the columns of one dtype, and their indices
    try:
        with lzma.open(file) as pickled:
            blocks, axes = Reader(pickled).load().state["_mgr"].args[:2]
        all_names = array(axes[0].args[1]["data"]).tolist()
        arrays = {}
        for block in blocks:
            values_CxN, selection = array(block.args[0]), block.args[1]
            if not isinstance(selection, slice):
                selection = array(selection)
            indices = np.arange(len(all_names))[selection]
            for index, values in zip(indices, values_CxN, strict=True):
                arrays[all_names[index]] = values
        return [arrays[name] for name in names]
    except (*MALFORMED, AttributeError, TypeError, ValueError, LookupError) as error:
        raise ValueError(f"expected a pickled pandas table, got {error}") from None
