"""Gradient coding on real ranks has the bits of virtual ranks without stragglers."""

from dml import sim
from tests.mpi import gradient_coding_main


def test_real_ranks_with_stragglers_have_the_bits_of_virtual_ranks(mpirun, tmp_path):
    ended = mpirun(3, "gradient_coding_main", tmp_path / "rank")
    assert (ended.code, ended.err) == (0, "")
    virtual = sim.run(
        lambda comm: gradient_coding_main.results(comm, "repetition:1"), 3
    )
    for rank, values in enumerate(virtual):
        assert (tmp_path / f"rank{rank}").read_text() == repr([values] * 2)
