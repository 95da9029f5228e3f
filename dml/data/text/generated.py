"""Random text with Zipf-distributed words, for tests."""

from collections.abc import Iterator

import numpy as np

MEAN_LENGTH = 100  # words per document


def generate(words: int, documents: int, seed: int) -> Iterator[str]:
    """Yield documents of words w1, w2, ...; the probability of word n is ∝ 1/n.

    Args:
      words: Number of distinct words.
      documents: Number of documents.
      seed: Random seed.
    """
    rng = np.random.default_rng(seed)
    cumulative = np.cumsum(1 / np.arange(1, words + 1))
    cumulative /= cumulative[-1]
    names = np.array([f"w{number}" for number in range(1, words + 1)])
    for length in rng.geometric(1 / MEAN_LENGTH, documents):
        indices = np.searchsorted(cumulative, rng.random(length), "right")
        yield " ".join(names[indices])
