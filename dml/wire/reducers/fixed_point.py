"""Sums of floating-point terms that do not depend on the order of addition.

    terms of a block      3.2e-3   -1.5e-2   …  on every rank
    exponent of the block     all-reduce of the maximum, a byte per 512 elements
    integers                  round(term · 2^shift), |integer| ≤ 2^30 / most
    sum                       all-reduce of integers: associative, so exact
    result                    sum / 2^shift

Every all-reduce, on any number of ranks, returns the same bytes (SwitchML, Sapio 2021,
has the arithmetic). The scale depends on `most`, not on the number of ranks: V terms
have the same sum whether one rank has them all or V ranks have one each.

Rounding error of a term: 2^-25 of the largest value of its block with 32 bits and
most = 64. A block whose values are all below 2^-97 is rounded to multiples of 2^-120.
A block with a NaN or an infinity becomes NaN.

Words: those of the all-reduce, for elements of `bits` bits; plus a byte per block,
unless one addition has all terms of a block: in shared memory, by a ring of two ranks.
"""

from collections.abc import Sequence

import numpy as np

from dml.types import AllReduce, BadInput, Comm, Reducer, Rows
from dml.wire.collectives import ALLREDUCE
from dml.wire.collectives.auto import candidates_of, chosen_allreduce
from dml.wire.collectives.butterfly import butterfly_allreduce
from dml.wire.collectives.ring import ring_gather, ring_scatter
from dml.wire.collectives.sum_parts import sum_parts
from dml.wire.comm.buffers import (
    TreeLayout,
    allocate,
    flat,
    is_registered,
    registered_views,
)
from dml.wire.comm.plain import as_comm
from dml.wire.plans.fixed_point import BLOCK, MOST, check_most, integer_shift
from dml.wire.plans.topology import chunks
from dml.wire.reducers.fixed_point_loops import (
    add_received,
    add_whole_blocks,
    add_wide_integers,
    block_exponents,
    from_integers,
    from_wide_integers,
    sum_blocks,
    to_integers,
)
from dml.wire.reducers.rows import indices

Length = dict[int, None]
SEGMENT = 1 << 18  # elements converted, summed and converted back while in a cache
# least number of elements of a segment that a ring sums, and of a rank's part of it
RING_SEGMENT, RING_PART = 1 << 22, 1 << 16


def order_free(allreduce: AllReduce, bits: int = 32, most: int = 0) -> Reducer:
    """Return the reducer whose result is independent of ranks and all-reduce.

    Args:
      allreduce: A value of `dml.wire.collectives.ALLREDUCE`.
      bits: Size of the integers. 32 sends as many bytes as float32, 64 sends twice as
        many and rounds to 2^-47 of the largest value of a block.
      most: Largest number of terms, a power of two; 0: 64 for 32 bits, else 65,536.
    """
    if bits not in MOST:
        raise BadInput(f"expected integers of 32 or 64 bits, got {bits}; correct it")
    most = most or MOST[bits]
    check_most(most)
    sums = FixedPoint(allreduce, bits, most)

    # The state is constant: the length of the gradient, in a tree without leaves.
    def init(layout: TreeLayout) -> Length:
        return {layout.length: None}

    def reduce(comm: Comm, buffer: np.ndarray, state: Length) -> Length:
        comm = as_comm(comm)
        for part in parts(buffer, state):
            sums.reduce(comm, buffer[part])
        return state

    def reduce_terms(comm: Comm, terms: Sequence[np.ndarray], state: Length) -> Length:
        comm = as_comm(comm)
        for part in parts(terms[0], state):
            sums.reduce_terms(comm, [term[part] for term in terms])
        return state

    def parts(buffer: np.ndarray, state: Length) -> list[slice]:
        (length,) = state
        # scalars, such as the loss, have blocks of their own
        both = slice(0, length), slice(length, len(buffer))
        return [part for part in both if part.start < part.stop]

    def reduce_parts(
        comm: Comm, terms: Sequence[np.ndarray], owned: Sequence[slice], state: Length
    ) -> Length:
        regions = parts(terms[0], state)
        sums.reduce_parts(as_comm(comm), terms, owned, regions)
        return state

    return Reducer(init, reduce, sums.combine, reduce_terms, reduce_parts)


def exact_sum(
    comm: Comm, buffer: np.ndarray, algorithm: str = "auto", *, terms: int = MOST[32]
) -> None:
    """Replace a float32 buffer by the sum over all ranks, with the bits of exact_psum.

    Args:
      comm: The ranks; a communicator of mpi4py, too.
      buffer: The term of this rank.
      algorithm: Name in `dml.ALLREDUCE`; the bits do not depend on it.
      terms: Largest number of terms, a power of two; the bits depend on it.
    """
    comm = as_comm(comm)
    check_most(terms)
    sums = FixedPoint(ALLREDUCE[algorithm], 32, terms)
    sums.reduce(comm, flat(comm, buffer))


class FixedPoint:
    """Sums of float32 terms as integers; see the module.

    Args:
      allreduce: Sums the integers of all ranks.
      bits: Size of the integers, 32 or 64.
      most: Largest number of terms.
    """

    def __init__(self, allreduce: AllReduce, bits: int, most: int):
        self.allreduce, self.most, self.wide = allreduce, most, bits == 64
        self.shift = integer_shift(bits, most)  # an integer is at most 2^shift
        # of 64-bit integers, by communicator, which is kept: ids are used again
        self.memory: dict[int, tuple[Comm, np.ndarray]] = {}

    def reduce(self, comm: Comm, buffer: np.ndarray) -> None:
        """Sum the buffers of all ranks in place."""
        if self.sums_in_place(comm, buffer):
            self.check(comm, buffer, 1)
            self.reduce_in_place(comm, buffer)
        elif self.uses("ring", comm, buffer):
            self.check(comm, buffer, 1)
            self.reduce_by_ring(comm, buffer)
        else:
            self.reduce_terms(comm, [buffer])

    def check(self, comm: Comm, term: np.ndarray, count: int) -> None:
        """Raise BadInput unless terms are float32 and few enough.

        Args:
          comm: The ranks.
          term: A term.
          count: Largest number of terms of a rank.
        """
        if term.dtype != np.float32:
            raise BadInput(
                f"rank {comm.rank}: expected float32 for an order-free sum, got "
                f"{term.dtype}; pass --reduce=exact"
            )
        if comm.size * count >= 2 * self.most:  # twice as many would overflow
            raise BadInput(
                f"rank {comm.rank}: expected at most {self.most} terms, got {count} on "
                f"each of {comm.size} ranks; pass --reduce=order_free:64"
            )

    def reduce_terms(self, comm: Comm, terms: Sequence[np.ndarray]) -> None:
        """Sum the terms of all ranks into the first of this rank's terms."""
        self.check(comm, terms[0], 1)
        memory = self.wide_memory(comm) if self.wide else None
        for start in range(0, terms[0].size, SEGMENT):
            segments = [term[start : start + SEGMENT] for term in terms]
            counted = np.append(
                block_exponents(segments), np.uint8(min(len(terms), 255))
            )
            self.allreduce(comm, counted, op=np.maximum)
            exponents, most = counted[:-1], int(counted[-1])
            # order matters: after the all-reduce, so that all ranks raise or none does
            self.check(comm, terms[0], most)
            integers = self.add_up(segments, exponents, memory)
            self.allreduce(comm, integers, op=np.add)
            self.to_floats(integers, exponents, segments[0])

    def reduce_by_ring(self, comm: Comm, buffer: np.ndarray) -> None:
        """Sum as `ring_allreduce` does; conversions take no passes over memory."""
        if comm.size == 2:
            self.reduce_two_terms(comm, buffer)
            return
        step = max(RING_SEGMENT, comm.size * RING_PART)
        for start in range(0, len(buffer), step):
            self.reduce_segment_by_ring(comm, buffer[start : start + step])

    def reduce_two_terms(self, comm: Comm, buffer: np.ndarray) -> None:
        """Sum by a ring of two ranks, whose one addition finds exponents, too."""
        bits = buffer.view(np.int32)
        blocks = chunks(-(-len(bits) // BLOCK), comm.size)
        parts = [slice(part.start * BLOCK, part.stop * BLOCK) for part in blocks]

        def add(own: np.ndarray, received: np.ndarray, out: np.ndarray) -> None:
            add_whole_blocks(own, received, self.shift)

        ring_scatter(comm, bits, parts, add)
        ring_gather(comm, buffer, parts)

    def reduce_segment_by_ring(self, comm: Comm, term: np.ndarray) -> None:
        """Sum a segment of a term of each of several ranks.

        Terms become integers when they are added: the part that is received first is
        still a float32 term. The last addition to a part, which this rank then sends
        to all, converts its sum to float32.
        """
        exponents = block_exponents([term])
        butterfly_allreduce(comm, exponents, np.maximum)
        bits = term.view(np.int32)
        parts = chunks(len(bits), comm.size)
        base, shift = bits.ctypes.data, self.shift
        first, last = parts[comm.rank - 1], parts[(comm.rank + 1) % comm.size]

        def add(own: np.ndarray, received: np.ndarray, out: np.ndarray) -> None:
            at = (own.ctypes.data - base) // bits.itemsize
            ends = first.start <= at < first.stop, last.start <= at < last.stop
            add_received(own, received, at, exponents, shift, *ends)

        ring_scatter(comm, bits, parts, add)
        ring_gather(comm, term, parts)

    def reduce_parts(
        self,
        comm: Comm,
        terms: Sequence[np.ndarray],
        owned: Sequence[slice],
        regions: Sequence[slice],
    ) -> None:
        """Sum part owned[r] of the terms of all ranks into rank r's first term.

        Args:
          comm: The ranks.
          terms: Terms of this rank.
          owned: The part of each rank.
          regions: Parts of a term with blocks of their own.
        """
        self.check(comm, terms[0], 1)
        counts = [np.uint8(min(len(terms), 255))]
        exponents = [block_exponents([t[region] for t in terms]) for region in regions]
        counted = np.concatenate([*exponents, counts])
        self.allreduce(comm, counted, op=np.maximum)
        self.check(comm, terms[0], int(counted[-1]))
        integers = np.empty(len(terms[0]), np.int64) if self.wide else None
        edges = np.cumsum([0, *map(len, exponents)])
        blocks = [counted[a:b] for a, b in zip(edges, edges[1:], strict=False)]
        for region, each in zip(regions, blocks, strict=True):
            memory = None if integers is None else integers[region]
            self.add_up([term[region] for term in terms], each, memory)
        total = terms[0].view(np.int32) if integers is None else integers
        sum_parts(comm, total, owned)
        own = owned[comm.rank]
        for region, each in zip(regions, blocks, strict=True):
            # all blocks of which the part has an element
            first = max(own.start - region.start, 0) // BLOCK
            last = -(-max(min(own.stop, region.stop) - region.start, 0) // BLOCK)
            if first < last:
                start = region.start + first * BLOCK
                covered = slice(start, min(region.start + last * BLOCK, region.stop))
                self.to_floats(total[covered], each[first:last], terms[0][covered])

    def sums_in_place(self, comm: Comm, buffer: np.ndarray) -> bool:
        """Return whether each rank sums a chunk of all ranks' registered buffers."""
        return is_registered(comm, buffer) and self.uses("shared", comm, buffer)

    def uses(self, name: str, comm: Comm, buffer: np.ndarray) -> bool:
        """Return whether 32-bit integers of several ranks have this all-reduce."""
        if self.wide or comm.size == 1:
            return False
        if among := candidates_of(self.allreduce):
            return chosen_allreduce(comm, buffer, among) == name
        return self.allreduce is ALLREDUCE[name]

    def reduce_in_place(self, comm: Comm, buffer: np.ndarray) -> None:
        """Sum as `shared_allreduce` does: blocks of all ranks are read only once."""
        registered = registered_views(comm, buffer)
        assert registered
        window, buffers = registered
        blocks = chunks(-(-buffer.size // BLOCK), comm.size)[comm.rank]
        chunk = slice(blocks.start * BLOCK, blocks.stop * BLOCK)
        window.barrier(comm.platform.pause)
        sum_blocks(tuple(part[chunk].view(np.int32) for part in buffers), self.shift)
        window.barrier(comm.platform.pause)

    def add_up(
        self,
        terms: Sequence[np.ndarray],
        exponents: np.ndarray,
        memory: np.ndarray | None,
    ) -> np.ndarray:
        """Return the sum of one rank's terms as integers.

        32-bit integers replace the terms in their memory; 64-bit integers need other
        memory.
        """
        if memory is None:
            total, *others = [term.view(np.int32) for term in terms]
            for integers in (total, *others):
                to_integers(integers, exponents, self.shift)
            for integers in others:
                total += integers
            return total
        total = memory[: terms[0].size]
        total[:] = 0
        for term in terms:
            add_wide_integers(total, term, exponents, self.shift)
        return total

    def to_floats(
        self, integers: np.ndarray, exponents: np.ndarray, values: np.ndarray
    ) -> None:
        """Convert a sum to float32; `values` is the memory of the first term."""
        if self.wide:
            from_wide_integers(integers, exponents, self.shift, values)
        else:
            from_integers(integers, exponents, self.shift)

    def wide_memory(self, comm: Comm) -> np.ndarray:
        """Return registered memory for a segment; collective when first called."""
        if id(comm) not in self.memory:
            self.memory[id(comm)] = comm, allocate(comm, SEGMENT, np.int64)
        return self.memory[id(comm)][1]

    def combine(self, terms: Sequence[Rows]) -> Rows:
        """Return the sum of an update's terms on a server, in any order of arrival."""
        if len(terms) >= 2 * self.most:
            raise BadInput(
                f"expected at most {self.most} gradients in an update, got "
                f"{len(terms)}; pass --reduce=order_free:64"
            )
        rows = np.unique(np.concatenate([indices(index) for index, _ in terms]))
        width = terms[0].values.shape[1]
        dense = np.zeros((len(terms), rows.size * width), np.float32)
        for line, (index, values) in zip(dense, terms, strict=True):
            line.reshape(-1, width)[np.searchsorted(rows, indices(index))] = values
        exponents = block_exponents(list(dense))
        memory = np.empty(dense.shape[1], np.int64) if self.wide else None
        integers = self.add_up(list(dense), exponents, memory)
        self.to_floats(integers, exponents, dense[0])
        return Rows(rows.astype(np.int32), dense[0].reshape(-1, width))
