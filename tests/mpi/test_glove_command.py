"""GloVe's command on real ranks: stopped by a signal, and gone on with."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import glove
import pytest
from studies.glove import report as glove_report

from dml.data.text.generated import generated
from dml.figures import style as figures
from dml.runs.writers import Writer, ignore

ROOT = Path(__file__).parents[2]
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
PATIENCE = 30  # seconds until ranks train, and until they have stopped


@pytest.fixture
def start(tmp_path):
    """Start the command on so many ranks (0: no mpirun) on a corpus of 60 words."""
    started = []

    def begin(ranks, *argv, out="run", documents=40):
        corpus = tmp_path / "corpus.txt"
        if not corpus.exists():
            corpus.write_text("\n".join(generated(60, documents, seed=1)))
        script = [sys.executable, str(ROOT / "experiments" / "glove.py")]
        given = [f"--corpus={corpus}", f"--out={tmp_path / out}", "--dim=8"]
        mpirun = ["mpirun", "-n", str(ranks)] if ranks else []
        env = {"PATH": PATH, "OMP_NUM_THREADS": "1", "DML_DATA": str(tmp_path)}
        process = subprocess.Popen(
            [*mpirun, *script, *given, "--min_count=1", *argv],
            env=os.environ | env,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.communicate(timeout=10)


@pytest.fixture
def train(tmp_path, monkeypatch):
    """Train the same corpus in this process, without figures; return the hash."""

    @contextmanager
    def undrawn(path, *axes):
        yield Writer(ignore, ignore)

    def run(*argv):
        given = [f"--corpus={tmp_path / 'corpus.txt'}", "--dim=8", "--min_count=1"]
        given.append(f"--out={tmp_path / 'here'}")
        return glove.main(["glove.py", *given, *argv])[0]["vectors_sha256"]

    monkeypatch.setenv("DML_DATA", str(tmp_path))
    monkeypatch.setattr(figures, "chart", undrawn)
    monkeypatch.setattr(glove_report, "pca_plot", lambda *_: None)
    return run


def wait_for(there, process):
    until = time.monotonic() + PATIENCE
    while not there():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until, "it never trains"
        time.sleep(0.01)


def summary(folder):
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.parametrize("ranks, number", [(0, signal.SIGTERM), (2, signal.SIGINT)])
def test_a_stopped_run_saves_says_how_to_go_on_and_does(
    start, train, tmp_path, ranks, number
):
    out = tmp_path / "run"
    process = start(ranks, "--epochs=100000000")
    rows = out / "metrics.jsonl"
    wait_for(lambda: rows.exists() and rows.stat().st_size > 1000, process)
    os.killpg(process.pid, number)  # as a terminal does; mpirun passes it on, too
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130  # by MPICH's mpirun too
    (line,) = [line for line in said.splitlines() if line]
    done = int(re.search(r"stopped after epoch (\d+) of 100000000; to resume", line)[1])
    assert line.endswith(f"--resume={out}")
    assert len(rows.read_text().splitlines()) == summary(out)["epochs"] == done
    assert (out / "vectors.txt").exists()
    whole = train(f"--epochs={done + 2}")
    assert train(f"--epochs={done + 2}", f"--resume={out}") == whole


@pytest.mark.parametrize("ranks", (0, 2))
def test_who_stops_the_counting_reads_one_line(start, tmp_path, ranks):
    process = start(ranks, documents=20_000)
    wait_for(lambda: list(tmp_path.glob("cooccurrence/*/*.part")), process)
    os.killpg(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    lines = [line for line in said.splitlines() if "saved checkpoints are kept" in line]
    assert 1 <= len(lines) <= max(ranks, 1)
    assert "Traceback" not in said
    assert not (tmp_path / "run").exists()


def test_blocks_by_real_messages_end_as_virtual_ones_by_memory(start, train, tmp_path):
    process = start(2, "--epochs=2", "--medium=messages")
    assert process.communicate(timeout=PATIENCE)[1] == ""
    digest = summary(tmp_path / "run")["vectors_sha256"]
    assert digest == train("--epochs=2", "--simulate=2", "--medium=memory")
