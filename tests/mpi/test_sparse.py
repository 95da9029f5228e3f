"""One table of real ranks: the bits of one worker, and no memory left behind."""

import pytest


@pytest.mark.parametrize("size", (2, 4))
def test_ranks_and_threads_have_the_bits_of_one_worker(mpirun, size):
    ended = mpirun(size, "sparse_main", "well")
    assert ended.code == 0, ended.err
    assert ended.out == "16 runs agree\n"
    assert ended.left == 0


@pytest.mark.parametrize("end", ("raise", "kill"))
def test_windows_are_gone_however_a_run_ends(mpirun, end):
    ended = mpirun(3, "sparse_main", end, timeout=30)
    assert ended.code != 0
    assert ("as asked" in ended.err) == (end == "raise")
    assert ended.left == 0
