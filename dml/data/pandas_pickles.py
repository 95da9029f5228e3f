"""Read columns of a pickled pandas table without pandas.

Of the classes and functions named in the pickle only numpy's array constructors are
called; all others are replaced by Placeholders that store their arguments.
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
    """Stores the arguments of a pandas constructor."""

    def __init__(self, *args: Any):
        self.args = args

    def __setstate__(self, state: Any) -> None:
        self.state = state


class Reader(pickle.Unpickler):
    """Unpickles numpy arrays, and Placeholders for all other classes."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "slice"):
            return slice
        if module.split(".")[0] == "numpy":
            return CONSTRUCTORS.get(name, Placeholder)
        return Placeholder


def columns(file: IO[bytes], names: list[str]) -> list[np.ndarray]:
    """Return columns by name from an xz-compressed pickle of a pandas table."""
    try:
        with lzma.open(file) as pickled:
            blocks, axes = Reader(pickled).load().state["_mgr"].args[:2]
        places = axes[0].args[1]["data"].tolist()
        arrays = {}
        for block in blocks:
            values_CxN, at = block.args[:2]
            for column, values in zip(
                np.arange(len(places))[at], values_CxN, strict=True
            ):
                arrays[places[column]] = values
        return [arrays[name] for name in names]
    except (pickle.UnpicklingError, lzma.LZMAError, AttributeError, TypeError) as error:
        raise ValueError(f"expected a pickled pandas table, got {error}") from None
