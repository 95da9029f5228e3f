"""Synthetic translation task: sentences and their translations, int32.

Arrays have a row per sentence and a column per word.

A translation maps each word by a dictionary and reverses the order, so its first word
depends on the last word of the sentence.
"""

import numpy as np

from dml.types import BadInput, Batch


def dictionary(words: int) -> np.ndarray:
    """Return the translation of each word, a permutation that depends on `words`."""
    return np.random.default_rng(words).permutation(words).astype(np.int32)


def reversal(
    count: int, held_out: int, words: int, length: int, seed: int
) -> tuple[Batch, Batch]:
    """Return (training, held-out) batches of distinct sentences.

    Args:
      count: Number of training sentences.
      held_out: Number of held-out sentences.
      words: Number of distinct words.
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
    rng = np.random.default_rng([seed, words, length])
    distinct = np.empty((0, length))
    # total is at most half of all possible sentences, so few iterations suffice
    while len(distinct) < total:
        more = rng.integers(words, size=(total, length), dtype=np.int32)
        distinct = np.unique(np.concatenate([distinct, more]), axis=0)
    sources = rng.permutation(distinct)[:total].astype(np.int32)
    targets = dictionary(words)[sources[:, ::-1]]
    return (
        Batch(sources[held_out:], targets[held_out:]),
        Batch(sources[:held_out], targets[:held_out]),
    )
