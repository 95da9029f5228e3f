"""Atomic operations of a processor on arrays, for compiled loops.

Compare and swap makes atomic sums, locks and turns. A worker that waits yields its
core: there may be more workers than cores.
"""

from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic

PATIENCE = 100  # reads before a core is yielded
LINE = 8  # int64 in a cache line: flags of two workers never share one
_yield = types.ExternalFunction("sched_yield", types.int32())


def _place(context, builder, array, numbers, i):
    """Return a pointer to numbers[i] of a contiguous array."""
    data = context.make_array(array)(context, builder, numbers).data
    return builder.gep(data, [i])


@intrinsic
def swapped(typing, numbers, i, expected, new):
    """numbers[i] ← new if it has the bits of expected; return whether it had."""
    kind = numbers.dtype

    def emit(context, builder, signature, arguments):
        bits = ir.IntType(kind.bitwidth)
        place = _place(context, builder, signature.args[0], *arguments[:2])
        place = builder.bitcast(place, bits.as_pointer())
        old, later = (builder.bitcast(one, bits) for one in arguments[2:])
        pair = builder.cmpxchg(place, old, later, "seq_cst", "seq_cst")
        return builder.extract_value(pair, 1)

    return types.boolean(numbers, types.intp, kind, kind), emit


@intrinsic
def load(typing, numbers, i):
    """Load an integer numbers[i] with acquire ordering."""

    def emit(context, builder, signature, arguments):
        place = _place(context, builder, signature.args[0], *arguments)
        return builder.load_atomic(place, "acquire", numbers.dtype.bitwidth // 8)

    return numbers.dtype(numbers, types.intp), emit


@intrinsic
def store(typing, numbers, i, new):
    """Store an integer in numbers[i] with release ordering."""

    def emit(context, builder, signature, arguments):
        place = _place(context, builder, signature.args[0], *arguments[:2])
        size = numbers.dtype.bitwidth // 8
        builder.store_atomic(arguments[2], place, "release", size)
        return context.get_dummy_value()

    return types.void(numbers, types.intp, numbers.dtype), emit


@intrinsic
def claim(typing, numbers, i):
    """Prefetch the cache line of numbers[i] for a write."""

    def emit(context, builder, signature, arguments):
        place = _place(context, builder, signature.args[0], *arguments)
        whole, place = ir.IntType(32), builder.bitcast(place, cgutils.voidptr_t)
        kind = ir.FunctionType(ir.VoidType(), [place.type, whole, whole, whole])
        name = "llvm.prefetch.p0"
        call = cgutils.get_or_insert_function(builder.module, kind, name)
        builder.call(call, [place, *(whole(flag) for flag in (1, 3, 1))])
        return context.get_dummy_value()

    return types.void(numbers, types.intp), emit


@njit(nogil=True, cache=True)
def add(numbers, i, delta):
    """numbers[i] += delta by compare and swap, repeated until it succeeds."""
    old = numbers[i]
    while not swapped(numbers, i, old, numbers.dtype.type(old + delta)):
        old = numbers[i]


@njit(nogil=True, cache=True)
def acquire(locks, i):
    """Wait until a lock is free; acquire it."""
    looks = 0
    while not swapped(locks, i, 0, 1):
        looks += 1
        if looks % PATIENCE == 0:
            _yield()


@njit(nogil=True, cache=True)
def release(locks, i):
    """Release a lock."""
    store(locks, i, 0)


@njit(nogil=True, cache=True)
def wait_for(numbers, i, least):
    """Wait until numbers[i] >= least."""
    looks = 0
    while load(numbers, i) < least:
        looks += 1
        if looks % PATIENCE == 0:
            _yield()


@njit(nogil=True, cache=True)
def meet(flags, me, count):
    """Wait until all workers have called: a barrier. Each counts calls in its flag."""
    mine = flags[me * LINE] + 1
    store(flags, me * LINE, mine)
    for other in range(count):
        wait_for(flags, other * LINE, mine)


@njit(nogil=True, cache=True)
def idle(numbers, looks):
    """Read a number `looks` times: work that takes equally long on every core."""
    for _ in range(looks):
        load(numbers, 0)
