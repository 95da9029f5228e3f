"""Real ranks train as virtual ones and as one worker do, and leave no memory behind."""

import pytest


@pytest.mark.parametrize(
    "size, command, said",
    [
        (3, ["glove_main"], "6 ways have their bits on 3 ranks\n"),
        (4, ["server_main"], "all agree\n"),
        (3, ["sparse_main", "well"], "16 runs agree\n"),
    ],
)
def test_strategies_keep_their_bits_on_real_ranks(mpirun, size, command, said):
    ended = mpirun(size, *command, timeout=100)
    assert ended == (0, said, "", 0)


@pytest.mark.parametrize("end", ("raise", "kill"))
def test_windows_are_gone_however_a_run_ends(mpirun, end):
    ended = mpirun(3, "sparse_main", end, timeout=30)
    assert ended.code != 0
    assert ("as asked" in ended.err) == (end == "raise")
    assert ended.left == 0
