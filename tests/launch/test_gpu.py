"""gpu.sh: commands that exist, failures as rows, and the page."""

import json
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import gpu
import gpu_page
import pytest
from gpu_checks import CHECKS, ROOT, Check, Machine
from gpu_page import Result
from lab import flags

from dml.types import BadInput


def machine(devices=1, cpu=False, torch=True):
    return Machine("python", "mpirun", devices, cpu, torch, memory=0 if cpu else 24e9)


@pytest.mark.parametrize("name", CHECKS)
def test_commands_have_flags_of_their_scripts(name):
    for one in (machine(), machine(8, torch=False), machine(2, cpu=True)):
        command = CHECKS[name].command(one)
        position = next(n for n, word in enumerate(command) if word.endswith(".py"))
        script = Path(command[position])
        assert script.parent == ROOT / "experiments" and script.exists()
        known = import_module(script.stem).FLAGS
        flags.parse(known, [script.name, *command[position + 1 :]])


def test_minibatches_are_divisible_and_fit_the_device():
    for devices in (1, 2, 3, 8):
        for name, workers in (("mesh", devices), ("synchronous", max(2, devices))):
            words = CHECKS[name].command(machine(devices))
            (batch,) = (word for word in words if word.startswith("--batch="))
            assert int(batch.partition("=")[2]) % workers == 0
    words = CHECKS["bert_large"].command(machine())  # 24 GB
    assert "--batch=10" in words
    assert "--batch=32" in CHECKS["bert_large"].command(machine()._replace(memory=80e9))


def python_check(code, seconds=600, expect=lambda summary: "", variables=None):
    """Return a check that runs Python code; the last argument is --out=FOLDER."""
    return Check(
        "a check",
        lambda machine: [machine.python, "-c", code],
        seconds,
        lambda summary: f"loss {summary['loss']}",
        expect,
        variables or {},
    )


WRITE = """
import json, os, pathlib, sys
out = pathlib.Path(sys.argv[-1].removeprefix("--out="))
out.mkdir(parents=True, exist_ok=True)
out.joinpath("summary.json").write_text(json.dumps({"loss": os.environ.get("X", "1")}))
"""
FAKES = {
    "good": python_check(WRITE, variables={"X": "2"}),
    "broken": python_check("print('first'); raise SystemExit('out of memory\\n\\n')"),
    "slow": python_check("import time; time.sleep(3600)", seconds=1),
    "wrong": python_check(WRITE, expect=lambda summary: "bits differ"),
    "silent": python_check("pass"),
}


def test_a_check_that_fails_is_a_row_and_the_others_are_run(
    tmp_path, monkeypatch, capsys
):
    monkeypatch.setattr(gpu, "CHECKS", FAKES)
    old = tmp_path / "silent" / "summary.json"  # of an earlier run
    old.parent.mkdir()
    old.write_text('{"loss": 3}')
    argv = ["gpu.py", "--cpu", f"--checks={','.join(FAKES)}", f"--out={tmp_path}"]
    assert gpu.main(argv) == 1
    results = json.loads((tmp_path / "results.json").read_text())["results"]
    texts = {one["name"]: (one["passed"], one["text"]) for one in results}
    assert texts["devices"][0] and "2 x cpu" in texts["devices"][1]
    assert texts["good"] == (True, "loss 2")
    assert texts["broken"] == (False, "code 1: out of memory")
    assert texts["slow"] == (False, "expected an end within 1 s, got none")
    assert texts["wrong"] == (False, "ValueError: bits differ (loss 1)")
    assert not texts["silent"][0] and "summary.json" in texts["silent"][1]
    page = (tmp_path / "gpu.md").read_text()
    assert "CPU devices stood in" in page
    assert page.count("**fail**") == 4 and page.count("| pass |") == 2
    printed = capsys.readouterr().out
    assert "2 of 6 checks passed; failed: broken, slow, wrong, silent." in printed
    argv[2] = "--checks=good"
    assert gpu.main(argv) == 0


def test_without_a_gpu_nothing_is_run_or_written(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    page = tmp_path / "gpu.md"
    assert gpu.main(["gpu.py", f"--out={tmp_path}", f"--page={page}"]) == 1
    (result,) = json.loads((tmp_path / "results.json").read_text())["results"]
    assert "expected a GPU, got CPU devices only" in result["text"]
    assert not page.exists()


def test_an_unknown_check_is_refused():
    with pytest.raises(BadInput, match="expected --checks of mesh, .*, got 'nccl'"):
        gpu.main(["gpu.py", "--checks=mesh,nccl"])


def test_the_script_prints_a_command_for_each_check():
    script = ROOT / "launch" / "gpu.sh"
    argv = [script, f"--python={sys.executable}", "--dry_run", "--devices=3"]
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == len(CHECKS)
    assert any("-n 3 " in line and "one_gpu.sh 3 " in line for line in lines)
    argv[1] = "--python=/nowhere/python"
    done = subprocess.run(argv, capture_output=True, text=True)
    assert done.returncode == 2 and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "variable", ("MPI_LOCALRANKID", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
)
def test_ranks_of_a_host_use_the_gpus_in_turn(variable, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    for rank, gpus, expected in ((1, 4, "1"), (5, 4, "1"), (1, 1, "0"), (1, 0, "none")):
        monkeypatch.setenv(variable, str(rank))
        script = ROOT / "launch" / "one_gpu.sh"
        command = [script, str(gpus), "sh", "-c", "echo ${CUDA_VISIBLE_DEVICES-none}"]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.stdout.strip() == expected


def test_the_page_of_the_docs_is_written_by_the_script():
    page = (ROOT / "docs" / "gpu.md").read_text("utf-8")
    if "No GPU has run" in page:
        assert page == gpu_page.page(None, [])
    else:
        assert page.startswith(gpu_page.HEAD) and "stood in" not in page
        assert "checks passed" in page


def test_a_page_of_a_gpu_has_device_and_figures():
    device = {"platform": "gpu", "kind": "NVIDIA L4", "devices": 1, "jax": "0.11.0"}
    results = [Result("glove", "GloVe", True, 61.4, "loss 0.05 | d")]
    page = gpu_page.page(device, results)
    assert "kind: NVIDIA L4" in page and "stood in" not in page
    assert "| GloVe | pass | 61 | loss 0.05 \\| d |" in page
    assert page.endswith("1 of 1 checks passed.\n")
