"""Synthetic translation task: sentences and their translations, BxL int32.

A translation maps each word by a dictionary and reverses the order, so its first word
depends on the last word of the sentence.
"""

import numpy as np

from dml.types import BadInput, Batch


def dictionary(words: int) -> np.ndarray:
    """Return the translation of each word: a fixed permutation."""
    return np.random.default_rng(words).permutation(words).astype(np.int32)


def reversal(
    count: int, held_out: int, words: int, length: int, seed: int
) -> tuple[Batch, Batch]:
    """Return (training, held-out) batches of distinct sentences.

    Args:
      count: Number of training sentences.
      held_out: Number of held-out sentences.
      words: Number of words of the language.
      length: Words per sentence.
      seed: Random seed.
    """
    total = count + held_out
    if min(count, held_out, length) < 1 or words < 2 or words**length < 2 * total:
        raise BadInput(
            f"expected words ** length of at least {2 * total}, got {words=} and "
            f"{length=} for {count=} and {held_out=}; pass more words, a larger "
            "length, or fewer sentences"
        )
    rng, distinct = np.random.default_rng([seed, words, length]), np.empty((0, length))
    while len(distinct) < total:  # at most half of all sentences: few iterations
        more = rng.integers(words, size=(total, length), dtype=np.int32)
        distinct = np.unique(np.concatenate([distinct, more]), axis=0)
    sources = rng.permutation(distinct)[:total].astype(np.int32)
    targets = dictionary(words)[sources[:, ::-1]]
    return (
        Batch(sources[held_out:], targets[held_out:]),
        Batch(sources[:held_out], targets[:held_out]),
    )
