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
from sweep_guard import lock_folder

from dml import processes
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


def table(folder):
    with open(folder / "out/results.csv", newline="") as file:
        return list(csv.DictReader(file))


def timeless(rows):
    return [{k: v for k, v in row.items() if k not in TIMES} for row in rows]


def stamps(folder):
    """Return when each run's folder was last finished."""
    files = sorted((folder / "out").glob("*/sweep.json"))
    return {file.parent.name: file.stat().st_mtime_ns for file in files}


TEXTS = [*("a  b", "it's", '"', "0,1", "$HOME `id` $(id)", "--lr=9", "*", "\\", "")]


def quoted(texts):
    return ",".join('"' + text.replace('"', '""') + '"' for text in texts)


def test_every_cell_is_a_row_with_its_flags_and_its_summary(
    swept, tmp_path, monkeypatch
):
    """Any text reaches the script as it is, also where the sweep is a rank itself."""
    monkeypatch.setenv("PMI_RANK", "1")  # as a rank, the script would write nothing
    texts = [*TEXTS, "a\nb"]
    assert swept("--lr=0.1,0.2", f"--text={quoted(texts)}", "--repeat=2") == 0
    rows = table(tmp_path)
    assert list(rows[0])[:5] == ["lr", "text", "seed", "code", "wall_seconds"]
    names = "lr", "summary.text", "seed", "loss"
    assert [tuple(row[name] for name in names) for row in rows] == [
        (lr, text, seed, str(float(lr) + int(seed)))
        for lr in ("0.1", "0.2")
        for text in texts
        for seed in "01"
    ]
    for row in rows:
        run = results.read(tmp_path / "out" / row["run"])
        assert (run.flags["lr"], run.flags["text"]) == (row["lr"], row["summary.text"])


def test_what_is_shown_could_be_pasted_into_a_shell(swept, tmp_path, capsys):
    assert swept(f"--text={quoted(TEXTS)}", "--dry_run") == 0
    *lines, last = capsys.readouterr().out.splitlines()
    shown = [shlex.split(line)[2] for line in lines]
    assert shown == [f"--text={text}" for text in TEXTS]
    assert last == "# 9 of 9 missing"
    assert not (tmp_path / "out").exists()


def test_a_failing_run_is_kept_and_the_others_go_on(swept, tmp_path, capsys):
    argv = ["--text=a,fail"]
    assert swept(*argv) == 1
    rows = table(tmp_path)
    says = "begun\na line before\nexpected luck, got none"
    assert [(row["code"], row["error_message"], row["loss"]) for row in rows] == [
        *(("0", "", "1.0"), ("1", says, ""))
    ]
    folder = tmp_path / "out" / rows[1]["run"]
    assert "a line before" in (folder / "output.txt").read_text()
    said = capsys.readouterr()
    assert "FAILED, code 1: expected luck, got none" in said.err
    assert f"failed: {folder}/output.txt  code 1" in said.out
    before = stamps(tmp_path)
    assert swept(*argv) == 1
    after = stamps(tmp_path)
    assert [k for k in after if after[k] == before[k]] == [rows[0]["run"]]


def test_a_run_that_takes_too_long_is_ended(swept, tmp_path):
    assert swept("--wait=3600", "--timeout=0.5") == 1
    (row,) = table(tmp_path)
    assert row["code"] == "124"
    assert row["error_message"].endswith("ended after --timeout=0.5 s")


def test_only_what_is_missing_runs_and_in_an_empty_folder(swept, tmp_path):
    swept("--lr=1,2,3,4")
    before, runs = stamps(tmp_path), [row["run"] for row in table(tmp_path)]
    for name, left in zip(runs, ("summary.json", "sweep.json"), strict=False):
        (tmp_path / "out" / name / left).write_text('{"half": ')
    (tmp_path / "out" / runs[2] / "summary.json").unlink()
    (tmp_path / "out" / runs[0] / "stray").touch()
    assert swept("--lr=1,2,3,4,5") == 0
    after = stamps(tmp_path)
    changed = {name for name in before if after[name] != before[name]}
    assert changed == set(runs[:3])
    assert len(after) == 5
    assert not (tmp_path / "out" / runs[0] / "stray").exists()
    losses = [row["loss"] for row in table(tmp_path)]
    assert losses == ["1.0", "2.0", "3.0", "4.0", "5.0"]


def alive(folder):
    """Return the command lines of processes that were given the folder."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended meanwhile
            found += [line] if str(folder) in (line := file.read_text()) else []
    return found


def started(folder, *argv, hangs=""):
    """Start a sweep in a process of its own; a run with this lr does not end."""
    return subprocess.Popen(
        [sys.executable, str(ROOT / "launch/sweep.py"), SCRIPT, *argv, *out(folder)],
        env=os.environ | {"HANGS": hangs},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def begun(folder, count):
    """Wait until so many runs have begun."""
    while len(list((folder / "out").glob("*/config.json"))) < count:
        time.sleep(0.01)


def test_interrupted_and_resumed_gives_the_same_table(swept, tmp_path):
    argv = ["--n=2", "--jobs=2"]
    process = started(tmp_path, "--lr=1,2", *argv, hangs="2")
    begun(tmp_path, 2)
    while not stamps(tmp_path):  # the first has not ended
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=1200)
    assert process.returncode == 130
    assert said.endswith("sweep.py: interrupted; start again to continue\n")
    assert not alive(tmp_path)
    done = stamps(tmp_path)
    assert len(done) == 1 and len([*(tmp_path / "out").glob("*/output.txt")]) == 2
    argv.append("--lr=1,2,3")
    assert swept(*argv) == 0
    assert stamps(tmp_path).items() > done.items()
    resumed = table(tmp_path)
    shutil.rmtree(tmp_path / "out")
    assert swept(*argv) == 0
    assert timeless(resumed) == timeless(table(tmp_path))


@pytest.mark.parametrize("ranks", [[], ["--n=2"]])
def test_a_sweep_that_is_killed_takes_its_runs_with_it(tmp_path, ranks):
    process = started(tmp_path, "--lr=1", *ranks, hangs="1")
    begun(tmp_path, 1)
    process.kill()
    process.communicate()
    while alive(tmp_path):
        time.sleep(0.01)


def job(folder, code="", ranks=None, cores=1):
    """Return the job of a cell, which runs the code where there is any."""
    (made,) = sweep_runs.jobs(SCRIPT, [Cell(ranks, {"seed": "0"})], folder, "", cores)
    return made._replace(command=[sys.executable, "-c", code]) if code else made


def executed(job):
    """Run a job; return how it ended."""
    *_, state = sweep_runs.execute([job], sweep_runs.available_cores(1) * job.cores, 0)
    return state.ended[0]


def test_the_widest_runs_begin_first(tmp_path):
    cells = [Cell(ranks, {"lr": "1", "seed": "0"}) for ranks in (1, 2)]
    jobs = sweep_runs.jobs(SCRIPT, cells, tmp_path, processes.mpirun(), 2)
    states = sweep_runs.execute(jobs, [0, 1], 0)
    (first,) = next(states).running
    states.close()
    assert first.job.cell.ranks == 2


@pytest.mark.parametrize("code", ("print()", "import shutil; shutil.rmtree({!r})"))
def test_a_run_without_a_summary_has_failed(tmp_path, code):
    """Also one that removes its folder; another run in its folder is not its own."""
    first = job(tmp_path, code.format(str(job(tmp_path).folder)))
    ended = executed(first)
    assert "summary.json" in ended.error
    assert not sweep_runs.done(first)
    assert sweep_runs.earlier_result(first) == ended
    other = job(tmp_path, ranks=2)._replace(folder=first.folder)
    assert sweep_runs.earlier_result(other) is None


def test_no_core_has_two_runs_at_once_and_all_are_used(swept, tmp_path):
    assert swept("--n=1,2,3", "--wait=0.05,0.1", "--repeat=2", "--jobs=2") == 0
    cores, rows = sweep_runs.available_cores(2), table(tmp_path)
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
    assert min(3, len(cores)) <= most <= len(cores)


def test_a_run_gets_the_threads_of_its_cores(tmp_path):
    ended = executed(job(tmp_path, cores=4)._replace(cores=3))
    assert results.read(ended.job.folder).summary["threads"] == "3"


def test_no_output_moves_the_terminal(tmp_path):
    text = b"one\r\x1b[2J\x1b[1;31mtwo\x1b[0m\x00\x07\n\xff \xe2\x80\xa6\tthree\x1b]0;x"
    (tmp_path / "output.txt").write_bytes(text)
    assert sweep_runs.tail(tmp_path) == ["one", "two", "\ufffd \u2026\tthree]0;x"]


def test_tables_show_that_every_run_failed(swept, tmp_path, capsys):
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


def test_slurm_gets_an_array_of_what_is_missing(swept, tmp_path, monkeypatch, capsys):
    swept("--lr=3")
    sbatch = tmp_path / "sbatch"
    sbatch.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >{tmp_path}/argv\n')
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert swept("--lr=1,2,3,4", "--slurm", "--text=a b", "--jobs=3") == 0
    got = (tmp_path / "argv").read_text().splitlines()
    assert got[:3] == ["--array=0-3", "--ntasks=1", "--cpus-per-task=1"]
    assert got[3:6] == ["slurm.sbatch", "sweep.py", SCRIPT]
    assert got[6:] == [*out(tmp_path), "--lr=1,2,3,4", "--text=a b", "--jobs=3"]
    for more, said in (
        (["--", "--n=1"], "-- --n=1\n"),
        (["--n=2"], "--cpus-per-task=2"),
        ([], "--array=0-1,3"),
    ):
        capsys.readouterr()
        swept("--lr=1,2,3,4", "--slurm", "--dry_run", *more)
        assert said in capsys.readouterr().out


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
        (["--only=1"], "expected --only below 1, got 1"),
    ],
)
def test_bad_input_is_refused_before_anything_runs(swept, tmp_path, argv, says):
    with pytest.raises(BadInput) as error:
        swept("--lr=1", *argv)
    assert says in str(error.value)
    assert not (tmp_path / "out").exists()
    with pytest.raises(BadInput, match="expected a script first, got --lr=1"):
        sweep.main(["sweep.py", "--lr=1", SCRIPT])


def test_bad_input_is_one_line_and_code_2(tmp_path):
    process = started(tmp_path, "--lrr=1")
    line = f"sweep.py: expected a flag of {SCRIPT}, got --lrr; did you mean --lr?\n"
    assert process.communicate(timeout=1200) == ("", line)
    assert process.returncode == 2


def test_a_script_without_a_list_of_flags_is_bad_input(tmp_path):
    script = tmp_path / "odd.py"
    with pytest.raises(BadInput, match="expected a script, got .*odd.py, no such file"):
        sweep_flags.script_flags(str(script))
    script.write_text("raise ValueError('oh')")
    with pytest.raises(BadInput, match="got code 1: ValueError: oh; fix the script"):
        sweep_flags.script_flags(str(script))
    text = "b'\\xff\\n  --out: x\\n'"  # no text: read as far as it goes
    script.write_text(f"import sys; sys.stdout.buffer.write({text})")
    assert sweep_flags.script_flags(str(script)) == {"out": False}
    with pytest.raises(BadInput, match="expected a script with --seed for --repeat=2"):
        sweep.main(["sweep.py", str(script), "--repeat=2"])


def test_a_folder_has_one_sweep_at_a_time_but_tasks_share_it(swept, tmp_path):
    folder = tmp_path / "out"
    with lock_folder(folder, shared=True):
        assert swept("--lr=1,2", "--only=0") == 0
        with pytest.raises(BadInput, match="expected one sweep at a time in"):
            swept("--lr=1,2")


def test_all_flags_of_an_experiment_are_known_with_their_kinds():
    script = ROOT / "experiments" / "linear.py"
    known = sweep_flags.script_flags(str(script))
    import linear

    assert set(known) == set(linear.FLAGS) - {"help", "h"}
    assert known["check"] and known["csv"]
    assert not known["lr"] and not known["grid"]
