"""Sweeps of a script that loads nothing: what runs, what is kept, what is refused."""

import csv
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import sweep
import sweep_flags
import sweep_runs
from sweep_grid import Cell

from dml.runs import results
from dml.types import BadInput

ROOT = Path(__file__).parents[2]
SCRIPT = str(Path(__file__).with_name("swept_main.py"))
TIMES = {"wall_seconds", "begun", "ended", "cores"}


@pytest.fixture
def swept(tmp_path):
    """Return swept(*argv) -> code: a sweep of the script into tmp_path/out."""
    return lambda *argv: sweep.main(["sweep.py", SCRIPT, *out(tmp_path), *argv])


def out(folder):
    return [f"--out={folder / 'out'}"]


def table(folder, name="results"):
    with open(folder / "out" / f"{name}.csv", newline="") as file:
        return list(csv.DictReader(file))


def timeless(rows):
    return [{k: v for k, v in row.items() if k not in TIMES} for row in rows]


def stamps(folder):
    """Return when each run's folder was last finished."""
    files = sorted((folder / "out").glob("*/sweep.json"))
    return {file.parent.name: file.stat().st_mtime_ns for file in files}


def test_every_cell_is_a_row_with_its_flags_and_its_summary(swept, tmp_path):
    assert swept("--lr=0.1,0.2", "--text=a,b", "--repeat=2") == 0
    rows = table(tmp_path)
    assert list(rows[0])[:5] == ["lr", "text", "seed", "code", "wall_seconds"]
    assert [(row["lr"], row["text"], row["seed"], row["loss"]) for row in rows] == [
        (lr, text, seed, str(float(lr) + int(seed)))
        for lr in ("0.1", "0.2")
        for text in "ab"
        for seed in "01"
    ]
    for row in rows:
        run = results.read(tmp_path / "out" / row["run"])
        assert run.flags["lr"] == row["lr"]
        assert run.summary["text"] == row["summary.text"]


def test_any_text_reaches_the_script_as_it_is(swept, tmp_path):
    texts = [
        "a  b",
        "it's",
        '"',
        "0,1",
        "$HOME `id` $(id)",
        "a\nb",
        "--lr=9",
        "*",
        "\\",
        "",
    ]
    quoted = ",".join('"' + text.replace('"', '""') + '"' for text in texts)
    assert swept(f"--text={quoted}") == 0
    assert [row["summary.text"] for row in table(tmp_path)] == texts


def test_what_is_shown_could_be_pasted_into_a_shell(swept, tmp_path, capsys):
    texts = ["a  b", "it's", '"', "0,1", "$HOME `id`", "*", "\\", ""]
    quoted = ",".join('"' + text.replace('"', '""') + '"' for text in texts)
    assert swept(f"--text={quoted}", "--dry_run") == 0
    *lines, last = capsys.readouterr().out.splitlines()
    assert [shlex.split(line)[2] for line in lines] == [f"--text={t}" for t in texts]
    assert last == "# 8 of 8 missing"
    assert not (tmp_path / "out").exists()


def test_a_failing_run_is_kept_and_the_others_go_on(swept, tmp_path, capsys):
    assert swept("--text=a,fail,b") == 1
    rows = table(tmp_path)
    assert [row["code"] for row in rows] == ["0", "1", "0"]
    says = "begun\na line before\nexpected luck, got none"
    assert [row["says"] for row in rows] == ["", says, ""]
    assert [row["loss"] for row in rows] == ["1.0", "", "1.0"]
    folder = tmp_path / "out" / rows[1]["run"]
    assert "a line before" in (folder / "output.txt").read_text()
    said = capsys.readouterr()
    assert "FAILED, code 1: expected luck, got none" in said.err
    assert f"failed: {folder}/output.txt  code 1" in said.out
    before = stamps(tmp_path)
    assert swept("--text=a,fail,b") == 1
    after = stamps(tmp_path)
    assert [k for k in after if after[k] != before[k]] == [folder.name]


def test_only_what_is_missing_runs_and_in_an_empty_folder(swept, tmp_path):
    swept("--lr=1,2,3,4")
    before, runs = stamps(tmp_path), [row["run"] for row in table(tmp_path)]
    for name, left in zip(runs, ("summary.json", "sweep.json", ""), strict=False):
        if left:
            (tmp_path / "out" / name / left).write_text('{"half": ')
    (tmp_path / "out" / runs[2] / "summary.json").unlink()
    (tmp_path / "out" / runs[0] / "stray").touch()
    assert swept("--lr=1,2,3,4,5") == 0
    after = stamps(tmp_path)
    changed = {name for name in before if after[name] != before[name]}
    assert changed == set(runs[:3])
    assert len(after) == 5
    assert not (tmp_path / "out" / runs[0] / "stray").exists()
    assert [row["loss"] for row in table(tmp_path)] == [
        "1.0",
        "2.0",
        "3.0",
        "4.0",
        "5.0",
    ]


def alive(folder):
    """Return the command lines of processes that were given the folder."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            found += [line] if str(folder) in (line := file.read_text()) else []
    return found


def test_interrupted_and_resumed_gives_the_same_table(swept, tmp_path):
    argv = ["--lr=1,2,3", "--n=2", "--jobs=2"]
    command = [sys.executable, str(ROOT / "launch/sweep.py"), SCRIPT]
    process = subprocess.Popen(
        [*command, *argv, *out(tmp_path)],
        env=os.environ | {"HANGS": "2"},
        stderr=subprocess.PIPE,
        text=True,
    )
    while len(list((tmp_path / "out").glob("*/config.json"))) < 2:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=10)
    assert process.returncode == 130
    assert said.endswith("sweep.py: interrupted; start again to continue\n")
    assert not alive(tmp_path)
    begun = {path.parent.name for path in (tmp_path / "out").glob("*/output.txt")}
    done = stamps(tmp_path)
    assert len(done) == 1 and len(begun) == 2
    assert swept(*argv) == 0
    assert stamps(tmp_path).items() > done.items()
    resumed = table(tmp_path)
    shutil.rmtree(tmp_path / "out")
    assert swept(*argv) == 0
    assert timeless(resumed) == timeless(table(tmp_path))


@pytest.mark.parametrize("ranks", [[], ["--n=2"]])
def test_a_sweep_that_is_killed_takes_its_runs_with_it(tmp_path, ranks):
    command = [sys.executable, str(ROOT / "launch/sweep.py"), SCRIPT, "--lr=1"]
    process = subprocess.Popen(
        [*command, *ranks, *out(tmp_path)], env=os.environ | {"HANGS": "1"}
    )
    while not list((tmp_path / "out").glob("*/config.json")):
        time.sleep(0.01)
    process.kill()
    process.wait()
    patience = time.monotonic() + 5
    while alive(tmp_path) and time.monotonic() < patience:
        time.sleep(0.01)
    assert not alive(tmp_path)


def test_the_widest_runs_begin_first(tmp_path):
    cells = [Cell(ranks, {"lr": "1", "seed": "0"}) for ranks in (1, 2)]
    jobs = sweep_runs.jobs(SCRIPT, cells, tmp_path, sweep_flags.mpirun(), 2)
    states = sweep_runs.execute(jobs, [0, 1], 0)
    (first,) = next(states).running
    states.close()
    assert first.job.cell.ranks == 2


def test_another_run_in_a_cells_folder_is_not_its_own(tmp_path):
    first, other = sweep_runs.jobs(
        SCRIPT, [Cell(None, {}), Cell(2, {})], tmp_path, "", 1
    )
    first = first._replace(command=["true"])
    *_, state = sweep_runs.execute([first], sweep_runs.cores(1), 0)
    assert sweep_runs.before(first) == state.ended[0]
    assert sweep_runs.before(other._replace(folder=first.folder)) is None


def test_no_core_has_two_runs_at_once_and_all_are_used(swept, tmp_path):
    assert swept("--n=1,2,3", "--wait=0.05,0.1", "--repeat=2", "--jobs=2") == 0
    cores, rows = sweep_runs.cores(2), table(tmp_path)
    events = []
    for row in rows:
        own = [int(core) for core in row["cores"].split(",")]
        assert len(own) == min(int(row["n"]), len(cores))
        assert row["threads"] == "1"
        events += [(float(row["begun"]), 1, own), (float(row["ended"]), -1, own)]
    busy, most = dict.fromkeys(cores, 0), 0
    for _, change, own in sorted(events):
        for core in own:
            busy[core] += change
        assert max(busy.values()) <= 1
        most = max(most, sum(busy.values()))
    assert most == len(cores)


def test_a_run_gets_the_threads_of_its_cores(tmp_path):
    cell = Cell(None, {"seed": "0"})
    (job,) = sweep_runs.jobs(SCRIPT, [cell], tmp_path, "", 4)
    job = job._replace(cores=3)
    *_, state = sweep_runs.execute([job], sweep_runs.cores(1) * 3, 0)
    assert results.read(state.ended[0].job.folder).summary["threads"] == "3"


def test_mpi_is_left_as_unbound_as_the_launchers_leave_it():
    text = (ROOT / "launch/environment.sh").read_text()
    for name, value in sweep_runs.MPI.items():
        assert f"{name}={value}" in text
    assert all(f"{library}_NUM_THREADS" in text for library in sweep_runs.THREADS)


def test_a_run_is_a_local_one_wherever_the_sweep_is(swept, tmp_path, monkeypatch):
    monkeypatch.setenv("PMI_RANK", "1")  # as a rank, the script would write nothing
    assert swept("--lr=1") == 0


def test_a_run_that_takes_too_long_is_ended(swept, tmp_path):
    begun = time.monotonic()
    assert swept("--wait=0,30", "--timeout=0.5") == 1
    assert time.monotonic() - begun < 5
    assert [row["code"] for row in table(tmp_path)] == ["0", "124"]
    assert table(tmp_path)[1]["says"] == "begun\nended after --timeout=0.5 s"


def test_a_run_without_a_summary_has_failed(tmp_path):
    cell = Cell(None, {})
    (job,) = sweep_runs.jobs(SCRIPT, [cell], tmp_path, "", 1)
    job = job._replace(command=[sys.executable, "-c", "print()"])
    *_, state = sweep_runs.execute([job], sweep_runs.cores(1), 0)
    assert "summary.json" in state.ended[0].says
    assert not sweep_runs.done(job)


def test_a_run_that_removes_its_folder_has_failed_and_no_more(tmp_path):
    (job,) = sweep_runs.jobs(SCRIPT, [Cell(None, {})], tmp_path, "", 1)
    gone = f"import shutil; shutil.rmtree({str(job.folder)!r})"
    job = job._replace(command=[sys.executable, "-c", gone])
    *_, state = sweep_runs.execute([job], sweep_runs.cores(1), 0)
    assert "summary.json" in state.ended[0].says
    assert sweep_runs.before(job) == state.ended[0]


def test_no_output_moves_the_terminal(tmp_path):
    text = (
        b"one\r\x1b[2J\x1b[1;31mtwo\x1b[0m\x00\x07\n\xff \xe2\x80\xa6\tthree\x1b]0;x\n"
    )
    (tmp_path / "output.txt").write_bytes(text)
    assert sweep_runs.tail(tmp_path) == ["one", "two", "\ufffd \u2026\tthree]0;x"]


def test_where_every_run_fails_the_tables_say_so(swept, tmp_path, capsys):
    assert swept("--text=fail", "--lr=1,2", "--x=lr", "--y=loss") == 1
    shown = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert shown[:3] == [["lr", "count", "loss"], ["1", "0", "-"], ["2", "0", "-"]]
    assert not (tmp_path / "out/figure.svg").exists()


def test_one_cell_can_be_run_alone(swept, tmp_path, monkeypatch):
    assert swept("--lr=1,2,3", "--only=1") == 0
    (run,) = stamps(tmp_path)
    assert run.startswith("lr=2,")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "2")
    assert swept("--lr=1,2,3") == 0
    assert [name[:4] for name in stamps(tmp_path)] == ["lr=2", "lr=3"]
    with pytest.raises(BadInput, match="expected --only below 3, got 3"):
        swept("--lr=1,2,3", "--only=3")


def test_slurm_gets_an_array_of_what_is_missing(swept, tmp_path, monkeypatch, capsys):
    swept("--lr=3")
    (tmp_path / "sbatch").write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/argv\n'
    )
    (tmp_path / "sbatch").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert swept("--lr=1,2,3,4", "--slurm", "--text=a b", "--jobs=3") == 0
    got = (tmp_path / "argv").read_text().splitlines()
    assert got[:3] == ["--array=0-3", "--ntasks=1", "--cpus-per-task=1"]
    assert got[3:6] == ["slurm.sbatch", "sweep.py", SCRIPT]
    assert got[6:] == [*out(tmp_path), "--lr=1,2,3,4", "--text=a b", "--jobs=3"]
    capsys.readouterr()
    swept("--lr=1,2,3,4", "--slurm", "--dry_run", "--", "--n=1")
    assert shlex.split(capsys.readouterr().out)[-2:] == ["--", "--n=1"]
    swept("--lr=1,2,3,4", "--slurm", "--dry_run", "--n=2")
    assert "--cpus-per-task=2" in capsys.readouterr().out
    swept("--lr=1,2,3,4", "--slurm", "--dry_run")
    assert "--array=0-1,3" in capsys.readouterr().out


def test_after_two_dashes_a_flag_is_the_scripts_own(swept, tmp_path):
    assert swept("--lr=1", "--", "--n=5,6") == 0
    assert [row["--n"] for row in table(tmp_path)] == ["5", "6"]


@pytest.mark.parametrize(
    "argv, says",
    [
        (["--lrr=1"], "got --lrr; did you mean --lr?"),
        (["--repeat=0"], "repeat"),
        (["--x=lr"], "expected --y with --x"),
        (["--x=text", "--y=loss", "--text=a,b"], "expected numbers in --x=text"),
        (["--", "--out=x"], "expected --out before --"),
        (["--n=1", "--jobs=x"], "jobs"),
    ],
)
def test_bad_input_is_said_before_anything_runs(swept, tmp_path, argv, says):
    with pytest.raises(BadInput) as error:
        swept("--lr=1", *argv)
    assert says in str(error.value)
    assert not (tmp_path / "out").exists()


def test_bad_input_is_one_line_and_code_2(tmp_path):
    command = [sys.executable, str(ROOT / "launch/sweep.py"), SCRIPT, "--lrr=1"]
    ended = subprocess.run([*command, *out(tmp_path)], capture_output=True, text=True)
    assert (ended.returncode, ended.stdout) == (2, "")
    line = f"sweep.py: expected a flag of {SCRIPT}, got --lrr; did you mean --lr?\n"
    assert ended.stderr == line


def test_an_experiment_is_asked_for_its_flags():
    known = sweep_flags.known(str(ROOT / "experiments/glove.py"))
    switches = {flag for flag, switch in known.items() if switch}
    assert {"strategy", "lr", "out", "network", "allreduce"} <= known.keys() - switches
    assert {"lower", "check"} <= switches and "help" not in known


def test_help_that_is_no_text_is_read_as_far_as_it_goes(tmp_path):
    script = tmp_path / "odd.py"
    text = "b'\\xff\\n  --out: x\\n'"
    script.write_text(f"import sys; sys.stdout.buffer.write({text})")
    assert sweep_flags.known(str(script)) == {"out": False}


def test_a_script_that_says_no_flags_is_bad_input(tmp_path):
    with pytest.raises(BadInput, match="expected a script, got /no/x.py, no such file"):
        sweep_flags.known("/no/x.py")
    broken = tmp_path / "broken.py"
    broken.write_text("raise ValueError('oh')")
    with pytest.raises(BadInput, match="got code 1: ValueError: oh; fix the script"):
        sweep_flags.known(str(broken))
    with pytest.raises(BadInput, match="expected a script first, got --lr=1"):
        sweep.main(["sweep.py", "--lr=1", SCRIPT])


def test_without_mpi_both_ways_to_get_one_are_said(tmp_path, monkeypatch):
    python = tmp_path / "bin" / "python"
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        BadInput, match="launch/local.sh, .*or install the system package"
    ):
        sweep_flags.mpirun()
    for place in (tmp_path, python.parent):  # the one of the environment goes first
        place.mkdir(exist_ok=True)
        (place / "mpirun").touch(0o755)
        assert sweep_flags.mpirun() == str(place / "mpirun")


def test_a_folder_has_one_sweep_at_a_time_but_tasks_share_it(swept, tmp_path):
    from sweep_guard import alone

    folder = tmp_path / "out"
    with alone(folder, shared=True):
        assert swept("--lr=1,2", "--only=0") == 0
        with pytest.raises(BadInput, match="expected one sweep at a time in"):
            swept("--lr=1,2")


def test_a_script_without_seeds_is_not_repeated(tmp_path, monkeypatch):
    monkeypatch.setattr(sweep_flags, "known", lambda script: {"lr": False})
    with pytest.raises(BadInput, match="expected a script with --seed for --repeat=2"):
        sweep.main(["sweep.py", SCRIPT, "--repeat=2"])
