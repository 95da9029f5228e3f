"""Files are complete at every moment, whoever writes at the same time."""

import pytest

from dml.files import cached, replacing
from dml.types import BadInput


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(BadInput, match="No space left"), replacing(path) as file:
        file.write(b"new")
        raise OSError(28, "No space left on device")
    with pytest.raises(KeyboardInterrupt), replacing(path) as file:
        raise KeyboardInterrupt
    with pytest.raises(BadInput, match="expected disk space"):
        replacing(path / "under").__enter__()
    assert path.read_text() == "old"
    with replacing(path) as file:
        file.write(b"new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("make", ("file", "folder"))
def test_the_cache_has_what_the_first_complete_build_wrote(tmp_path, make):
    path = tmp_path / "cache" / "name.npz"

    def write(text, path):
        assert path.name == "name.npz"  # numpy adds a missing suffix
        if make == "folder":
            path.mkdir()
        (path / "part" if make == "folder" else path).write_text(text)

    def slow(target):
        cached(path, lambda target: write("another", target))
        write("another", target)

    def broken(target):
        write("incomplete", target)
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        cached(path, broken)
    with pytest.raises(FileNotFoundError):
        cached(path, lambda target: None)
    assert not list(path.parent.iterdir())
    assert cached(path, slow) == path
    assert cached(path, broken) == path
    found = path / "part" if make == "folder" else path
    assert found.read_text() == "another"
    assert list(path.parent.iterdir()) == [path]
