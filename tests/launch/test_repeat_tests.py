"""The table of repeated tests, and the load beside them."""

import re

import repeat_tests

TESTS = """
from pathlib import Path
import pytest

def test_every_second_time():
    mark = Path(__file__).with_name("mark")
    first = not mark.exists()
    mark.touch()
    assert first

def test_always():
    pass

@pytest.mark.skip
def test_never():
    pass
"""


def test_failures_are_counted_by_test(tmp_path, capfd):
    (tmp_path / "test_some.py").write_text(TESTS)
    arguments = ["-c/dev/null", f"--rootdir={tmp_path}", str(tmp_path)]
    assert repeat_tests.main(["--times=2", *arguments]) == 1
    head, *rows = capfd.readouterr().out.splitlines()[-3:]
    assert head.split()[:2] == ["runs", "failures"]
    found = [re.split(r"\s+", row.strip()) for row in rows]
    assert [(row[0], row[1], row[-1]) for row in found] == [
        ("2", "1", "test_some::test_every_second_time"),
        ("2", "0", "test_some::test_always"),
    ]
    assert repeat_tests.main(["--times=1", "-k", "always", *arguments]) == 0


def test_the_load_ends_with_its_context():
    with repeat_tests.loaded() as processes:
        assert len(processes) == 5
    assert all(process.poll() is not None for process in processes)
