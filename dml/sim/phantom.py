"""A buffer that has a size and no content, for huge models on virtual ranks.

It is sliced, sent and reduced like other buffers, in the same virtual time, and takes
the memory of one element.
"""

from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from dml.types.messages import WRITEABLE

FLAGS = SimpleNamespace(c_contiguous=True, forc=True, num=WRITEABLE, writeable=True)


class Phantom(np.ndarray):
    """Phantom(nbytes, dtype): a vector of nbytes bytes that stores no values."""

    def __new__(cls, nbytes: int, dtype: Any = np.uint8) -> "Phantom":
        element = np.zeros(1, dtype)
        length = nbytes // element.itemsize
        return as_strided(element, (length,), (0,)).view(cls)

    @property
    def flags(self) -> Any:
        return FLAGS

    def view(self, dtype: Any = None, *more: Any) -> Any:  # type: ignore[override]
        if dtype is None or isinstance(dtype, type) and issubclass(dtype, np.ndarray):
            return super().view(dtype or type(self), *more)
        return Phantom(self.nbytes, dtype)

    def copy(self, order: Any = "C") -> "Phantom":
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        """No-op: no values are stored."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any):
        """No-op: return the output array unchanged."""
        return options.get("out", (self,))[0]

    def __array_function__(self, func: Any, types: Any, args: Any, options: Any) -> Any:
        if func is np.empty_like:
            return args[0][:]
        return super().__array_function__(func, types, args, options)
