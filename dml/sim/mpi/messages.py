"""Buffer specifications of mpi4py: [data, count, displacement, type] and its kin.

A specification becomes one Block, or one for each rank. A block packs its bytes into a
vector, which is a view if they are contiguous, and unpacks a received vector.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from dml.sim.mpi.constants import error
from dml.sim.mpi.datatypes import CODES, TypeHandle
from dml.sim.mpi.layouts import DatatypeLayout
from dml.sim.mpi.memory import ABSOLUTE, buffer, memory_of

Specification = Any  # an array, or a list or tuple of up to four items


class Block(NamedTuple):
    """`number` elements of a layout from the byte `start` of a memory."""

    memory: np.ndarray
    start: int
    number: int
    layout: DatatypeLayout

    @property
    def nbytes(self) -> int:
        return self.number * self.layout.size

    def at(self, k: int) -> "Block":
        """Return the k-th of several blocks that follow one another."""
        start = self.start + k * self.number * self.layout.extent
        return self._replace(start=start)

    def pack(self) -> np.ndarray:
        """Return the bytes as a vector: a view, if they are contiguous."""
        layout = self.layout
        if layout.dense:
            return self.memory[self.start : self.start + self.number * layout.size]
        return self.memory[layout.indices(self.start, self.number)]

    def unpack(self, data: np.ndarray) -> None:
        """Store bytes, which may be fewer than those of the block."""
        layout = self.layout
        if layout.dense:
            self.memory[self.start : self.start + len(data)] = data
        else:
            indices = layout.indices(self.start, self.number)
            self.memory[indices[: len(data)]] = data

    def check(self) -> "Block":
        """Return the block; raise ValueError unless it lies within the memory.

        The start of a block of BOTTOM is an address.
        """
        if self.number and self.layout.size:
            low, high = self.layout.bounds(self.start, self.number)
            if self.memory is ABSOLUTE:
                memory = buffer.fromaddress(low, high - low).view(np.ndarray)
                return self._replace(memory=memory, start=self.start - low)
            if low < 0 or high > len(self.memory):
                raise ValueError(
                    f"expected a buffer with the bytes {low} to {high}, got one of "
                    f"{len(self.memory)} bytes; pass a longer buffer or a smaller count"
                )
        return self


def type_of(given: Any, code: str) -> TypeHandle:
    """Return the datatype of a specification, or that of the data."""
    if given is None:
        given = code
        if code[:1] in "<>":
            raise BufferError(
                f"expected data in native byte order, got {code}; pass a datatype"
            )
    if isinstance(given, str):
        try:
            return CODES[given]
        except KeyError:
            raise KeyError(f"expected a datatype, got {given!r}") from None
    if not isinstance(given, TypeHandle):
        raise TypeError(f"expected a datatype, got a {type(given).__name__}")
    return given


class Parts(NamedTuple):
    """The parts of a simple specification; None for those that it lacks."""

    data: Any
    memory: np.ndarray
    count: Any
    displacement: Any
    datatype: TypeHandle


def parts(spec: Specification, readonly: bool) -> Parts:
    """Return the parts of a specification; see `simple` and `vector`."""
    data, count, displacement, given = spec, None, None, None
    if isinstance(spec, list | tuple):
        data, count, displacement, given = split(spec)
    memory, code = memory_of(data, readonly)
    if data is None and given is None:
        given = "B"
    return Parts(data, memory, count, displacement, type_of(given, code))


def simple(spec: Specification, readonly: bool, blocks: int = 0) -> Block:
    """Return the block of a specification.

    Args:
      spec: data, [data, type], [data, count], [data, (count, displacement), type] or
        [data, count, displacement, type].
      readonly: Whether the call only reads the memory.
      blocks: Number of equal blocks, of which the first is returned; 0: one block.
    """
    data, memory, count, displacement, datatype = parts(spec, readonly)
    if datatype.held is None:
        if count or displacement or data is not None and count is None:
            raise ValueError("expected a datatype, got DATATYPE_NULL")
        datatype = CODES["B"]
    layout = datatype.held.layout
    start = 0
    if displacement is not None:
        start = int(displacement) * layout.extent
        if displacement < 0 or start > len(memory):
            raise ValueError(
                f"expected a displacement within {len(memory)} bytes, got "
                f"{displacement}"
            )
    if count is None:
        count = inferred(len(memory) - start, layout, max(blocks, 1))
    elif count < 0:
        raise ValueError(f"expected a count of at least 0, got {count}")
    whole = Block(memory, start, int(count) * max(blocks, 1), layout).check()
    return whole._replace(number=int(count)) if blocks > 1 else whole


def split(spec: Sequence[Any]) -> tuple[Any, Any, Any, Any]:
    """Return data, count, displacement and datatype of a simple specification."""
    if len(spec) == 2:
        data, second = spec
        if isinstance(second, TypeHandle | str) or second is None:
            return data, None, None, second
        return (data, *pair(second), None)
    if len(spec) == 3:
        data, second, given = spec
        return (data, *pair(second), given)
    if len(spec) == 4:
        data, count, displacement, given = spec
        return data, count, displacement, given
    raise ValueError(
        f"expected [data, count, displacement, type] or a part of it, got {len(spec)} "
        "items"
    )


def pair(counts: Any) -> tuple[Any, Any]:
    """Return (counts, displacements), of which the second may be missing."""
    if isinstance(counts, tuple) and len(counts) == 2:
        return counts
    return counts, None


def inferred(nbytes: int, layout: DatatypeLayout, blocks: int) -> int:
    """Return the count of a buffer without one."""
    if not nbytes:
        return 0
    if layout.extent <= 0:
        raise ValueError(
            f"expected a count for a datatype of extent {layout.extent}, got none"
        )
    count, rest = divmod(nbytes, layout.extent)
    if rest or count % blocks:
        raise ValueError(
            f"expected a buffer of a multiple of {layout.extent * blocks} bytes, got "
            f"{nbytes}; pass a count"
        )
    return count // blocks


def vector(spec: Specification, readonly: bool, blocks: int) -> list[Block]:
    """Return the blocks, one for each rank, of a specification with counts.

    Args:
      spec: data, [data, counts], [data, (counts, displacements), type] or
        [data, counts, displacements, type].
      readonly: Whether the call only reads the memory.
      blocks: Number of blocks.
    """
    _, memory, counts, displacements, datatype = parts(spec, readonly)
    if datatype.held is None:
        raise ValueError("expected a datatype, got DATATYPE_NULL")
    layout = datatype.held.layout
    if counts is None:
        rest = len(memory) % max(layout.extent, 1)
        if displacements is not None and (blocks > 1 or rest):
            raise ValueError("expected counts with displacements, got none")
        total = inferred(len(memory), layout, 1)
        if total % blocks:
            raise ValueError(
                f"expected a multiple of {blocks} elements, got {total}; pass counts"
            )
        counts = [total // blocks] * blocks
    counts = numbers(counts, blocks, "counts")
    if isinstance(displacements, int | np.integer):  # a stride
        displacements = [k * int(displacements) for k in range(blocks)]
    if displacements is None:
        ends = np.cumsum([0, *counts])
        displacements = [int(end) for end in ends[:-1]]
    places = numbers(displacements, blocks, "displacements")
    return [
        Block(memory, place * layout.extent, count, layout).check()
        for place, count in zip(places, counts, strict=True)
    ]


def numbers(given: Any, length: int, what: str) -> list[int]:
    """Return one integer for each of `length` ranks."""
    if isinstance(given, int | np.integer):
        return [int(given)] * length
    try:
        found = [int(number) for number in given]
    except TypeError:
        raise TypeError(
            f"expected {what} as a sequence of integers, got a {type(given).__name__}"
        ) from None
    if len(found) != length:
        raise ValueError(f"expected {length} {what}, got {len(found)}")
    return found


def typed(spec: Specification, readonly: bool, blocks: int) -> list[Block]:
    """Return the blocks of a specification with a datatype for each rank.

    The displacements of (data, (counts, displacements), types) are in bytes.
    """
    if not isinstance(spec, list | tuple) or not 2 <= len(spec) <= 4:
        raise ValueError(
            "expected [data, counts, displacements, types] or a part of it, got "
            f"{type(spec).__name__}"
        )
    data, types = spec[0], spec[-1]
    counts, displacements = None, None
    if len(spec) == 3:
        counts, displacements = pair(spec[1])
    elif len(spec) == 4:
        counts, displacements = spec[1:3]
    memory, code = memory_of(data, readonly)
    if types is None or len(types) != blocks:
        got = "none" if types is None else len(types)
        raise ValueError(f"expected {blocks} datatypes, got {got}")
    layouts = [(type_of(one, code).held or CODES["B"].held).layout for one in types]
    counts = numbers(1 if counts is None else counts, blocks, "counts")
    places = numbers(
        0 if displacements is None else displacements, blocks, "displacements"
    )
    return [
        Block(memory, place, count, layout).check()
        for place, count, layout in zip(places, counts, layouts, strict=True)
    ]


def truncation(call: str, source: int, nbytes: int) -> Exception:
    """Return the error of a message that is longer than its buffer."""
    return error(
        "ERR_TRUNCATE",
        f"{call}: expected a message of at most {nbytes} bytes from rank {source}, got "
        "a longer one; pass a longer buffer",
    )
