"""Sparse rows in svmlight files, with lines `label index:value ...`.

A Batch has a CSR matrix (float32) and labels (float32). Indices in files start at 1, as
in LIBSVM; .gz and .bz2 files are decompressed.
"""

import bz2
import gzip
import io
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dml.types import BadInput, Batch

SIGN_LABELS = {-1.0, 1.0}
BIT_LABELS = {0.0, 1.0}
HELD_OUT_DIVISOR = 5  # 1 of 5 examples is held out
OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}


def svmlight(path: str | Path, features: int | None = None) -> Batch:
    """Read a file with a number of features, by default the largest index."""
    try:
        with _open(path) as file:
            batch = _parse(file, features)
    except (OSError, EOFError) as error:
        raise BadInput(
            f"expected an svmlight file at {path}, got {error}; pass a readable path"
        ) from error
    except (ValueError, OverflowError) as error:
        raise BadInput(f"{path}: {_first_bad_line(path, features, error)}") from error
    if not batch.targets.size:
        raise BadInput(
            f"{path}: expected lines of `label index:value ...`, got none; "
            "pass a file with examples"
        )
    return batch


def write(path: str | Path, batch: Batch) -> None:
    """Write a batch in svmlight format."""
    from sklearn.datasets import dump_svmlight_file

    dump_svmlight_file(batch.inputs, batch.targets, str(path), zero_based=False)


def binary_labels(batch: Batch, path: str | Path) -> Batch:
    """Return the batch with labels -1 and +1; labels 0 and 1 are converted.

    `path` is the file of the batch, for error messages.
    """
    present = np.unique(batch.targets)
    allowed = SIGN_LABELS if (present == -1).any() else BIT_LABELS
    wrong = ~np.isin(batch.targets, sorted(allowed))
    if wrong.any():
        example = int(wrong.argmax())
        raise BadInput(
            f"{path}: line {_line_of(path, example)}: expected a label of -1 and 1, or "
            f"of 0 and 1, got {batch.targets[example]:g} (labels of the file: "
            f"{_label_text(present)}); pass a file of two classes with such labels"
        )
    return batch._replace(targets=np.where(batch.targets > 0, 1, -1).astype(np.float32))


def shuffle(batch: Batch, seed: int) -> Batch:
    """Return a copy of the examples in a random order."""
    order = np.random.default_rng(seed).permutation(len(batch.targets))
    inputs = batch.inputs[order]
    inputs.sort_indices()
    return Batch(inputs, batch.targets[order])


def read_split(path: str | Path, seed: int) -> tuple[Batch, Batch]:
    """Read (training, held-out) examples of a two-class file, with labels -1 and +1."""
    training, held_out = split(binary_labels(svmlight(path), path), seed)
    labels = np.unique(training.targets)
    if len(labels) < 2:  # checked here, as the search for the optimum would fail later
        raise BadInput(
            f"{path}: expected training examples of both labels, got only "
            f"{labels.tolist()}; pass a file with more examples of both labels"
        )
    return training, held_out


def split(batch: Batch, seed: int) -> tuple[Batch, Batch]:
    """Return (training, held-out) examples in a random order; a fifth is held out."""
    order = np.random.default_rng(seed).permutation(len(batch.targets))
    cut = max(1, len(order) // HELD_OUT_DIVISOR)
    held_out, training = (
        Batch(batch.inputs[indices], batch.targets[indices])
        for indices in (order[:cut], order[cut:])
    )
    return training, held_out


def renumber_by_frequency(*batches: Batch) -> tuple[np.ndarray, tuple[Batch, ...]]:
    """Renumber features by descending frequency in the first batch.

    Frequent features are then adjacent in memory, so that a core invalidates fewer
    cache lines of other cores.

    Returns:
      The old number of each feature, and the batches with the new numbers.
    """
    frequency = np.bincount(
        batches[0].inputs.indices, minlength=batches[0].inputs.shape[1]
    )
    order = np.argsort(-frequency, kind="stable")
    new_number = np.empty(len(order), np.int32)
    new_number[order] = np.arange(len(order), dtype=np.int32)
    renumbered = []
    for batch in batches:
        inputs = batch.inputs.copy()
        inputs.indices = new_number[inputs.indices]
        inputs.has_sorted_indices = False
        inputs.sort_indices()
        renumbered.append(batch._replace(inputs=inputs))
    return order, tuple(renumbered)


def generate(examples: int, features: int, nonzeros: int, seed: int) -> Batch:
    """Generate random rows with labels -1, +1 that are separated by a hyperplane.

    Args:
      examples: Number of rows.
      features: Number of columns.
      nonzeros: Nonzero values per row.
      seed: Random seed.
    """
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(seed)
    columns = [
        np.sort(rng.choice(features, nonzeros, replace=False)) for _ in range(examples)
    ]
    values = rng.uniform(0.1, 1, examples * nonzeros).astype(np.float32)
    starts = np.arange(examples + 1) * nonzeros
    inputs = csr_matrix(
        (values, np.concatenate(columns), starts), shape=(examples, features)
    )
    scores = inputs @ rng.standard_normal(features).astype(np.float32)
    return Batch(inputs, np.where(scores < 0, -1, 1).astype(np.float32))


def _open(path: str | Path) -> Any:
    return OPENERS.get(Path(path).suffix, open)(path, "rb")


def _parse(file: Any, features: int | None) -> Batch:
    from sklearn.datasets import load_svmlight_file

    # zero_based="auto" would take a file with index 0 as zero-based
    inputs, targets = load_svmlight_file(
        file, n_features=features, dtype=np.float32, zero_based=False
    )
    if not np.isfinite(inputs.data).all():
        raise ValueError("not a finite number")
    return Batch(inputs, targets.astype(np.float32))


def _first_bad_line(
    path: str | Path, features: int | None, file_error: Exception
) -> str:
    """Return a description of the first malformed line, else of the file's error."""
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            try:
                _parse(io.BytesIO(line), features)
            except (ValueError, OverflowError) as error:
                text = line.decode(errors="replace").strip()[:60]
                return (
                    f"line {number}: expected `label index:value ...` with ascending "
                    f"indices from 1, got {text!r} ({error}); correct the line"
                )
    return str(file_error)


def _line_of(path: str | Path, example: int) -> int:
    """Return the line number of an example, skipping comments and empty lines."""
    with _open(path) as file:
        lines = (n for n, line in enumerate(file, 1) if line.split(b"#")[0].strip())
        return next(islice(lines, example, None))


def _label_text(labels: np.ndarray) -> str:
    """Return the first five labels as text."""
    return ", ".join(f"{label:g}" for label in labels[:5]) + ", ..." * (len(labels) > 5)
