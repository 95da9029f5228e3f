"""Averaging on real ranks has the bits of averaging on virtual ranks."""

from dml import sim
from tests.mpi import averaging_main


def test_real_and_virtual_ranks_average_alike_also_with_faults(mpirun, tmp_path):
    ended = mpirun(5, "averaging_main", tmp_path / "rank")
    assert (ended.code, ended.err) == (0, "")
    virtual = sim.run(averaging_main.averaged, 5)
    for rank, values in enumerate(virtual):
        assert (tmp_path / f"rank{rank}").read_text() == repr(values)
