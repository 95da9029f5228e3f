"""measure.py: blocks of the measured pages run once for a commit, and are listed."""

import measure
import pytest

PAGE = """# A page

```sh
python -c "print(6 * 7)" > answer
cat answer
ls launch/measure.py | wc -l
```

Text, and a block that is no command:

```
answer 42
```

```sh
exit {code}
```
"""


@pytest.fixture
def pages(tmp_path, monkeypatch):
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "sums.md").write_text(PAGE.format(code=0))
    (folder / "empty.md").write_text("# No commands\n")
    monkeypatch.setattr(measure, "PAGES", folder)
    monkeypatch.setattr(measure, "commit", lambda: "abc")
    return folder


def run(tmp_path, *argv):
    return measure.main([f"--out={tmp_path / 'out'}", *argv])


def test_blocks_run_in_their_folders_once(pages, tmp_path, capsys):
    assert run(tmp_path) == 0
    folder = tmp_path / "out" / "sums-1"
    assert (folder / "output.txt").read_text() == "42\n1\n"
    assert (folder / "experiments" / "linear.py").exists()
    found = measure.record(folder)
    assert (found["code"], found["commit"]) == (0, "abc")
    capsys.readouterr()
    assert run(tmp_path) == 0
    assert not capsys.readouterr().out  # nothing is left to run


def test_changed_commands_and_commits_run_again(pages, tmp_path, capsys, monkeypatch):
    run(tmp_path, "--only=sums")
    (pages / "sums.md").write_text(PAGE.format(code=3))
    capsys.readouterr()
    assert run(tmp_path) == 1
    out = capsys.readouterr().out
    assert "sums-1" not in out and "sums-2: failed with code 3" in out
    monkeypatch.setattr(measure, "commit", lambda: "def")
    assert run(tmp_path) == 1
    assert "sums-1" in capsys.readouterr().out


def test_the_list_has_commands_and_status(pages, tmp_path, capsys, monkeypatch):
    assert run(tmp_path, "--list") == 0
    assert "sums-1: not run\n    python -c" in capsys.readouterr().out
    monkeypatch.setattr(measure, "load_of_others", lambda: lambda: 3.0)
    run(tmp_path)
    capsys.readouterr()
    run(tmp_path, "--list")
    assert "s, load 3 beside it\n" in capsys.readouterr().out
    monkeypatch.setattr(measure, "commit", lambda: "def")
    run(tmp_path, "--list")
    assert "sums-1: ran at abc, " in capsys.readouterr().out


def test_unknown_pages_are_refused(pages, tmp_path, capsys):
    with pytest.raises(SystemExit):
        run(tmp_path, "--only=products")
    assert "expected pages of empty, sums, got 'products'" in capsys.readouterr().err


def test_pages_of_the_docs_have_blocks():
    found = measure.blocks()
    assert len(found) > 30 and len({block.name for block in found}) == len(found)
    assert all(
        "python" in block.commands or "launch" in block.commands for block in found
    )
