"""Meshes over processes: one device a rank, joined by wire.mesh.devices.start."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np


def test_ranks_of_a_mesh_train_as_one_worker_and_as_two_devices_of_one(
    mpirun, tmp_path
):
    ended = mpirun(2, "mesh_main", tmp_path / "two.npz", tmp_path / "a", timeout=120)
    assert (ended.code, ended.err) == (0, "")
    # gloo itself says before whom it has met
    lines = [f"a mesh of {axes} is as one worker\n" for axes in ("2 x 1", "1 x 2")]
    assert ended.out.endswith("".join(lines))
    command = [sys.executable, "-m", "tests.mpi.mesh_main"]
    devices = {"JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu"}
    subprocess.run(
        [*command, tmp_path / "one.npz", tmp_path / "b"],
        cwd=Path(__file__).parents[2],
        env=os.environ | devices,
        check=True,
        timeout=90,
    )
    one, two = (np.load(tmp_path / f"{name}.npz") for name in ("one", "two"))
    for name in one.files:
        np.testing.assert_array_equal(one[name], two[name])
