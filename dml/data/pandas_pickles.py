"""Read columns of a pickled pandas table without pandas.

A pickle names classes and functions to call. Only the array constructors of numpy are
called; all others are replaced by Placeholders, which store their arguments.
"""

import lzma
import pickle
from typing import IO, Any

import numpy as np

CONSTRUCTORS = {
    "dtype": np.dtype,
    "ndarray": np.ndarray,
    "_frombuffer": np.empty(1).__reduce_ex__(5)[0],
    "_reconstruct": np.empty(1).__reduce__()[0],
}


class Placeholder:
    """The arguments and the state of an object whose class is not imported."""

    def __init__(self, *args: Any):
        self.args = args

    def __setstate__(self, state: Any) -> None:
        self.state = state


class Reader(pickle.Unpickler):
    """An unpickler of numpy arrays; other objects become Placeholders."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "slice"):
            return slice
        if module.split(".")[0] == "numpy":
            return CONSTRUCTORS.get(name, Placeholder)
        return Placeholder


def columns(file: IO[bytes], names: list[str]) -> list[np.ndarray]:
    """Return columns by name from an xz-compressed pickle of a pandas table."""
    # a block of a table: the values of the columns of one dtype, and their indices
    try:
        with lzma.open(file) as pickled:
            blocks, axes = Reader(pickled).load().state["_mgr"].args[:2]
        all_names = axes[0].args[1]["data"].tolist()
        arrays = {}
        for block in blocks:
            values_CxN, selection = block.args[:2]
            indices = np.arange(len(all_names))[selection]  # a slice or an array
            for index, values in zip(indices, values_CxN, strict=True):
                arrays[all_names[index]] = values
        return [arrays[name] for name in names]
    except (pickle.UnpicklingError, lzma.LZMAError, AttributeError, TypeError) as error:
        raise ValueError(f"expected a pickled pandas table, got {error}") from None
