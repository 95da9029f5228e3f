"""BATCH: text by a seed, for tests: words as frequent as in a language, documents."""

from collections.abc import Iterator

import numpy as np

LENGTH = 100  # words of a document, on average


def generated(words: int, documents: int, seed: int) -> Iterator[str]:
    """Yield documents of the words w1, w2, ...; the n-th is 1/n as frequent (Zipf)."""
    rng = np.random.default_rng(seed)
    below = np.cumsum(1 / np.arange(1, words + 1))
    below /= below[-1]
    names = np.array([f"w{number}" for number in range(1, words + 1)])
    for length in rng.geometric(1 / LENGTH, documents):
        yield " ".join(names[np.searchsorted(below, rng.random(length), "right")])
