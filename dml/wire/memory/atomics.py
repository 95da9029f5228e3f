"""Atomic operations on elements of arrays, for compiled loops.

Atomic sums and locks are built on compare and swap, barriers on loads and stores. A
worker that waits yields its core, because there may be more workers than cores.
"""

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

SPINS = 100  # reads before a waiting worker yields its core
LINE = 8  # int64 values in a cache line: distance of flags that share no line
_yield = types.ExternalFunction("sched_yield", types.int32())


def _pointer(context, builder, array_type, array, i):
    """Return a pointer to array[i] of a contiguous array."""
    data = context.make_array(array_type)(context, builder, array).data
    return builder.gep(data, [i])


@intrinsic
def compare_and_swap(typing, array, i, expected, new):
    """Set array[i] to `new` if its bits equal those of `expected`; return success."""
    dtype = array.dtype

    def emit(context, builder, signature, arguments):
        bits = ir.IntType(dtype.bitwidth)
        pointer = _pointer(context, builder, signature.args[0], *arguments[:2])
        pointer = builder.bitcast(pointer, bits.as_pointer())
        expected, new = (builder.bitcast(value, bits) for value in arguments[2:])
        pair = builder.cmpxchg(pointer, expected, new, "seq_cst", "seq_cst")
        return builder.extract_value(pair, 1)

    return types.boolean(array, types.intp, dtype, dtype), emit


@intrinsic
def load(typing, array, i):
    """Return the integer array[i], loaded with acquire ordering."""

    def emit(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], *arguments)
        return builder.load_atomic(pointer, "acquire", array.dtype.bitwidth // 8)

    return array.dtype(array, types.intp), emit


@intrinsic
def store(typing, array, i, new):
    """Set array[i] to an integer with release ordering."""

    def emit(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], *arguments[:2])
        size = array.dtype.bitwidth // 8
        builder.store_atomic(arguments[2], pointer, "release", size)
        return context.get_dummy_value()

    return types.void(array, types.intp, array.dtype), emit


@intrinsic
def prefetch_for_write(typing, array, i):
    """Prefetch the cache line of array[i] for a write."""

    def emit(context, builder, signature, arguments):
        pointer = _pointer(context, builder, signature.args[0], *arguments)
        integer = ir.IntType(32)
        pointer = builder.bitcast(pointer, cgutils.voidptr_t)
        parameters = [pointer.type, integer, integer, integer]
        function = ir.FunctionType(ir.VoidType(), parameters)
        name = "llvm.prefetch.p0"
        call = cgutils.get_or_insert_function(builder.module, function, name)
        # arguments: 1 write, 3 highest locality, 1 data cache
        builder.call(call, [pointer, *(integer(flag) for flag in (1, 3, 1))])
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
def wait_for(array, i, minimum):
    """Wait until array[i] >= minimum."""
    reads = 0
    while load(array, i) < minimum:
        reads += 1
        if reads % SPINS == 0:
            _yield()


@njit(nogil=True, cache=True)
def barrier(flags, worker, count):
    """Wait until all workers have called; each worker counts its calls in its flag.

    Args:
      flags: Flags of all workers, LINE elements apart.
      worker: Index of the calling worker.
      count: Number of workers.
    """
    calls = flags[worker * LINE] + 1
    store(flags, worker * LINE, calls)
    for other in range(count):
        wait_for(flags, other * LINE, calls)


@njit(nogil=True, cache=True)
def spin(array, reads):
    """Read array[0] `reads` times, to simulate work of that duration."""
    for _ in range(reads):
        load(array, 0)
