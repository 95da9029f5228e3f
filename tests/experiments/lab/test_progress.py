"""The first line of a command, its status line, and the durations of earlier runs."""

import io
import re
import sys
import time

import pytest
from lab import progress


class Screen(io.StringIO):
    """A standard output that may be a terminal."""

    terminal = False

    def isatty(self):
        return self.terminal


@pytest.fixture
def begin(tmp_path, monkeypatch):
    """Return begin(terminal) -> (Progress that has begun, its output)."""
    monkeypatch.setenv("DML_DATA", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["experiments/x.py"])
    monkeypatch.setattr(progress, "IMPORTED", time.monotonic())
    monkeypatch.setattr(progress, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(progress, "CHECKED_SECONDS", 0.01)
    for name in ("TERMINAL_SECONDS", "FILE_SECONDS"):
        monkeypatch.setattr(progress, name, 0.05)

    def begin(terminal=False, **chosen):
        screen = Screen()
        screen.terminal = terminal
        monkeypatch.setattr(sys, "stdout", screen)
        one = progress.Progress()
        one.begin("What it does", chosen)
        return one, screen

    return begin


def wait_for(pattern, screen):
    while not re.search(pattern, screen.getvalue()):
        time.sleep(0.01)


def test_a_silent_command_prints_its_purpose_and_then_its_status(begin):
    one, screen = begin()
    wait_for("x.py: What it does; no earlier run with these flags\n", screen)
    one.step("svm", total=2)
    wait_for(r"x.py: \d+ s: svm \(1 of 2\)\n", screen)
    one.step("cuts")
    wait_for(r"left: cuts \(2 of 2\)\n", screen)
    one.end(True)
    assert sys.stdout is screen


def test_the_first_line_precedes_the_first_output(begin, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_SECONDS", 60.0)
    one, screen = begin()
    print("a row")
    print("another")
    first, *rows = screen.getvalue().splitlines()
    assert first == "x.py: What it does; no earlier run with these flags"
    assert rows == ["a row", "another"]
    one.end(True)


def test_the_first_line_is_due_one_second_after_the_start(monkeypatch):
    for since_start, delay in ((0.0, 1.0), (0.4, 0.6), (0.9, 0.25), (7.0, 0.25)):
        monkeypatch.setattr(progress.time, "monotonic", lambda: 100.0)
        monkeypatch.setattr(progress, "IMPORTED", 100.0 - since_start)
        assert progress.first_delay() == pytest.approx(delay)


def test_no_silence_lasts_longer_than_ten_seconds():
    assert max(progress.TERMINAL_SECONDS, progress.FILE_SECONDS) <= 10


def test_a_command_of_known_duration_prints_the_time_left(begin, monkeypatch):
    monkeypatch.setattr(progress, "FILE_SECONDS", 600.0)
    one, screen = begin()
    one.expect(100.0, silence=0.05)
    wait_for(r"x.py: \d+ s, about 1 min \d+ s left\n", screen)
    one.end(True)


def test_output_replaces_the_status_line_of_a_terminal(begin):
    one, screen = begin(terminal=True)
    erase = re.escape(progress.ERASE)
    wait_for(rf"{erase}x.py: \d+ s", screen)
    print("a row")
    assert re.search(rf"x.py: \d+ s{erase}a row\n", screen.getvalue())
    one.end(True)


def test_a_command_that_ends_at_once_and_other_ranks_print_nothing(begin, monkeypatch):
    monkeypatch.setattr(progress, "FIRST_SECONDS", 60.0)
    one, screen = begin()
    one.end(False)
    assert screen.getvalue() == ""
    monkeypatch.setenv("PMI_RANK", "1")
    one, screen = begin()
    assert sys.stdout is screen and one.output is None
    one.end(True)


def test_the_duration_of_a_complete_run_with_the_same_flags_is_known(begin):
    for complete, flags, text in (
        (False, {"n": 1}, "no earlier run"),
        (True, {"n": 1}, "no earlier run"),
        (True, {"n": 2}, "no earlier run"),
        (True, {"n": 1}, r"\d+ s in the last run with these flags"),
    ):
        one, screen = begin(**flags)
        wait_for(f"x.py: What it does; {text}", screen)
        one.end(complete)


def test_the_time_left_is_that_of_the_last_run_or_of_the_parts_that_are_done():
    one = progress.Progress()
    one.name, one.expected = "x.py", 100.0
    assert one.status(40.0) == "x.py: 40 s, about 1 min 0 s left"
    assert one.status(140.0) == "x.py: 2 min 20 s, soon done"
    one.expected = 0.0
    for _ in range(3):
        one.step("part", 8)
    assert one.status(10.0) == "x.py: 10 s, about 30 s left: part (3 of 8)"
    one = progress.Progress()
    one.name, one.rows = "x.py", 3
    assert one.status(10.0) == "x.py: 10 s: 3 rows written"
    for part in one.each(["a", "b", "c", "d"]):
        if part == "c":
            break
    assert one.status(10.0) == "x.py: 10 s, about 10 s left: c (3 of 4)"


@pytest.mark.parametrize("text", ["", "[1]", '{"x": "y"}', "\x00"])
def test_a_broken_file_of_durations_is_no_file(tmp_path, monkeypatch, text):
    monkeypatch.setenv("DML_DATA", str(tmp_path))
    (tmp_path / "durations.json").write_text(text)
    assert progress.durations() == {}
    progress.remember({"a": 1.0})
    assert progress.durations() == {"a": 1.0}


def test_the_durations_of_the_last_runs_are_kept(begin, monkeypatch):
    monkeypatch.setattr(progress, "MAX_DURATIONS", 2)
    for epochs in (1, 2, 1, 3):
        one, _ = begin(epochs=epochs)
        one.end(True)
        if epochs == 1:
            again = one.key
    assert list(progress.durations()) == [again, one.key]
