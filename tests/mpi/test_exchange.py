"""An exchange of examples on real ranks."""

import pytest


@pytest.mark.parametrize("size", (2, 3))
def test_real_ranks_exchange_the_examples_of_virtual_ranks(mpirun, size):
    ended = mpirun(size, "exchange_main")
    assert (ended.code, ended.err) == (0, "")
    assert sorted(ended.out.splitlines()) == [f"rank {r} agrees" for r in range(size)]
