"""Download data from published archives into a cache.

Wheels are downloaded with the user's pip configuration and read without importing them.
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
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import IO, NamedTuple
from urllib.request import urlopen
from zipfile import BadZipFile, ZipFile

from dml.files import cached
from dml.types import BadInput

CONNECTION_TIMEOUT = 20  # seconds
DOWNLOAD_TIMEOUT = 600  # seconds
SOURCE_ERRORS = (  # errors after which the next source is tried
    *(OSError, LookupError, ValueError, EOFError, csv.Error, zlib.error),
    *(BadZipFile, subprocess.SubprocessError, http.client.HTTPException),
)


class Source(NamedTuple):
    """Files of an archive or folder, and the functions that download and parse them.

    Attributes:
      fetch: (address, target folder) -> path of the archive or folder.
      address: URL, requirement or package name.
      members: Paths in the archive; outer.zip!inner is a member of a nested zip.
      lines: Binary member -> lines of text, which are cached. None: the only member is
        a path in a folder, and is used there without a copy.
      sha256: Hash of the archive; None for no check.
    """

    fetch: Callable[[str, Path], Path]
    address: str
    members: Iterable[str]
    lines: Callable[[IO[bytes]], Iterator[str]] | None = None
    sha256: str | None = None


def cache_folder() -> Path:
    """Return the folder of cached files: $DML_DATA, by default ~/.cache/dml."""
    return Path(os.environ.get("DML_DATA") or "~/.cache/dml").expanduser()


def cached_path(name: str, sources: Sequence[Source]) -> Path:
    """Return the path of a file in the cache, after downloading it if it is missing.

    Sources are tried in order. Raises BadInput if all of them fail.
    """
    path = cache_folder() / name
    if path.exists():
        return path
    errors = []
    for source in sources:
        try:
            if source.lines is None:
                (member,) = source.members
                return _check_exists(source.fetch(source.address, path.parent) / member)
            return cached(path, partial(_download, source))
        except SOURCE_ERRORS as error:
            errors.append(f"{source.address}: {error or type(error).__name__}")
    raise BadInput(
        f"expected a download of {path}, got the errors {'; '.join(errors)}; "
        "pass the path of a file instead of the name"
    )


def installed_folder(package: str, folder: Path) -> Path:
    """Return the folder of an installed package, without importing the package.

    The target `folder` is not used.
    """
    spec = find_spec(package)
    if spec is None or not spec.origin:
        raise LookupError("is not installed")
    return Path(spec.origin).parent


def download_wheel(requirement: str, folder: Path) -> Path:
    """Download a wheel with pip into a folder; return the path of the wheel."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--retries=1"]
    command += ["--only-binary=:all:", f"--dest={folder}", requirement]
    result = subprocess.run(
        command, capture_output=True, text=True, timeout=DOWNLOAD_TIMEOUT
    )
    if result.returncode:
        lines = result.stderr.strip().splitlines()
        raise OSError(lines[-1] if lines else f"pip exits with {result.returncode}")
    wheels = list(folder.glob("*.whl"))
    if not wheels:
        raise FileNotFoundError("pip has downloaded no wheel")
    return wheels[0]


def download_url(address: str, folder: Path) -> Path:
    """Download a URL into a folder; return the path of the file."""
    path = folder / "downloaded"
    with (
        urlopen(address, timeout=CONNECTION_TIMEOUT) as response,
        path.open("wb") as file,
    ):
        shutil.copyfileobj(response, file)
    return path


def _check_exists(path: Path) -> Path:
    """Return the path; raise FileNotFoundError if it does not exist."""
    if not path.exists():
        raise FileNotFoundError(f"has no {path}")
    return path


def _download(source: Source, path: Path) -> None:
    """Download a source and write the lines of all members to one file.

    The archive is written into the folder of `path`.
    """
    assert source.lines is not None
    archive = source.fetch(source.address, path.parent)
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if source.sha256 not in (None, digest):
        raise ValueError(f"expected sha256 {source.sha256}, got {digest}")
    with path.open("w", encoding="utf-8", newline="\n") as out:
        for name in source.members:
            with _open_member(archive, name) as member:
                out.writelines(source.lines(member))


@contextmanager
def _open_member(archive: Path | IO[bytes], name: str) -> Iterator[IO[bytes]]:
    """Open a member of a zip archive; outer.zip!inner is a member of a nested zip."""
    outer, _, inner = name.partition("!")
    with ZipFile(archive) as files, files.open(outer) as member:
        if inner:
            with _open_member(member, inner) as nested:
                yield nested
        else:
            yield member
