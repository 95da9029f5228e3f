"""What the README shows is run: its commands, small where they are long."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dml.data.generated_text import generated

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
HERE = ["--corpus=corpus.txt", "--min_count=1"]
EVEN = ["--problem=generated", "--clocks=5", "--laws=constant:1", "--scale=0.001"]
TEXT = ["--corpus=corpus.txt", "--length=16", "--batch=8", "--steps=2"]
SMALL = {
    "allreduce.py": ["--sizes=4KB", "--repeats=1"],
    "stragglers.py": ["--workers=10", "--measure=0"],
    "server.py": ["--problem=generated", "--clocks=5"],
    "consistency.py": EVEN,
    "softsync.py": ["--clocks=3", "--lr=0.4", "--n=1,30"],
    "downpour.py": ["--clocks=3", "--lr=0.6", "--adagrad_lr=0.2"],
    "topology.py": ["--p=16"],
    "cooccurrence.py": HERE,
    "glove.py": [*HERE, "--dim=8", "--epochs=1"],
    "svm.py": ["--data=generated", "--epochs=2"],
    "completion.py": ["--data=generated", "--epochs=2"],
    "cuts.py": ["--data=generated", "--epochs=2"],
    "hogwild.py": ["--problems=sparse", "--epochs=1", "--repeats=1", "--delays="],
    "batch_size.py": ["--examples=256", "--features=60", "--nonzeros=5", "--copies=16"]
    + ["--mu=1e-3", "--batches=4,256", "--epochs=20", "--looks=8"],
    "vision.py": ["--data=digits", "--model=mlp", "--batch=8", "--steps=3"],
    "bert.py": [*TEXT, "--vocabulary=300"],
    "hybrid.py": ["--mesh=stage:4", "--blocks=2", "--steps=2", "--vocabulary=300"]
    + ["--corpus=corpus.txt", "--length=16"],
    "pipeline.py": ["--layer_seconds=1,2,2,1,1,2,2,1", "--measured=2", "--few=1"]
    + ["--width=16", "--length=8", "--vocabulary=64"],
    "memory.py": ["--nocompiled"],
    "large_batch.py": ["--seeds=1", "--factors=1,2", "--large=2", "--epochs=1"],
}


def shown():
    """The README's commands that run an experiment."""
    inline = re.findall(r"`([^`\n]*experiments/\w+\.py[^`\n]*)`", README)
    blocks = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)
    lines = [line.split("#")[0] for block in blocks for line in block.splitlines()]
    found = inline + [line for line in lines if "experiments/" in line]
    return list(dict.fromkeys(line.strip() for line in found))


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder like the root, for what commands leave behind for one another."""
    folder = tmp_path_factory.mktemp("root")
    for name in ("experiments", "launch"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "corpus.txt").write_text("\n".join(generated(60, 40, seed=1)))
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    """Where all commands keep what they count and measure."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.mpi
@pytest.mark.parametrize("command", shown())
def test_a_command_of_the_readme_runs(command, tmp_path, here, cache):
    command = re.sub(r"(-n |--simulate=)8\b", r"\g<1>4", command)  # 2 cores
    *start, script = re.match(r"(.*?)(experiments/(\w+\.py))", command).groups()
    before, rest = start[0].split(), command.split(start[1])[1].split()
    if before and before[0].startswith("launch/"):  # .venv may not be what runs this
        before = ["mpirun", *before[1:], "python"]
    words = [sys.executable if word == "python" else word for word in before]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [*words, start[1], *rest, *SMALL[script], f"--out={tmp_path}"],
        cwd=here,
        env=os.environ
        | {"PATH": path, "OMP_NUM_THREADS": "1", "NPROC": "1", "DML_DATA": str(cache)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "summary.json").exists()


def test_the_readme_is_short_and_shows_commands():
    assert len(README.splitlines()) <= 200
    assert len(shown()) >= 4


def test_the_python_of_the_readme_runs():
    blocks = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    assert len(blocks) == 2
    for block in blocks:
        source = block.replace("1_000_000", "1000").replace("1024", "16")
        source = source.replace("32x32", "4x4")
        ended = subprocess.run([sys.executable, "-c", source], cwd=ROOT, timeout=60)
        assert ended.returncode == 0
