"""A mesh over processes: one device a rank, joined by wire.mesh.devices.start."""


def test_ranks_of_a_mesh_train_as_one_worker_does(mpirun):
    ended = mpirun(2, "mesh_main", timeout=60)
    assert (ended.code, ended.err) == (0, "")
    # gloo itself says before whom it has met
    lines = [f"a mesh of {axes} is as one worker\n" for axes in ("2 x 1", "1 x 2")]
    assert ended.out.endswith("".join(lines))
