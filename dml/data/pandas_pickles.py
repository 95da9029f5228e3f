"""BATCH: columns of a pickled pandas table, without pandas.

A file (xz) and names in, an array a name out. Nothing that the file names is run but
numpy's own ways to make arrays: for all else stands a Part, which keeps what it got.
"""

import lzma
import pickle
from typing import IO, Any

import numpy as np

RUN = {
    "dtype": np.dtype,
    "ndarray": np.ndarray,
    "_frombuffer": np.empty(1).__reduce_ex__(5)[0],
    "_reconstruct": np.empty(1).__reduce__()[0],
}


class Part:
    """Stands for whatever pandas would have made."""

    def __init__(self, *args: Any):
        self.args = args

    def __setstate__(self, state: Any) -> None:
        self.state = state


class Reader(pickle.Unpickler):
    """Reads numpy's arrays, and Parts that hold them."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == ("builtins", "slice"):
            return slice
        return RUN.get(name, Part) if module.split(".")[0] == "numpy" else Part


def columns(file: IO[bytes], names: list[str]) -> list[np.ndarray]:
    """Return those columns of a table that pandas pickled, compressed by xz."""
    try:
        with lzma.open(file) as opened:
            blocks, axes = Reader(opened).load().state["_mgr"].args[:2]
        places = axes[0].args[1]["data"].tolist()
        found = {}
        for block in blocks:
            values_CxN, at = block.args[:2]
            for column, values in zip(
                np.arange(len(places))[at], values_CxN, strict=True
            ):
                found[places[column]] = values
        return [found[name] for name in names]
    except (pickle.UnpicklingError, lzma.LZMAError, AttributeError, TypeError) as error:
        raise ValueError(
            f"expected a table as pandas pickles it, got {error}"
        ) from None
