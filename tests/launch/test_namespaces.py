"""Two hosts for real: namespaces joined by a cable, and mpirun's own launcher."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import glove
import pytest
from studies.glove import report as glove_report

from dml.data.text.generated import generate
from dml.figures import style as figures
from dml.runs.writers import Writer, ignore
from dml.wire.collectives import ALLREDUCE

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent
LONG = 1 << 20  # bytes of the buffer that namespaces_main.py sends round a ring
UNDRAWN = Writer(ignore, ignore)

pytestmark = pytest.mark.mpi


def allowed():
    """Why this machine makes no hosts; nothing where it does."""
    if os.geteuid() or not all(map(shutil.which, ("ip", "unshare", "mount"))):
        return "needs root, ip and unshare"
    name = f"dml-{os.getpid()}-try"
    made = subprocess.run(
        f"ip netns add {name} && ip -n {name} link add cable type veth peer name other"
        f" && ip netns exec {name} unshare --uts --ipc --mount"
        " mount -t tmpfs tmpfs /dev/shm",
        shell=True,
        capture_output=True,
        text=True,
    )
    subprocess.run(["ip", "netns", "del", name], capture_output=True)
    return f"no namespaces: {made.stderr.strip()}" if made.returncode else ""


@pytest.fixture(scope="module")
def house(tmp_path_factory):
    """The launch scripts beside an environment that is ready: this test's own."""
    if why := allowed():
        pytest.skip(why)
    root = tmp_path_factory.mktemp("house")
    for name in ("dml", "experiments", "tests"):
        (root / name).symlink_to(ROOT / name)
    for name in ("requirements.txt", "setup.cfg", "pyproject.toml"):
        (root / name).symlink_to(ROOT / name)
    shutil.copytree(ROOT / "launch", root / "launch")
    (root / ".venv/bin").mkdir(parents=True)
    for name in ("mpirun", "hydra_pmi_proxy"):
        (root / ".venv/bin" / name).symlink_to(BIN / name)
    python = root / ".venv/bin/python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
    python.chmod(0o755)
    ready = 'describe requirements.txt "$(accelerator)" >.venv/installed'
    command = f"source launch/environment.sh; {ready}"
    subprocess.run(["bash", "-c", command], cwd=root, check=True)
    return root


def start(house, *command):
    env = os.environ | {
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "DML_DATA": str(house / "data"),
        "TMPDIR": str(house),
        "OMP_NUM_THREADS": "1",
        "NPROC": "1",
    }
    return subprocess.Popen(
        [house / "launch/namespaces.sh", *map(str, command)],
        cwd=house,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def ended(house, process):
    """Wait for the end; prove that neither hosts nor files of theirs are left."""
    try:
        out, err = process.communicate(timeout=1200)
    except subprocess.TimeoutExpired:
        process.terminate()
        out, err = process.communicate(timeout=600)
    names = subprocess.run(["ip", "netns"], capture_output=True, text=True).stdout
    assert f"dml-{process.pid}-" not in names
    assert not list(house.glob("dml-[0-9]*"))
    return out, err


def test_ranks_and_devices_of_two_hosts_add_and_group(house):
    """The last line is of a sum over JAX's devices, gloo over the cable."""
    process = start(house, "-n", 4, "tests/launch/namespaces_main.py")
    out, err = ended(house, process)
    assert process.returncode == 0, err
    assert re.search(r"launch: 4 ranks on 2 hosts, .*(MPICH|Open MPI)", err)
    saw = json.loads(next(line for line in out.splitlines() if line[0] == "{"))
    assert set(ALLREDUCE) - set(saw["right"]) == {"shared"}  # which is for one host
    assert saw["hosts"] == [0, 0, 1, 1]
    assert saw["names"] == ["left", "left", "right", "right"]
    assert saw["inside"] == [[2, 0]] * 4  # a group is a host
    assert saw["across"] == [[2, 1]] * 4
    left, also_left, right, also_right = saw["memory"]
    assert left == also_left != right == also_right
    assert 1.5 * LONG <= saw["cable"] < 2 * LONG
    assert "2 devices have added" in out


def test_an_epoch_on_two_hosts_has_the_bits_of_one_process(
    house, tmp_path, monkeypatch
):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(generate(60, 40, seed=1)))
    given = [f"--corpus={corpus}", "--min_count=1", "--dim=8", "--epochs=1"]
    two = tmp_path / "two"
    process = start(house, "-n", 2, "experiments/glove.py", *given, f"--out={two}")
    _, err = ended(house, process)
    assert process.returncode == 0, err
    summary = json.loads((two / "summary.json").read_text())
    assert summary["words_sent"] > 0

    monkeypatch.setenv("DML_DATA", str(house / "data"))
    monkeypatch.setattr(figures, "chart", lambda *_: nullcontext(UNDRAWN))
    monkeypatch.setattr(glove_report, "pca_plot", lambda *_: None)
    (alone,) = glove.main(["glove.py", *given, f"--out={tmp_path / 'one'}"])
    assert summary["vectors_sha256"] == alone["vectors_sha256"]


def test_a_rate_limits_every_cable_of_four_hosts(house, tmp_path):
    flags = ["--spares=1", "--size=256KB", "--segment=16KB", "--bandwidth=0"]
    flags += ["--repeats=1", "--nohub", f"--out={tmp_path}"]
    options = "-n", 4, "--hosts=4", "--rate=80mbit"
    process = start(house, *options, "experiments/byteps.py", *flags)
    _, err = ended(house, process)
    if "qdisc tbf" in err:
        pytest.skip("the kernel has no tbf")
    assert process.returncode == 0, err
    assert "launch: 4 ranks on 4 hosts" in err
    lines = (tmp_path / "metrics.jsonl").read_text().splitlines()
    assert len(lines) == 5
    for row in map(json.loads, lines):  # 10 MB/s, after the bucket of each cable
        assert row["exact"]
        assert row["seconds"] > (row["bytes"] - 2 * (1 << 16)) / 10e6


def test_two_hosts_that_are_ended_leave_nothing(house):
    (house / "wait.py").write_text(
        "import time\nprint('up', flush=True)\ntime.sleep(3600)"
    )
    process = start(house, "-n", 2, "wait.py")
    assert [process.stdout.readline() for _ in range(2)] == ["up\n"] * 2
    process.send_signal(signal.SIGTERM)
    ended(house, process)
    assert process.returncode
