"""BATCH: words by falling count; counts of words in, a vocabulary and its file out.

The file is the C program's vocab.txt: a line `word count` a word. A word's number is
its place here, from 0.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dml.types import BadInput


class Vocabulary(NamedTuple):
    words: list[str]
    counts: np.ndarray  # int64, falling


def vocabulary(
    counts: Mapping[str, int], min_count: int = 1, max_vocab: int = 0, seen: int = 0
) -> Vocabulary:
    """Keep the words that occur min_count times, at most max_vocab of them (0: all).

    Words of one count stand in the order of their UTF-8 bytes. `seen` is how many words
    there were, if rare ones have been dropped from counts already.
    """
    # UTF-8 keeps the order of code points, by which Python compares.
    kept = [(-count, word) for word, count in counts.items() if count >= min_count]
    kept.sort()
    del kept[max_vocab or len(kept) :]
    if len(kept) < 2:
        raise BadInput(
            f"expected 2 words or more that occur at least {min_count} times, got "
            f"{len(kept)} of {seen or len(counts)} different ones ({max_vocab=}); "
            "lower --min_count or pass a longer corpus"
        )
    words = [word for _, word in kept]
    return Vocabulary(words, np.array([-count for count, _ in kept], np.int64))


def write(path: str | Path, vocabulary: Vocabulary) -> None:
    """Write a line `word count` a word."""
    pairs = zip(vocabulary.words, vocabulary.counts.tolist(), strict=True)
    with open(path, "w", encoding="utf8", newline="\n") as file:
        file.writelines(f"{word} {count}\n" for word, count in pairs)


def read(path: str | Path) -> Vocabulary:
    """Read what `write` or the C program wrote, in the order that stands there."""
    found: dict[str, int] = {}
    try:
        with open(path, encoding="utf8", newline="\n") as file:
            for number, line in enumerate(file, 1):
                word, _, count = line.rstrip("\n").partition(" ")
                if not word or not count.isdecimal() or word in found:
                    raise BadInput(
                        f"{path}: line {number}: expected a new `word count`, got "
                        f"{line[:60].rstrip()!r}; correct it or count anew"
                    )
                found[word] = int(count)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{path}: expected lines of `word count`, got {error}; pass a vocab.txt"
        ) from None
    if len(found) < 2:
        raise BadInput(
            f"{path}: expected 2 words or more, got {len(found)}; pass a vocab.txt"
        )
    return Vocabulary([*found], np.array([*found.values()], np.int64))
