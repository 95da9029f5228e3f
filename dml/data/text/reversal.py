"""BATCH: sentences of an invented language, and their translations into another one.

A translation has the words of the dictionary in reversed order, so its first word hangs
on the last one that was read. Numbers in, (training, held out) Batches out: BxL int32.
"""

import numpy as np

from dml.types import BadInput, Batch


def dictionary(words: int) -> np.ndarray:
    """Return the word that translates each: always the same permutation."""
    return np.random.default_rng(words).permutation(words).astype(np.int32)


def reversal(
    count: int, held_out: int, words: int, length: int, seed: int
) -> tuple[Batch, Batch]:
    """Return so many sentences for training and testing, no two of them equal."""
    wanted = count + held_out
    if min(count, held_out, length) < 1 or words < 2 or words**length < 2 * wanted:
        raise BadInput(
            f"expected words and a length that make {2 * wanted} sentences at least, "
            f"got {words=} and {length=}, for {count=} and {held_out=}; pass larger "
            "ones, or fewer sentences"
        )
    rng, found = np.random.default_rng([seed, words, length]), np.empty((0, length))
    while len(found) < wanted:  # no more than half of all sentences: soon over
        more = rng.integers(words, size=(wanted, length), dtype=np.int32)
        found = np.unique(np.concatenate([found, more]), axis=0)
    sources = rng.permutation(found)[:wanted].astype(np.int32)
    targets = dictionary(words)[sources[:, ::-1]]
    return (
        Batch(sources[held_out:], targets[held_out:]),
        Batch(sources[:held_out], targets[:held_out]),
    )
