"""BATCH: CIFAR-10 and CIFAR-100 in their binary version.

A folder in, (training, held out) Batches out: images Bx32x32x3, float32 in 0 … 1, and
int32 classes; of CIFAR-100 the fine ones.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dml.types import BadInput, Batch

SIDE, COLOURS = 32, 3
PIXELS = SIDE * SIDE * COLOURS


class Form(NamedTuple):
    """The files of a set; a record is its labels, then red, green and blue by rows."""

    training: Sequence[str]
    held_out: Sequence[str]
    labels: int  # bytes; the last one is the class
    classes: int


FORMS = (
    Form([f"data_batch_{k}.bin" for k in range(1, 6)], ["test_batch.bin"], 1, 10),
    Form(["train.bin"], ["test.bin"], 2, 100),
)


def form(path: Path) -> Form | None:
    """Return the form that a folder has files of, all or some."""
    for one in FORMS:
        if any((path / name).exists() for name in (*one.training, *one.held_out)):
            return one
    return None


def cifar(path: Path, form: Form) -> tuple[Batch, Batch]:
    """Read a folder's files of a form."""
    training, held_out = (
        _batch([_records(path / name, form) for name in names], form)
        for names in (form.training, form.held_out)
    )
    return training, held_out


def _records(path: Path, form: Form) -> np.ndarray:
    """Read a file's records, a row each."""
    try:
        data = np.fromfile(path, np.uint8)
    except OSError as error:
        names = ", ".join((*form.training, *form.held_out))
        raise BadInput(
            f"{path}: expected one of CIFAR's files, got {error.strerror}; pass a "
            f"folder with {names}"
        ) from None
    width = form.labels + PIXELS
    if not len(data) or len(data) % width:
        raise BadInput(
            f"{path}: expected records of {width} bytes, got {len(data)} bytes; fetch "
            "the file again, in the binary version"
        )
    records = data.reshape(-1, width)
    largest = records[:, form.labels - 1].max()
    if largest >= form.classes:
        raise BadInput(
            f"{path}: expected classes below {form.classes}, got {largest}; fetch the "
            "file again, in the binary version"
        )
    return records


def _batch(files: Sequence[np.ndarray], form: Form) -> Batch:
    images_BxHxWx3 = np.empty((sum(map(len, files)), SIDE, SIDE, COLOURS), np.float32)
    start = 0
    for records in files:  # one after another: all together are 600 MB as float32
        planes_Bx3xHxW = records[:, form.labels :].reshape(-1, COLOURS, SIDE, SIDE)
        np.divide(
            planes_Bx3xHxW.transpose(0, 2, 3, 1),
            np.float32(255),
            out=images_BxHxWx3[start : start + len(records)],
        )
        start += len(records)
    classes = np.concatenate([records[:, form.labels - 1] for records in files])
    return Batch(images_BxHxWx3, classes.astype(np.int32))
