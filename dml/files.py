"""Files that other processes see complete or not at all: written, then renamed."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import BinaryIO

from dml.types import BadInput


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` if no exception is raised."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb") as file:
            yield file
        os.replace(temporary, path)
    except OSError as error:
        raise BadInput(
            f"expected disk space for {path}, got {error}; free space or write to "
            "another folder"
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def cached(path: Path, build: Callable[[Path], object]) -> Path:
    """Return the path of a cached file or folder, after building it if it is missing.

    Several processes may build at once; the first one that ends determines a folder.

    Args:
      path: File or folder in the cache.
      build: (path) -> None; writes the file or folder to another path.
    """
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=path.parent, prefix=".") as folder:
        incomplete = Path(folder, path.name)
        build(incomplete)
        try:
            incomplete.replace(path)
        except OSError:  # a folder that exists is not replaced
            if not path.exists():
                raise
    return path
