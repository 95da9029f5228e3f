"""Word vectors in the file formats of other programs.

vectors.txt is the text format of GloVe (for each word a line with the word and D
numbers), vectors.bin the binary format of word2vec, vectors.npy the table without the
words. States are raw float64, as in the C GloVe. Files are replaced atomically.
"""

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dml.files import replacing
from dml.types import BadInput

ROWS = 4096  # rows converted at a time, to limit memory
State = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def save(folder: str | Path, words: Sequence[str], vectors: np.ndarray) -> None:
    """Write vectors.txt, vectors.bin and vectors.npy in a folder; all are lossless."""
    vectors_VxD = np.ascontiguousarray(vectors, "<f4")
    if vectors_VxD.ndim != 2 or len(vectors_VxD) != len(words):
        raise BadInput(
            f"expected a row for each of {len(words)} words, got vectors of shape "
            f"{vectors_VxD.shape}; pass one row per word"
        )
    names = [word.encode() for word in words]
    for row, name in enumerate(names, 1):
        if name.split() != [name]:
            raise BadInput(
                f"expected words without white space, got {words[row - 1]!r} as word "
                f"{row}; remove the word, because white space separates words in "
                "these formats"
            )
    V, D = vectors_VxD.shape
    line = b"%s" + b" %.9g" * D + b"\n"  # nine digits are lossless for float32
    with replacing(Path(folder, "vectors.txt")) as file:
        for start in range(0, V, ROWS):
            rows = vectors_VxD[start : start + ROWS].tolist()
            pairs = zip(names[start : start + ROWS], rows, strict=True)
            file.write(b"".join([line % (name, *row) for name, row in pairs]))
    with replacing(Path(folder, "vectors.bin")) as file:
        file.write(b"%d %d\n" % (V, D))
        for name, vector in zip(names, vectors_VxD, strict=True):
            file.write(b"%s %s\n" % (name, vector.data))
    with replacing(Path(folder, "vectors.npy")) as file:
        np.save(file, vectors_VxD)


def save_state(
    path: str | Path,
    vectors: np.ndarray,
    biases: np.ndarray,
    contexts: np.ndarray,
    context_biases: np.ndarray,
) -> None:
    """Write parameters or accumulators for the -load-init-* flags of the C GloVe.

    The format is little-endian float64 without a header: vector and bias of each word,
    then of each context.

    Args:
      path: File to write.
      vectors: Vectors of words, VxD.
      biases: Biases of words.
      contexts: Vectors of contexts, VxD.
      context_biases: Biases of contexts.
    """
    with replacing(Path(path)) as file:
        for rows_VxD, bias_V in (vectors, biases), (contexts, context_biases):
            for start in range(0, len(rows_VxD), ROWS):
                block = slice(start, start + ROWS)
                rows = np.column_stack((rows_VxD[block], bias_V[block]))
                file.write(rows.astype("<f8").data)


def load_state(path: str | Path, vocabulary_size: int, dim: int) -> State:
    """Return vectors, biases, contexts and context biases of a file, in float32.

    Files of the C GloVe contain float64 values that are rounded; files of `save_state`
    contain float32 values.
    """
    shape = 2, vocabulary_size, dim + 1
    expected = 8 * int(np.prod(shape))
    try:
        size = os.path.getsize(path)
        if size != expected:
            raise BadInput(
                f"{path}: expected {expected} bytes of {vocabulary_size=} and {dim=}, "
                f"got {size}; pass the vocabulary and dim of the run that saved it"
            )
        table = np.memmap(path, "<f8", "r", shape=shape)
    except OSError as error:
        raise BadInput(
            f"expected a readable state file at {path}, got {error}; pass another file"
        ) from error
    both = table.astype(np.float32)
    vectors, contexts = (np.ascontiguousarray(rows[:, :dim]) for rows in both)
    biases, context_biases = (rows[:, dim].copy() for rows in both)
    return vectors, biases, contexts, context_biases
