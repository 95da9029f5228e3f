"""Parameter servers on real ranks."""


def test_real_servers_agree_with_one_rank(mpirun):
    ended = mpirun(4, "server_main", timeout=100)
    assert ended.code == 0, ended.err
    assert "all agree" in ended.out
