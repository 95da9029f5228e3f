"""A rank of MPICH is killed for real; the supervisor goes on with the same bits."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import vision

ROOT = Path(__file__).parents[2]
FLAGS = ["--model=mlp", "--data=digits", "--reduce=order_free", "--shards=8"]
FLAGS += ["--steps=40", "--timeline=0", "--save_every=0.001"]


@pytest.mark.mpi
def test_a_run_with_a_killed_rank_has_the_bits_of_one_without(tmp_path):
    (alone,) = vision.main(["vision.py", *FLAGS[:-1], f"--out={tmp_path / 'alone'}"])
    mpirun = Path(sys.executable).with_name("mpirun")
    options = ["--ranks=2", "--spares=0", "--attempts=3", f"--mpirun={mpirun}"]
    script = Path(__file__).with_name("elastic_main.py")
    out = tmp_path / "killed"
    places = os.pathsep.join(map(str, [ROOT / "experiments", ROOT]))
    run = subprocess.run(
        [sys.executable, ROOT / "launch/supervisor.py", *options, "--memory", script]
        + [*FLAGS, f"--out={out}"],
        env=os.environ | {"PYTHONPATH": places, "OMP_NUM_THREADS": "1", "NPROC": "1"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=1200,
    )
    assert run.returncode == 0, run.stderr
    assert re.search(r"start 1 ended .*: a rank was killed \(signal 9\)", run.stderr)
    step = int(re.search(r"start 2 on 1 of 2 ranks, from step (\d+)", run.stderr)[1])
    assert 0 < step < 40
    summary = json.loads((out / "summary.json").read_text())
    assert summary["params_sha256"] == alone["params_sha256"]
    rows = (out / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(row)["step"] for row in rows] == [*range(1, 41)]
    assert (out / "checkpoints/step-40.npz").is_file()
    assert not (out / "checkpoints").is_symlink()
