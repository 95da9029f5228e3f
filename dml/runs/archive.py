"""Archives: named arrays and a description in one file, with a hash of every bit.

An archive has the format of `numpy.savez`, so `numpy.load` reads its arrays too. The
member index.json has the description, the dtype and shape of each array, and a SHA-256
of the description, the dtypes and shapes, and the bytes of the arrays.
"""

import hashlib
import json
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dml.files import replacing

INDEX = "index.json"


class Broken(Exception):
    """Raised for an archive that is not what was written; the message is the reason."""


class Index(NamedTuple):
    """The contents of an archive without its arrays.

    Attributes:
      description: JSON values by name.
      arrays: Dtype and shape of each array, such as float32[2, 3].
      sha256: Hash of the description and of the arrays.
    """

    description: dict[str, Any]
    arrays: dict[str, str]
    sha256: str


class Shape(NamedTuple):
    """Shape and dtype of an array."""

    shape: tuple[int, ...]
    dtype: np.dtype


def write(
    path: Path, arrays: Mapping[str, np.ndarray], description: Mapping[str, Any]
) -> None:
    """Write an archive; an existing file is replaced atomically.

    Args:
      path: The file.
      arrays: Arrays by name.
      description: JSON values by name.
    """
    listed = {name: shape_text(array) for name, array in arrays.items()}
    described = json.loads(json.dumps(dict(description)))
    sha256 = digest(described, listed, arrays.values())
    index = Index(described, listed, sha256)._asdict()
    with (
        replacing(path) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive,
    ):
        archive.writestr(INDEX, json.dumps(index, indent=2))
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, plain(array), allow_pickle=False)


def read_index(path: Path) -> Index:
    """Return the index of an archive; its arrays are not checked."""
    # a changed byte of a zip file may raise almost any exception
    try:
        with zipfile.ZipFile(path) as archive:
            index = Index(**json.loads(archive.read(INDEX)))
        complete = isinstance(index.sha256, str) and all(
            isinstance(values, dict) for values in index[:2]
        )
    except Exception as error:
        raise Broken("cannot be read") from error
    if not complete:
        raise Broken(f"has an {INDEX} of another form")
    return index


def read(path: Path) -> tuple[Index, dict[str, np.ndarray]]:
    """Return the index and the arrays of an archive; raise Broken if a bit changed."""
    index = read_index(path)
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays = {
                name: archive[name].view(parse_shape(text).dtype)
                for name, text in index.arrays.items()
            }
        listed = {name: shape_text(array) for name, array in arrays.items()}
        sha256 = digest(index.description, listed, arrays.values())
    except Exception as error:  # as in `read_index`
        raise Broken("is not what was saved") from error
    if (listed, sha256) != (index.arrays, index.sha256):
        raise Broken("is not what was saved")
    return index, arrays


def digest(
    description: Mapping[str, Any],
    listed: Mapping[str, str],
    arrays: Iterable[np.ndarray],
) -> str:
    """Return a SHA-256 of a description, of dtypes and shapes, and of arrays."""
    text = json.dumps([description, list(listed.items())], sort_keys=True)
    sha256 = hashlib.sha256(text.encode())
    for array in arrays:
        sha256.update(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
    return sha256.hexdigest()


def plain(array: np.ndarray) -> np.ndarray:
    """Return an array with a dtype of NumPy: bfloat16, which JAX adds, as bytes."""
    added = array.dtype.kind == "V"
    return array.view(f"V{array.dtype.itemsize}") if added else array


def shape_text(leaf: Any) -> str:
    """Return the dtype and shape of an array or number, such as float32[2, 3]."""
    dtype = leaf.dtype if hasattr(leaf, "dtype") else type(leaf).__name__
    return f"{dtype}{list(np.shape(leaf))}"


def parse_shape(text: str) -> Shape:
    """Return the shape and dtype of a text: the inverse of `shape_text`."""
    dtype, _, shape = text.partition("[")
    return Shape(tuple(json.loads(f"[{shape}")), np.dtype(dtype))
