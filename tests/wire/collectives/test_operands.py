"""Operations that do not commute, and 16-bit elements."""

import ml_dtypes
import numpy as np
import pytest

from dml import sim
from dml.types import BadInput
from dml.wire.collectives import ALLREDUCE, allreduce
from dml.wire.collectives.operands import commutes
from dml.wire.collectives.table import ORDERED
from dml.wire.comm import Metered

SIZES = (1, 2, 6, 9)


@pytest.mark.parametrize("dtype", ("float16", "float32", "float64", "int32", "uint8"))
def test_operations_commute_if_exchanged_operands_give_equal_results(dtype):
    for op in (np.add, np.multiply, np.maximum, np.minimum):
        assert commutes(op, np.dtype(dtype))
    for op in (np.subtract, np.greater, np.power, np.floor_divide):
        assert not commutes(op, np.dtype(dtype)) or dtype == "uint8"


@pytest.mark.parametrize("name", sorted(ALLREDUCE))
def test_an_operation_that_does_not_commute_is_in_rank_order_or_refused(name):
    """copysign: the magnitude of the first operand, the sign of the last."""
    for size in SIZES:
        rows = np.random.default_rng(size).standard_normal((size, 97))

        def program(comm, rows=rows):
            own = rows[comm.rank].copy()
            if name in ORDERED:
                allreduce(comm, own, np.copysign, name)
                assert np.array_equal(own, np.copysign(rows[0], rows[-1]))
            else:
                with pytest.raises(BadInput, match=f"the all-reduce {name}, got copys"):
                    allreduce(comm, own, np.copysign, name)

        sim.run(program, size)


@pytest.mark.parametrize("name", sorted(ALLREDUCE))
@pytest.mark.parametrize("dtype", (np.float16, ml_dtypes.bfloat16))
def test_sums_of_16_bits_are_rounded_once(name, dtype):
    """The result is the exact sum, rounded; terms with 2048 round a float16 sum."""
    for size in (2, 5):
        rows = np.random.default_rng(size).integers(-99, 99, (size, 50)) / 4.0
        rows[0] = 2048
        rows = rows.astype(dtype)
        want = rows.astype(np.float64).sum(0).astype(dtype)

        def program(comm, rows=rows, want=want):
            own = rows[comm.rank].copy()
            accumulate = np.float32 if dtype is np.float16 else None
            allreduce(comm, own, algorithm=name, accumulate=accumulate)
            assert own.dtype == dtype
            assert np.array_equal(own, want)

        sim.run(program, size)


# Bytes of all ranks for 2(p - 1)n words of float32, of which half are copies of sums.
NARROW = ("star", "tree", "ring", "halving_doubling", "swing", "trivance", "circulant")


@pytest.mark.parametrize("name", [*NARROW, "two_shot", "butterfly"])
@pytest.mark.parametrize("dtype", (np.float16, ml_dtypes.bfloat16))
def test_sums_of_16_bits_are_copied_in_16_bits(name, dtype):
    """The bits are those of an all-reduce in float32, rounded at its end."""
    for size, length in ((1, 7), (2, 9), (5, 101), (8, 4000)):
        rows = np.random.default_rng(size).standard_normal((size, length))
        rows = rows.astype(dtype)

        def program(comm, rows=rows):
            comm, own = Metered(comm), rows[comm.rank].copy()
            wide = own.astype(np.float32)
            allreduce(comm, own, algorithm=name, accumulate=np.float32)
            sent = comm.bytes_sent
            allreduce(comm, wide, algorithm=name)
            assert np.array_equal(own.view("u2"), wide.astype(dtype).view("u2"))
            return sent, comm.bytes_sent - sent

        narrow, wide = np.sum(sim.run(program, size), axis=0)
        if name == "two_shot":
            assert narrow == wide / 2
        elif name != "butterfly":
            assert narrow == wide * 3 / 4
        elif size & (size - 1) == 0:  # every message is a partial sum
            assert narrow == wide
