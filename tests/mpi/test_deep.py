"""Deep networks on real ranks: a mesh of processes, and a run that is ended."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

ROOT = Path(__file__).parents[2]
MPIRUN = Path(sys.executable).with_name("mpirun")


def test_two_processes_have_the_bits_of_two_devices_of_one(mpirun, tmp_path):
    ended = mpirun(2, "deep_main", tmp_path / "two.npz", tmp_path / "a", timeout=90)
    assert (ended.code, ended.err) == (0, "")
    # gloo itself says before whom it has met
    assert ended.out.endswith("a mesh of ranks is as one worker\n")
    command = [sys.executable, "-m", "tests.mpi.deep_main"]
    devices = {"JAX_NUM_CPU_DEVICES": "2", "JAX_PLATFORMS": "cpu"}
    subprocess.run(
        [*command, tmp_path / "one.npz", tmp_path / "b"],
        cwd=ROOT,
        env=os.environ | devices,
        check=True,
        timeout=90,
    )
    one, two = (np.load(tmp_path / f"{name}.npz") for name in ("one", "two"))
    for name in one.files:
        np.testing.assert_array_equal(one[name], two[name])


def test_a_run_that_is_told_to_end_saves_and_ends_well(tmp_path):
    command = [
        *(MPIRUN, "-n", "2", sys.executable, "experiments/vision.py"),
        *("--data=digits", "--model=mlp", "--steps=4000", "--strategy=mesh"),
        *("--timeline=0", "--check_every=1000", f"--out={tmp_path / 'run'}"),
    ]
    env = os.environ | {"DML_DATA": str(tmp_path), "OMP_NUM_THREADS": "1"}
    run = subprocess.Popen(command, cwd=ROOT, env=env)
    rows = tmp_path / "run/metrics.jsonl"
    while not (rows.exists() and rows.stat().st_size) and run.poll() is None:
        time.sleep(0.05)
    run.send_signal(signal.SIGTERM)
    assert run.wait(60) == 0
    summary = json.loads((tmp_path / "run/summary.json").read_text())
    assert 0 < summary["steps"] < 4000
    assert [path.name for path in (tmp_path / "run/checkpoints").iterdir()] == [
        f"step-{summary['steps']}"
    ]
