"""The rules of launch/supervisor.py, without ranks, and its run folder."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import supervisor
import supervisor_folder
from supervisor import killed_by, supervise
from supervisor_folder import (
    FolderError,
    checkpoints_in_memory,
    move_to_disk,
    newest_checkpoint,
)
from supervisor_plan import make_plan

from dml.runs import checkpoints, states

KILLED, ERROR = 9, 1


def plan_of(folder, *flags, ranks=4, spares=1, attempts=3):
    given = [f"--out={folder}", *flags]
    return make_plan(
        SimpleNamespace(
            ranks=ranks,
            spares=spares,
            attempts=attempts,
            mpirun="mpirun",
            script="experiments/x.py",
            flags=given,
        )
    )


def save(folder, step):
    (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
    (folder / f"checkpoints/step-{step}.npz").touch()


def supervised(plan, monkeypatch, runs):
    """Return the exit code, and the ranks and whether it resumed of each start.

    runs: exit code and last saved step of each start, 0 without one.
    """
    starts, left = [], list(runs)

    def run_once(plan, ranks, resume, signals):
        code, step = left.pop(0)
        starts.append((ranks, resume))
        if step:
            save(plan.folder, step)
        return code, 1.0

    monkeypatch.setattr(supervisor, "run_once", run_once)
    code = supervise(plan, lambda: 0)
    assert not left
    return code, starts


@pytest.mark.parametrize(
    "runs, code, starts",
    [
        ([(0, 0)], 0, [(4, False)]),
        ([(2, 5)], 2, [(4, False)]),  # bad input
        ([(130, 5)], 130, [(4, False)]),  # ended by its user
        ([(KILLED, 0), (0, 9)], 0, [(4, False), (4, False)]),
        ([(KILLED, 5), (0, 9)], 0, [(4, False), (4, True)]),
        # one spare slot, then a rank fewer after each death
        (
            [(KILLED, 5), (137, 6), (-9, 7), (0, 0)],
            0,
            [(4, False), (4, True), (3, True), (2, True)],
        ),
        # no slot is left
        (
            [(KILLED, step) for step in range(1, 6)],
            137,
            [(4, False), (4, True), (3, True), (2, True), (1, True)],
        ),
        # no new checkpoint in three starts
        ([(11, 0)] * 3, 139, [(4, False), (4, False), (3, False)]),
        (
            [(KILLED, 5)] + [(KILLED, 0)] * 3,
            137,
            [(4, False), *[(n, True) for n in (4, 3, 2)]],
        ),
        # an error takes no slot, and is repeated only after progress
        ([(ERROR, 0)], 1, [(4, False)]),
        ([(ERROR, 5), (ERROR, 0)], 1, [(4, False), (4, True)]),
        (
            [(ERROR, 5), (ERROR, 6), (0, 0)],
            0,
            [(4, False), (4, True), (4, True)],
        ),
    ],
)
def test_a_run_is_restarted_while_it_makes_progress(
    tmp_path, monkeypatch, runs, code, starts
):
    assert supervised(plan_of(tmp_path), monkeypatch, runs) == (code, starts)


def test_checkpoints_of_an_earlier_run_in_the_folder_are_not_resumed(
    tmp_path, monkeypatch
):
    save(tmp_path, 50)
    runs = [(KILLED, 0), (0, 0)]
    _, starts = supervised(plan_of(tmp_path), monkeypatch, runs)
    assert starts == [(4, False), (4, False)]
    resumed = plan_of(tmp_path, f"--resume={tmp_path}")
    _, starts = supervised(resumed, monkeypatch, runs)
    assert starts == [(4, True), (4, True)]


def test_only_the_first_start_refuses_a_used_folder(tmp_path, monkeypatch):
    runs, starts = [(KILLED, 0), (KILLED, 5), (0, 0)], []

    class Run:
        def __init__(self, command):
            starts.append([word.partition("=")[0] for word in command[5:]])
            self.ended, step = runs.pop(0)
            if step:
                save(tmp_path, step)

        def run_to_end(self, signals):
            return self.ended

    monkeypatch.setattr(supervisor, "SupervisedRun", Run)
    plan = plan_of(tmp_path, "--save_every=1")
    assert supervise(plan, lambda: 0) == 0
    new, again, resume = ["--out"], ["--overwrite", "--out"], ["--resume"]
    assert [words[1:] for words in starts] == [new, again, resume]
    runs, starts = [(KILLED, 7), (0, 0)], []
    plan = plan_of(tmp_path, "--overwrite", "--save_every=1")
    assert supervise(plan, lambda: 0) == 0
    assert [words[1:] for words in starts] == [again, resume]


@pytest.mark.parametrize("status", ["", "done", "interrupted", "failed"])
def test_a_death_after_the_summary_is_no_failure(tmp_path, monkeypatch, status):
    summary = tmp_path / "summary.json"

    def run_once(plan, ranks, resume, signals):
        summary.write_text(json.dumps({"status": status} if status else {}))
        return KILLED, 1.0

    monkeypatch.setattr(supervisor, "run_once", run_once)
    complete = status in ("", "done")
    assert supervise(plan_of(tmp_path), lambda: 0) == (0 if complete else 137)
    # the run itself deletes the summary of an earlier run at its start
    monkeypatch.setattr(
        supervisor,
        "run_once",
        lambda *_: (summary.unlink(missing_ok=True), KILLED, 1.0)[1:],
    )
    assert supervise(plan_of(tmp_path, attempts=1), lambda: 0) == 137


@pytest.mark.parametrize(
    "code, number",
    [(9, 9), (137, 9), (-9, 9), (139, 11), (15, 15), (-2, 2), (1, 0), (3, 0), (124, 0)],
)
def test_exit_codes_of_both_mpis_and_of_a_killed_mpirun_are_signals(code, number):
    assert killed_by(code) == number


@pytest.mark.parametrize(
    "given, flags, folder, resume",
    [
        (["--out=a", "--lr=1"], ["--lr=1", "--save_every=10"], "a", False),
        (["--out", "a", "--save_every", "3"], ["--save_every", "3"], "a", False),
        (["-resume=a", "--save_every=3"], ["--save_every=3"], "a", True),
        (["--resume=a", "--out=a"], ["--save_every=10"], "a", True),
        (
            ["--without=x", "out=1"],
            ["--without=x", "out=1", "--save_every=10"],
            "",
            False,
        ),
    ],
)
def test_the_run_gets_a_folder_and_an_interval_if_it_has_none(
    given, flags, folder, resume
):
    plan = make_plan(
        SimpleNamespace(
            ranks=1, spares=0, attempts=1, mpirun="m", script="e/x.py", flags=given
        )
    )
    assert (plan.flags, plan.resume) == (flags, resume)
    assert str(plan.folder) == folder or str(plan.folder).startswith("runs/x/20")


def test_two_folders_are_refused(tmp_path):
    with pytest.raises(FolderError, match="expected one folder"):
        plan_of(tmp_path, "--resume=other")


def test_the_newest_checkpoint_is_that_with_the_largest_number(tmp_path):
    assert newest_checkpoint(tmp_path) is None
    for step in (9, 10):
        states.save(tmp_path / "checkpoints", step, {"w": np.ones(2)}, {})
    (tmp_path / "checkpoints/.step-11.npz.7").touch()  # incomplete
    (tmp_path / "checkpoints/step-12").mkdir()  # of an earlier version
    newest = newest_checkpoint(tmp_path)
    assert newest.place == "step 10"
    states.save(tmp_path / "checkpoints", 10, {"w": np.ones(2)}, {})
    assert newest_checkpoint(tmp_path) != newest
    file = tmp_path / "glove" / checkpoints.FOLDER / "epoch-4.npz"
    checkpoints.write(file, {"w": np.ones(2)}, {})
    assert newest_checkpoint(tmp_path / "glove").place == "epoch 4"


@pytest.fixture
def memory(tmp_path, monkeypatch):
    place = tmp_path / "memory"
    place.mkdir()
    monkeypatch.setattr(supervisor_folder, "MEMORY", place)
    return place


def test_checkpoints_in_memory_are_moved_to_the_folder_at_the_end(memory, tmp_path):
    run = tmp_path / "run"
    save(run, 5)  # of a run to resume
    with checkpoints_in_memory(run):
        assert newest_checkpoint(run).number == 5
        save(run, 8)
        (run / "checkpoints/.step-9.npz.7").touch()
        assert len(list(memory.glob("*/checkpoints/step-*"))) == 2
    assert not any(path.is_symlink() for path in run.iterdir())
    assert {p.name for p in (run / "checkpoints").iterdir()} == {
        "step-5.npz",
        "step-8.npz",
    }
    assert [*run.iterdir()] == [run / "checkpoints"] and not [*memory.iterdir()]


def test_checkpoints_in_memory_outlive_the_supervisor(memory, tmp_path):
    run = tmp_path / "run"
    killed = checkpoints_in_memory(run)
    killed.__enter__()
    save(run, 8)
    move_to_disk(run)  # by the next one
    assert newest_checkpoint(run).number == 8
    assert not (run / "checkpoints").is_symlink() and not [*memory.iterdir()]


def test_a_link_of_the_user_stays(memory, tmp_path):
    elsewhere = tmp_path / "elsewhere/dml-checkpoints-mine/checkpoints"
    elsewhere.mkdir(parents=True)
    (tmp_path / "run").mkdir()
    (tmp_path / "run/checkpoints").symlink_to(elsewhere)
    move_to_disk(tmp_path / "run")
    assert (tmp_path / "run/checkpoints").readlink() == elsewhere
