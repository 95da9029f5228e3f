"""Random text with Zipf-distributed words, for tests."""

from collections.abc import Iterator

import numpy as np

LENGTH = 100  # mean number of words of a document


def generated(words: int, documents: int, seed: int) -> Iterator[str]:
    """Yield documents of words w1, w2, ...; the frequency of word n is ∝ 1/n."""
    rng = np.random.default_rng(seed)
    below = np.cumsum(1 / np.arange(1, words + 1))
    below /= below[-1]
    names = np.array([f"w{number}" for number in range(1, words + 1)])
    for length in rng.geometric(1 / LENGTH, documents):
        yield " ".join(names[np.searchsorted(below, rng.random(length), "right")])
