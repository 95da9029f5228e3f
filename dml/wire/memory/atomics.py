"""Atomic operations on elements of arrays, for compiled loops.

Atomic sums, locks and turns are built on compare and swap. A worker that waits yields
its core, because there may be more workers than cores.
"""

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

SPINS = 100  # reads before a waiting worker yields its core
LINE = 8  # int64 in a cache line, so that no two flags share a line
_yield = types.ExternalFunction("sched_yield", types.int32())


def _place(context, builder, kind, array, i):
    """Return a pointer to array[i] of a contiguous array."""
    data = context.make_array(kind)(context, builder, array).data
    return builder.gep(data, [i])


@intrinsic
def compare_and_swap(typing, array, i, expected, new):
    """Set array[i] to `new` if it has the bits of `expected`; return whether it had."""
    kind = array.dtype

    def emit(context, builder, signature, arguments):
        bits = ir.IntType(kind.bitwidth)
        place = _place(context, builder, signature.args[0], *arguments[:2])
        place = builder.bitcast(place, bits.as_pointer())
        expected, new = (builder.bitcast(value, bits) for value in arguments[2:])
        pair = builder.cmpxchg(place, expected, new, "seq_cst", "seq_cst")
        return builder.extract_value(pair, 1)

    return types.boolean(array, types.intp, kind, kind), emit


@intrinsic
def load(typing, array, i):
    """Return the integer array[i], loaded with acquire ordering."""

    def emit(context, builder, signature, arguments):
        place = _place(context, builder, signature.args[0], *arguments)
        return builder.load_atomic(place, "acquire", array.dtype.bitwidth // 8)

    return array.dtype(array, types.intp), emit


@intrinsic
def store(typing, array, i, new):
    """Set array[i] to an integer with release ordering."""

    def emit(context, builder, signature, arguments):
        place = _place(context, builder, signature.args[0], *arguments[:2])
        size = array.dtype.bitwidth // 8
        builder.store_atomic(arguments[2], place, "release", size)
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), emit


@intrinsic
def prefetch_for_write(typing, array, i):
    """Prefetch the cache line of array[i] for a write."""

    def emit(context, builder, signature, arguments):
        place = _place(context, builder, signature.args[0], *arguments)
        integer, place = ir.IntType(32), builder.bitcast(place, cgutils.voidptr_t)
        kind = ir.FunctionType(ir.VoidType(), [place.type, integer, integer, integer])
        name = "llvm.prefetch.p0"
        call = cgutils.get_or_insert_function(builder.module, kind, name)
        builder.call(call, [place, *(integer(flag) for flag in (1, 3, 1))])
        return context.get_dummy_value()

    return types.void(array, types.intp), emit


@njit(nogil=True, cache=True)
def add(array, i, delta):
    """Add delta to array[i] by compare and swap, repeated until it succeeds."""
    old = array[i]
    while not compare_and_swap(array, i, old, array.dtype.type(old + delta)):
        old = array[i]


@njit(nogil=True, cache=True)
def acquire(locks, i):
    """Acquire lock i; wait until it is free."""
    reads = 0
    while not compare_and_swap(locks, i, 0, 1):
        reads += 1
        if reads % SPINS == 0:
            _yield()


@njit(nogil=True, cache=True)
def release(locks, i):
    """Release lock i."""
    store(locks, i, 0)


@njit(nogil=True, cache=True)
def wait_for(array, i, least):
    """Wait until array[i] >= least."""
    reads = 0
    while load(array, i) < least:
        reads += 1
        if reads % SPINS == 0:
            _yield()


@njit(nogil=True, cache=True)
def barrier(flags, me, count):
    """Wait until all workers have called; each worker counts its calls in its flag."""
    calls = flags[me * LINE] + 1
    store(flags, me * LINE, calls)
    for other in range(count):
        wait_for(flags, other * LINE, calls)


@njit(nogil=True, cache=True)
def spin(array, reads):
    """Read array[0] `reads` times: work of equal duration on every core."""
    for _ in range(reads):
        load(array, 0)
