"""Read CIFAR-10 and CIFAR-100 in their binary format.

Images are Bx32x32x3, float32 in 0 … 1; classes are int32 (CIFAR-100: fine classes).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dml.types import BadInput, Batch

SIDE, COLOURS = 32, 3
PIXELS = SIDE * SIDE * COLOURS


class CifarLayout(NamedTuple):
    """Files of a data set.

    A file consists of records of one image: label bytes, then the red, green and blue
    planes.

    Attributes:
      training: Names of the training files.
      held_out: Names of the held-out files.
      label_bytes: Number of label bytes in a record; the last one is the class.
      classes: Number of classes.
    """

    training: Sequence[str]
    held_out: Sequence[str]
    label_bytes: int
    classes: int


LAYOUTS = (
    CifarLayout(
        [f"data_batch_{k}.bin" for k in range(1, 6)], ["test_batch.bin"], 1, 10
    ),
    CifarLayout(["train.bin"], ["test.bin"], 2, 100),
)


def find_layout(path: Path) -> CifarLayout | None:
    """Return the layout with at least one file in the folder, if any."""
    for layout in LAYOUTS:
        if any((path / name).exists() for name in (*layout.training, *layout.held_out)):
            return layout
    return None


def cifar(path: Path, layout: CifarLayout) -> tuple[Batch, Batch]:
    """Read the (training, held-out) batches of a folder."""
    training, held_out = (
        _batch([_records(path / name, layout) for name in names], layout)
        for names in (layout.training, layout.held_out)
    )
    return training, held_out


def _records(path: Path, layout: CifarLayout) -> np.ndarray:
    """Read a file as an array with one row per record."""
    try:
        data = np.fromfile(path, np.uint8)
    except OSError as error:
        names = ", ".join((*layout.training, *layout.held_out))
        raise BadInput(
            f"{path}: expected a CIFAR file, got {error.strerror}; pass a "
            f"folder with {names}"
        ) from None
    record_bytes = layout.label_bytes + PIXELS
    if not len(data) or len(data) % record_bytes:
        raise BadInput(
            f"{path}: expected records of {record_bytes} bytes, got {len(data)} bytes; "
            "download the binary version again"
        )
    records = data.reshape(-1, record_bytes)
    largest = records[:, layout.label_bytes - 1].max()
    if largest >= layout.classes:
        raise BadInput(
            f"{path}: expected classes below {layout.classes}, got {largest}; "
            "download the binary version again"
        )
    return records


def _batch(files: Sequence[np.ndarray], layout: CifarLayout) -> Batch:
    images_BxHxWx3 = np.empty((sum(map(len, files)), SIDE, SIDE, COLOURS), np.float32)
    start = 0
    for records in files:  # without a second float32 copy of all files, 600 MB
        planes_Bx3xHxW = records[:, layout.label_bytes :].reshape(
            -1, COLOURS, SIDE, SIDE
        )
        np.divide(
            planes_Bx3xHxW.transpose(0, 2, 3, 1),
            np.float32(255),
            out=images_BxHxWx3[start : start + len(records)],
        )
        start += len(records)
    classes = np.concatenate([records[:, layout.label_bytes - 1] for records in files])
    return Batch(images_BxHxWx3, classes.astype(np.int32))
