"""Counts of a corpus from flags: counted now, cached, or read from --counts."""

import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from lab import flags

from dml.data.archives import cache
from dml.data.text import cooccurrence
from dml.data.text.corpora import text
from dml.data.text.pieces import pieces, tokens
from dml.data.text.vocabulary import Vocabulary, read
from dml.runs import folder as runs
from dml.strategies.counting.cooccurrence import Rules, count
from dml.types import BadInput, CountedComm
from dml.wire.collectives import broadcast
from dml.wire.comm import first_of_all

PIECE = 1 << 18  # bytes of text that a rank takes at once
VERSION = 1  # of what is counted: another one counts anew


def define(values: flags.FlagValues) -> None:
    """Add the flags of counting, for every experiment that begins with a corpus."""
    values.text(
        "corpus", "enwiki", "Named texts, files or folders, with commas between."
    )
    values.text("pattern", r"\w+", "Regular expression of a word.")
    values.switch("lower", True, "Turn letters to lower case.")
    values.integer(
        "min_count", 5, "Least times that a word of the vocabulary occurs.", 1
    )
    values.integer("max_vocab", 0, "Most words; 0: all.", 0)
    values.integer("window", 15, "Words on a side that count, by 1/distance.", 1)
    values.switch(
        "symmetric", True, "Count contexts on both sides; else words to the left."
    )
    values.text(
        "memory", "4GB", "Memory for counting, of all ranks; disk takes the rest."
    )
    values.text(
        "counts", None, "Folder with vocab.txt and cooccurrence.bin to begin with."
    )


class Counts(NamedTuple):
    """The counts of a corpus, and their folder."""

    folder: Path
    vocabulary: Vocabulary
    records: np.ndarray


def counted(comm: CountedComm, values: flags.FlagValues) -> Counts:
    """Count the corpus, or find the counts of the same texts and flags; collective."""
    if values.counts:
        return opened(Path(values.counts))
    paths = first_of_all(comm, lambda: text(values.corpus))
    rules = Rules(
        values.window,
        values.symmetric,
        values.min_count,
        values.max_vocab,
        flags.nbytes(values.memory),
    )
    folder = cache() / "cooccurrence" / key(comm, paths, values)
    there, part = known(comm, folder)
    if not there:
        words = partial(tokens, pattern=values.pattern, lower=values.lower)
        part.mkdir(parents=True, exist_ok=True)
        try:
            found = count(comm, pieces(paths, PIECE), words, part, rules)
            if comm.rank == 0:
                runs.dump(part / "counts.json", found._asdict())
                keep(part, folder)
            comm.Barrier()
        finally:
            shutil.rmtree(part, ignore_errors=True)
    return opened(folder)


def key(comm: CountedComm, paths: Sequence[Path], values: flags.FlagValues) -> str:
    """Name what the counts depend on: every byte of the texts, and the flags."""
    digest = np.zeros(8, np.uint8)
    if comm.rank == 0:
        names = ("pattern", "lower", "min_count", "max_vocab", "window", "symmetric")
        said = json.dumps([VERSION, [getattr(values, name) for name in names]])
        found = hashlib.sha256(said.encode())
        for path in paths:
            try:
                with open(path, "rb") as file:
                    found.update(hashlib.file_digest(file, "sha256").digest())
            except OSError as error:
                raise BadInput(
                    f"expected text at {path}, got {error}; pass a readable file"
                ) from error
        digest[:] = list(found.digest()[: len(digest)])
    broadcast(comm, digest)
    return digest.tobytes().hex()


def known(comm: CountedComm, folder: Path) -> tuple[bool, Path]:
    """Return whether the counts exist, and a folder to make them in.

    Equal on all ranks. The name has the process id, as several runs may count at once.
    """
    said = np.array([(folder / "counts.json").exists(), os.getpid()], np.int64)
    broadcast(comm, said)
    return bool(said[0]), folder.with_name(f"{folder.name}.{said[1]}")


def keep(part: Path, folder: Path) -> None:
    """Rename the folder of counts, unless another run has: its counts are equal."""
    if not (folder / "counts.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
    with suppress(OSError):
        part.rename(folder)


def opened(folder: Path) -> Counts:
    """Map the files of a folder, ours or the C program's."""
    vocabulary = read(folder / "vocab.txt")
    return Counts(folder, vocabulary, cooccurrence.read(folder / "cooccurrence.bin"))
