"""BATCH: sparse rows from an svmlight file, one `label index:value ...` a line.

A path in, a Batch of a CSR matrix (float32) and the labels (float32) out. Indices
count from 1, as in LIBSVM's files; .gz and .bz2 are opened on the way.
"""

import bz2
import gzip
import io
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dml.types import BadInput, Batch

SIGNS = {-1.0, 1.0}
BITS = {0.0, 1.0}
HELD_OUT = 5  # one of so many
OPENERS: dict[str, Any] = {".gz": gzip.open, ".bz2": bz2.open}


def svmlight(path: str | Path, features: int | None = None) -> Batch:
    """Read a file; features fixes the width, else the largest index does."""
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
    """Write a batch as svmlight does."""
    from sklearn.datasets import dump_svmlight_file

    dump_svmlight_file(batch.inputs, batch.targets, str(path), zero_based=False)


def signs(batch: Batch, path: str | Path) -> Batch:
    """Return what was read from path with labels -1, +1, that were so or 0 and 1."""
    given = np.unique(batch.targets)
    classes = SIGNS if (given == -1).any() else BITS
    wrong = ~np.isin(batch.targets, sorted(classes))
    if wrong.any():
        example = int(wrong.argmax())
        raise BadInput(
            f"{path}: line {_line_of(path, example)}: expected a label of -1 and 1, or "
            f"of 0 and 1, got {batch.targets[example]:g} (labels here: "
            f"{_listed(given)}); pass a file of two classes, written so"
        )
    return batch._replace(targets=np.where(batch.targets > 0, 1, -1).astype(np.float32))


def laid_out(batch: Batch, seed: int) -> Batch:
    """Return the examples in a drawn order, as they then lie in memory."""
    order = np.random.default_rng(seed).permutation(len(batch.targets))
    inputs = batch.inputs[order]
    inputs.sort_indices()
    return Batch(inputs, batch.targets[order])


def halves(path: str | Path, seed: int) -> tuple[Batch, Batch]:
    """Read a file of labels -1, +1 or 0, 1; hold a fifth of it out."""
    both = split(signs(svmlight(path), path), seed)
    kinds = np.unique(both[0].targets)
    if len(kinds) < 2:  # said at once, not where the optimum is sought at the end
        raise BadInput(
            f"{path}: expected examples of both labels to train, got only "
            f"{kinds.tolist()}; pass a file with more examples of both"
        )
    return both


def split(whole: Batch, seed: int) -> tuple[Batch, Batch]:
    """Return (training, held out) examples, in a drawn order."""
    order = np.random.default_rng(seed).permutation(len(whole.targets))
    cut = max(1, len(order) // HELD_OUT)
    held_out, training = (
        Batch(whole.inputs[part], whole.targets[part])
        for part in (order[:cut], order[cut:])
    )
    return training, held_out


def by_heat(*batches: Batch) -> tuple[np.ndarray, tuple[Batch, ...]]:
    """Number features by how many examples of the first batch have them, most first.

    Also return the old number of each. Features that are often used together then lie
    together in memory, where several cores take fewer cache lines from one another.
    """
    heat = np.bincount(batches[0].inputs.indices, minlength=batches[0].inputs.shape[1])
    order = np.argsort(-heat, kind="stable")
    number = np.empty(len(order), np.int32)
    number[order] = np.arange(len(order), dtype=np.int32)
    found = []
    for batch in batches:
        inputs = batch.inputs.copy()
        inputs.indices = number[inputs.indices]
        inputs.has_sorted_indices = False
        inputs.sort_indices()
        found.append(batch._replace(inputs=inputs))
    return order, tuple(found)


def generate(examples: int, features: int, nonzeros: int, seed: int) -> Batch:
    """Make rows of `nonzeros` values and labels -1, +1 that a hyperplane separates."""
    from scipy.sparse import csr_matrix

    rng = np.random.default_rng(seed)
    index = [
        np.sort(rng.choice(features, nonzeros, replace=False)) for _ in range(examples)
    ]
    values = rng.uniform(0.1, 1, examples * nonzeros).astype(np.float32)
    starts = np.arange(examples + 1) * nonzeros
    inputs = csr_matrix(
        (values, np.concatenate(index), starts), shape=(examples, features)
    )
    scores = inputs @ rng.standard_normal(features).astype(np.float32)
    return Batch(inputs, np.where(scores < 0, -1, 1).astype(np.float32))


def _open(path: str | Path) -> Any:
    return OPENERS.get(Path(path).suffix, open)(path, "rb")


def _parse(file: Any, features: int | None) -> Batch:
    from sklearn.datasets import load_svmlight_file

    # zero_based is fixed: "auto" reads a file whose index 1 is unused one column off
    inputs, targets = load_svmlight_file(
        file, n_features=features, dtype=np.float32, zero_based=False
    )
    if not np.isfinite(inputs.data).all():
        raise ValueError("not a finite number")
    return Batch(inputs, targets.astype(np.float32))


def _first_bad_line(path: str | Path, features: int | None, whole: Exception) -> str:
    with _open(path) as file:
        for number, line in enumerate(file, 1):
            try:
                _parse(io.BytesIO(line), features)
            except (ValueError, OverflowError) as error:
                text = line.decode(errors="replace").strip()[:60]
                return (
                    f"line {number}: expected `label index:value ...` with rising "
                    f"indices from 1, got {text!r} ({error}); correct the line"
                )
    return str(whole)


def _line_of(path: str | Path, example: int) -> int:
    """Return the number of an example's line; comments and empty lines have none."""
    with _open(path) as file:
        lines = (n for n, line in enumerate(file, 1) if line.split(b"#")[0].strip())
        return next(islice(lines, example, None))


def _listed(labels: np.ndarray) -> str:
    """Say which labels there are, at most five."""
    return ", ".join(f"{label:g}" for label in labels[:5]) + ", ..." * (len(labels) > 5)
