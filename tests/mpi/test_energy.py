"""Energy of real ranks: CPU seconds of each, counters of each host once."""

import pytest


@pytest.mark.mpi
def test_ranks_add_up_and_each_host_counts_its_gpus_once(mpirun):
    ended = mpirun(3, "energy_main", timeout=60)
    assert (ended.code, ended.err) == (0, "")
    source = "CPU time x 10 W (estimated) and NVML"
    assert ended.out.splitlines() == [
        f"{10 * (1 + 2 + 3) + 5:.3f} J by {source}",
        f"{10 * (1 + 2 + 3) + 3 * 5:.3f} J by {source}",
    ]
