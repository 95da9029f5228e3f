"""Vocabularies: words in descending order of count.

The file format is that of vocab.txt of GloVe's reference program in C: a line
`word count` per word. The number of a word is its position, from 0.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dml.types import BadInput


class Vocabulary(NamedTuple):
    """Words of a corpus, and the number of occurrences of each word."""

    words: list[str]
    counts: np.ndarray  # int64, descending


def vocabulary(
    counts: Mapping[str, int], min_count: int = 1, max_vocab: int = 0, distinct: int = 0
) -> Vocabulary:
    """Return the most frequent words; ties are in the order of UTF-8 bytes.

    Args:
      counts: Count of each word.
      min_count: Least count of a word.
      max_vocab: Largest number of words; 0 for no limit.
      distinct: Number of distinct words for the error message, if `counts` already
        lacks rare words; 0 for the length of `counts`.
    """
    # Python compares strings by code point, which gives the order of UTF-8 bytes.
    entries = [(-count, word) for word, count in counts.items() if count >= min_count]
    entries.sort()
    del entries[max_vocab or len(entries) :]
    if len(entries) < 2:
        raise BadInput(
            f"expected 2 words or more that occur at least {min_count} times, got "
            f"{len(entries)} of {distinct or len(counts)} distinct words "
            f"({max_vocab=}); lower --min_count or pass a longer corpus"
        )
    words = [word for _, word in entries]
    return Vocabulary(words, np.array([-count for count, _ in entries], np.int64))


def write(path: str | Path, vocabulary: Vocabulary) -> None:
    """Write a line `word count` per word."""
    pairs = zip(vocabulary.words, vocabulary.counts.tolist(), strict=True)
    with open(path, "w", encoding="utf8", newline="\n") as file:
        file.writelines(f"{word} {count}\n" for word, count in pairs)


def read(path: str | Path) -> Vocabulary:
    """Read a vocab.txt; words keep the order of the file."""
    counts: dict[str, int] = {}
    try:
        with open(path, encoding="utf8", newline="\n") as file:
            for number, line in enumerate(file, 1):
                word, _, count = line.rstrip("\n").partition(" ")
                if not word or not count.isdecimal() or word in counts:
                    raise BadInput(
                        f"{path}: line {number}: expected `word count` with a "
                        f"new word, got {line[:60].rstrip()!r}; correct the line or "
                        "count again"
                    )
                counts[word] = int(count)
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(
            f"{path}: expected lines of `word count`, got {error}; pass a vocab.txt"
        ) from None
    if len(counts) < 2:
        raise BadInput(
            f"{path}: expected 2 words or more, got {len(counts)}; pass a vocab.txt"
        )
    return Vocabulary([*counts], np.array([*counts.values()], np.int64))
