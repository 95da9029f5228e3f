"""Arrays of any dtypes and shapes as one buffer of bytes, and back."""

import json
import math
from collections.abc import Callable, Sequence

import numpy as np

LENGTH = 8  # bytes of the length of the description


def empty(nbytes: int) -> np.ndarray:
    """Return a new buffer."""
    return np.empty(nbytes, np.uint8)


def pack(
    arrays: Sequence[np.ndarray], allocate: Callable[[int], np.ndarray] = empty
) -> np.ndarray:
    """Return a buffer: length of the description, description, bytes of the arrays.

    Args:
      arrays: Arrays; the description has their dtypes and shapes.
      allocate: number of bytes -> buffer.
    """
    values = [np.asarray(array) for array in arrays]
    kinds = [[array.dtype.name, array.shape] for array in values]
    head = np.frombuffer(json.dumps(kinds).encode(), np.uint8)
    start = LENGTH + len(head)
    buffer = allocate(start + sum(array.nbytes for array in values))
    buffer[:LENGTH].view(np.int64)[0] = len(head)
    buffer[LENGTH:start] = head
    for array in values:
        stop = start + array.nbytes
        buffer[start:stop] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        start = stop
    return buffer


def unpack(buffer: np.ndarray) -> list[np.ndarray]:
    """Return copies of the arrays of a buffer of `pack`."""
    start = LENGTH + int(buffer[:LENGTH].view(np.int64)[0])
    arrays = []
    for name, shape in json.loads(buffer[LENGTH:start].tobytes()):
        array = np.frombuffer(buffer, name, math.prod(shape), start)
        arrays.append(array.reshape(shape).copy())
        start += array.nbytes
    return arrays
