"""Commands on real ranks: stopped by a signal, and gone on with."""

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
from lab import started
from studies.glove import report as glove_report

from dml.data.text.generated import generate
from dml.figures import style as figures
from dml.runs import folder
from dml.runs.writers import Writer, ignore
from tests.commands import HUNG
from tests.mpi.conftest import OPEN_MPI

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
kills_ranks = pytest.mark.skipif(
    OPEN_MPI, reason="Open MPI's mpirun kills its ranks 1 s after a signal, with code 1"
)
PATIENCE = HUNG / 2  # seconds until ranks train, and until they have stopped


@pytest.fixture
def start(tmp_path):
    """Start a command on so many ranks (0: no mpirun), with tmp_path / "run" as --out.

    It is stopped by a signal as soon as `there()` is true; its code and stderr return.
    """
    env = {"PATH": PATH, "OMP_NUM_THREADS": "1", "DML_DATA": str(tmp_path)}

    def stop(ranks, command, number, there, *argv, group=True):
        mpirun = ["mpirun", "-n", str(ranks)] if ranks else []
        script = [sys.executable, str(EXPERIMENTS / command)]
        process = subprocess.Popen(
            [*mpirun, *script, f"--out={tmp_path / 'run'}", *argv],
            env=os.environ | env,
            text=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        try:
            until = time.monotonic() + PATIENCE
            while not there():
                assert process.poll() is None, process.communicate()
                assert time.monotonic() < until, "it never trains"
                time.sleep(0.01)
            # to all, as a terminal does; mpirun passes it on, too
            (os.killpg if group else os.kill)(process.pid, number)
            _, err = process.communicate(timeout=PATIENCE)
            return process.returncode, err
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                process.communicate(timeout=PATIENCE)

    return stop


def corpus(tmp_path, documents):
    """Return the flags of GloVe on a corpus of 60 words."""
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(generate(60, documents, seed=1)))
    return f"--corpus={path}", "--dim=8", "--min_count=1"


def summary(tmp_path):
    return json.loads((tmp_path / "run/summary.json").read_text())


@pytest.mark.parametrize(
    "ranks, number",
    [(0, signal.SIGTERM), pytest.param(2, signal.SIGINT, marks=kills_ranks)],
)
def test_a_stopped_run_saves_prints_how_to_resume_and_resumes(
    start, tmp_path, monkeypatch, ranks, number
):
    out, small = tmp_path / "run", corpus(tmp_path, documents=40)
    rows = out / "metrics.jsonl"
    trains = lambda: rows.exists() and rows.stat().st_size > 1000  # noqa: E731
    code, err = start(ranks, "glove.py", number, trains, *small, "--epochs=1000000")
    assert code == 130  # by MPICH's mpirun too
    lines = [line for line in err.splitlines() if "stopped" in line]
    assert 1 <= len(lines) <= max(ranks, 1)  # one if ranks end within 2 s of each other
    text = r"stopped after epoch (\d+) of 1000000; to resume"
    (done,) = {int(re.search(text, line)[1]) for line in lines}
    assert all(line.endswith(f"--resume={out}") for line in lines)
    assert len(rows.read_text().splitlines()) == summary(tmp_path)["epochs"] == done
    assert summary(tmp_path)["status"] == "interrupted"
    assert (out / "vectors.txt").exists()

    @contextmanager
    def undrawn(path, *axes):
        yield Writer(ignore, ignore)

    monkeypatch.setenv("DML_DATA", str(tmp_path))
    monkeypatch.setattr(figures, "chart", undrawn)
    monkeypatch.setattr(glove_report, "pca_plot", lambda *_: None)
    given = [*small, f"--out={tmp_path / 'here'}", f"--epochs={done + 2}"]
    whole, resumed = (
        glove.main(["glove.py", *given, *more])[0]["vectors_sha256"]
        for more in ([], ["--overwrite", f"--resume={out}"])
    )
    assert whole == resumed


@kills_ranks
def test_who_stops_the_counting_reads_one_line(start, tmp_path):
    long = corpus(tmp_path, documents=20_000)
    counts = lambda: list(tmp_path.glob("cooccurrence/*/*.part"))  # noqa: E731
    code, err = start(2, "glove.py", signal.SIGINT, counts, *long)
    assert code == 130
    lines = [line for line in err.splitlines() if line.endswith("stopped")]
    assert 1 <= len(lines) <= 2
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()


@kills_ranks
def test_a_deep_run_that_receives_a_signal_saves_and_ends_well(start, tmp_path):
    rows = tmp_path / "run/metrics.jsonl"
    trains = lambda: rows.exists() and rows.stat().st_size  # noqa: E731
    flags = "--data=digits", "--model=mlp", "--steps=4000", "--strategy=mesh"
    flags += "--timeline=0", "--check_every=1000"
    code, err = start(2, "vision.py", signal.SIGTERM, trains, *flags, group=False)
    assert code == 130
    steps = summary(tmp_path)["steps"]
    assert f"stopped after update {steps} of 4000; to resume" in err
    assert 0 < steps < 4000
    (checkpoint,) = (tmp_path / "run/checkpoints").iterdir()
    assert checkpoint.name == f"step-{steps}.npz"


def test_all_ranks_refuse_a_folder_in_which_another_process_writes(tmp_path):
    with folder.locked(tmp_path / "run"):
        start = [*started.python(2), EXPERIMENTS / "linear.py", "--steps=2"]
        ended = subprocess.run(
            [*start, f"--out={tmp_path / 'run'}"],
            env=started.environment() | {"OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=2 * PATIENCE,
        )
    assert ended.returncode == 2
    lines = ended.stderr.splitlines()  # Open MPI's mpirun adds some of its own
    (line,) = [line for line in lines if line.startswith("linear.py: ")]
    assert line.startswith("linear.py: expected one run at a time in ")
    assert OPEN_MPI or lines == [line]
    assert not (tmp_path / "run/config.json").exists()
