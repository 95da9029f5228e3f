"""Co-occurrence counts by the flags: counted now, cached, or read from --counts."""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from lab import flags
from lab.shared_flags import MAX_COUNT
import numpy as np

from dml.data.archives import cache_folder
from dml.data.text import cooccurrence
from dml.data.text.corpora import corpus_files
from dml.data.text.pieces import pieces, split_words
from dml.data.text.vocabulary import Vocabulary, read
from dml.runs import folder as run_folders
from dml.strategies.counting.cooccurrence import Rules, count
from dml.types import BadInput, CountedComm
from dml.wire.collectives import broadcast
from dml.wire.comm import first_of_all

PIECE_BYTES = 1 << 18  # bytes of text that a rank processes at once
VERSION = 1  # version of the counts; other versions in the cache are ignored


def define(values: flags.FlagValues) -> None:
    """Add the flags of counting."""
    values.text(
        "corpus", "enwiki", "Named texts, files or folders, separated by commas."
    )
    values.text("pattern", r"\w+", "Regular expression of a word.")
    values.switch("lower", True, "Conversion of letters to lower case.")
    values.integer(
        "min_count", 5, "Minimum count of a word of the vocabulary.", 1, MAX_COUNT
    )
    values.integer("max_vocab", 0, "Maximum number of words; 0: all.", 0, MAX_COUNT)
    values.integer(
        "window", 15, "Number of context words on each side, of weight 1/distance.", 1
    )
    values.switch(
        "symmetric", True, "Context on both sides of a word; else on its left only."
    )
    values.text(
        "memory",
        "4GB",
        "Memory for counting, over all ranks; further counts are on disk.",
    )
    values.text(
        "counts", None, "Folder with vocab.txt and cooccurrence.bin to start from."
    )


class Counts(NamedTuple):
    """The counts of a corpus, and their folder."""

    folder: Path
    vocabulary: Vocabulary
    records: np.ndarray


def counts(comm: CountedComm, values: flags.FlagValues) -> Counts:
    """Return cached counts of the same texts and flags, else count; collective."""
    if values.counts:
        return open_counts(Path(values.counts))
    paths = first_of_all(comm, lambda: corpus_files(values.corpus))
    rules = Rules(
        values.window,
        values.symmetric,
        values.min_count,
        values.max_vocab,
        flags.nbytes(values.memory),
    )
    folder = cache_folder() / "cooccurrence" / key(comm, paths, values)
    exists, temporary = cached_folder(comm, folder)
    if not exists:
        words = partial(split_words, pattern=values.pattern, lower=values.lower)
        temporary.mkdir(parents=True, exist_ok=True)
        try:
            counted = count(comm, pieces(paths, PIECE_BYTES), words, temporary, rules)
            if comm.rank == 0:
                run_folders.dump(temporary / "counts.json", counted._asdict())
                publish(temporary, folder)
            comm.Barrier()
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    return open_counts(folder)


def key(comm: CountedComm, paths: Sequence[Path], values: flags.FlagValues) -> str:
    """Return a hash of the texts and of the flags of counting."""
    digest = np.zeros(8, np.uint8)
    if comm.rank == 0:
        names = ("pattern", "lower", "min_count", "max_vocab", "window", "symmetric")
        text = json.dumps([VERSION, [getattr(values, name) for name in names]])
        content_hash = hashlib.sha256(text.encode())
        for path in paths:
            try:
                with open(path, "rb") as file:
                    content_hash.update(hashlib.file_digest(file, "sha256").digest())
            except OSError as error:
                raise BadInput(
                    f"expected text at {path}, got {error}; pass a readable file"
                ) from error
        digest[:] = list(content_hash.digest()[: len(digest)])
    broadcast(comm, digest)
    return digest.tobytes().hex()


def cached_folder(comm: CountedComm, folder: Path) -> tuple[bool, Path]:
    """Return whether the counts exist, and a temporary folder for counting.

    Equal on all ranks. The folder's name has the process id, since several runs may
    count at once.
    """
    state = np.array([(folder / "counts.json").exists(), os.getpid()], np.int64)
    broadcast(comm, state)
    return bool(state[0]), folder.with_name(f"{folder.name}.{state[1]}")


def publish(temporary: Path, folder: Path) -> None:
    """Rename the temporary folder, unless another run has published equal counts."""
    if not (folder / "counts.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        temporary.rename(folder)


def open_counts(folder: Path) -> Counts:
    """Map the files of a folder, written by this program or by the C program."""
    vocabulary = read(folder / "vocab.txt")
    return Counts(folder, vocabulary, cooccurrence.read(folder / "cooccurrence.bin"))
