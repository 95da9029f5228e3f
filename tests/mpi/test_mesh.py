"""A mesh over processes: one device a rank, joined by wire.mesh.devices.start."""

import pytest


@pytest.mark.parametrize("axes", [(2, 1), (1, 2)])
def test_ranks_of_a_mesh_train_as_one_worker_does(mpirun, axes):
    ended = mpirun(2, "mesh_main", *axes, timeout=60)
    assert (ended.code, ended.err) == (0, "")
    # gloo itself says before whom it has met
    assert ended.out.endswith("a mesh of {} x {} is as one worker\n".format(*axes))
