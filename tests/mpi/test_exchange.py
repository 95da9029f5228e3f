"""An exchange of examples on real ranks."""


def test_real_ranks_exchange_the_examples_of_virtual_ranks(mpirun):
    size = 3
    ended = mpirun(size, "exchange_main")
    assert (ended.code, ended.err) == (0, "")
    assert sorted(ended.out.splitlines()) == [f"rank {r} agrees" for r in range(size)]
