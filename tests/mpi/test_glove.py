"""Real ranks train as virtual ones do, and rotation as serial does."""

import pytest


@pytest.mark.parametrize("size", (2, 3))
def test_ways_of_training_keep_their_bits_on_real_ranks(mpirun, size):
    ended = mpirun(size, "glove_main", timeout=100)
    assert (ended.code, ended.err, ended.left) == (0, "", 0)
    assert ended.out == f"6 ways have their bits on {size} ranks\n"
