"""Linear models on real ranks have the bits and the words of virtual ranks."""


def test_real_ranks_have_the_bits_of_virtual_ones(mpirun):
    ended = mpirun(2, "linear_main")
    assert ended == (0, "4 methods have their bits\n", "", 0)
