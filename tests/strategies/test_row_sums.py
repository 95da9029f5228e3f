"""Rows of other ranks that are not rows of the table are refused with the rank."""

import numpy as np
import pytest

from dml import sim
from dml.strategies.loops.row_sums import RowSums, merge
from dml.types import BadInput, Rows
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm import Metered
from dml.wire.reducers.exact import exact
from tests.commands import PYTHON, output

T, WIDTH = 9, 3


def row_sums(comm, rows=T, width=WIDTH):
    table = np.zeros((rows, width), np.float32)
    return RowSums(Metered(comm), exact(ALLREDUCE["ring"]), never, table)


def never(buffer, nbytes):
    return False


def terms(rank, bad=None):
    """Return the gradient of a rank, with a bad row number at a position."""
    index = np.array([rank, 8, 4 - rank], np.int32)
    if bad is not None:
        index[rank % 3] = bad
    return [Rows(index, np.full((3, WIDTH), rank + 1, np.float32))]


@pytest.mark.parametrize("bad", (T, -1, -T, 2**31 - 1, -(2**31)))
@pytest.mark.parametrize("odd", range(4))
def test_a_row_number_out_of_range_is_refused_on_all_ranks(odd, bad):
    def program(comm):
        sums = row_sums(comm)
        with pytest.raises(BadInput) as refused:
            sums.add_up(terms(comm.rank, bad if comm.rank == odd else None))
        assert (sums.slot == -1).all()  # the next sums are not changed
        good = sums.add_up(terms(comm.rank))
        return str(refused.value), good

    fresh = sim.run(lambda comm: row_sums(comm).add_up(terms(comm.rank)), 4)
    for rank, (error, good) in enumerate(sim.run(program, 4)):
        assert error.startswith(
            f"rank {rank}: expected rows of 0 to 8 from rank {odd}, got row {bad};"
        )
        assert good.index.tolist() == fresh[rank].index.tolist()
        assert (good.values == fresh[rank].values).all()


def test_a_rank_with_no_rows_before_the_bad_one_is_not_named():
    def program(comm):
        sums = row_sums(comm)
        own = terms(2, bad=99) if comm.rank == 2 else [None]
        with pytest.raises(BadInput, match="from rank 2, got row 99"):
            sums.add_up(own)

    sim.run(program, 4)


def test_the_kernel_neither_reads_nor_writes_outside_of_its_arrays():
    memory = np.full(3 * T, -1, np.int32)
    slot, rows = memory[T : 2 * T], np.zeros(4, np.int32)
    sums = np.zeros((4, 1), np.float32)
    for bad in (-1, T, -T, 2 * T - 1):
        index = np.array([1, 2, bad, 3], np.int32)
        assert merge(index, np.ones((4, 1), np.float32), slot, rows, sums) == -3
        assert (memory == -1).all()


def test_a_table_of_another_shape_is_refused_before_the_first_exchange():
    def program(comm, shape):
        with pytest.raises(BadInput) as refused:
            row_sums(comm, *shape if comm.rank == 1 else (12, 4))
        return str(refused.value)

    for shape in ((12, 5), (13, 4), (16, 3), (4, 12)):  # the last two: equal lengths
        for error in sim.run(lambda comm, shape=shape: program(comm, shape), 3):
            assert "for 12 rows of 4 sent columns, rank 1 has" in error
            assert f"for {shape[0]} rows of {shape[1]} sent columns;" in error


@pytest.mark.parametrize("length, got", [(-8, "a length of 0"), (7, "records of 4")])
def test_a_length_that_no_rows_have_is_refused(monkeypatch, length, got):
    def program(comm):
        sums = row_sums(comm)
        if comm.rank == 1:  # a rank with another program
            sums.comm = Lying(sums.comm, length)
        with pytest.raises(BadInput, match=f"rank {comm.rank}: expected {got}.*rank 1"):
            sums.add_up(terms(comm.rank))

    sim.run(program, 3)


class Lying(Metered):
    """Sends another length than that of its part."""

    def __init__(self, comm, length):
        super().__init__(comm)
        self.lie = length

    def Sendrecv(self, sendbuf, *arguments):
        if sendbuf.dtype == np.int64:
            own = sendbuf.base if sendbuf.base is not None else sendbuf
            own[1] = self.lie
        super().Sendrecv(sendbuf, *arguments)


def test_the_strategy_of_tables_imports_no_jax_without_saved_memory():
    program = "import sys; from dml.strategies.loops.row_sums import restore_memory"
    program += (
        "; assert restore_memory(None, 7, None) == 7 and 'jax' not in sys.modules"
    )
    output(PYTHON, "-c", program)
