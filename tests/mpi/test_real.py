"""Real ranks: the suite of the virtual ones again."""

import os

import pytest

from dml import sim
from dml.wire.collectives import ALLREDUCE
from tests.mpi import conformance_main

BYTES_2_31 = (1 << 31) + 20


# Five ranks fold one rank into a power of two of two rounds; more ranks than cores poll
# in each other's way, and virtual ranks have all other sizes.
@pytest.mark.parametrize("size, amount", [(2, "all"), (3, "all"), (5, "some")])
def test_every_allreduce_conforms_on_real_ranks(mpirun, tmp_path, size, amount):
    path = tmp_path / "found"
    ended = mpirun(size, "conformance_main", "conforms", amount, path, timeout=100)
    assert (ended.code, ended.err) == (0, "")
    assert ended.out == f"all-reduces conform on {size} ranks\n"
    assert path.read_text() == repr(sim.run(conformance_main.agreed, size))


def test_two_allreduces_of_every_name_are_under_way_at_once(mpirun):
    ended = mpirun(3, "conformance_main", "progresses", timeout=100)
    assert (ended.code, ended.err) == (0, "")
    names = sorted(ALLREDUCE.keys() - {"native"})
    assert ended.out.splitlines() == [
        f"{name} is under way on 3 ranks" for name in names
    ]


def test_buffers_of_more_than_2_31_bytes_are_reduced(mpirun):
    if os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") < 12 << 30:
        pytest.skip("two ranks need 12 GB of free memory for such buffers")
    ended = mpirun(2, "conformance_main", "large", timeout=100)
    assert (ended.code, ended.err) == (0, "")
    assert sorted(ended.out.splitlines()) == [
        f"rank {rank}: {BYTES_2_31} bytes by {name}"
        for rank in range(2)
        for name in ("broadcast", "ring", "shared")
    ]
