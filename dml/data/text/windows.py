"""Windows of the tokens of a corpus, for masked and causal language models.

Windows are consecutive and disjoint, without padding; tokens after the last full window
are dropped. The last 5 % of the windows are held out.
"""

from functools import partial

import numpy as np

from dml.data.text.tokens import SPECIAL, Tokens
from dml.types import BadInput, Batch, Examples, KeyedTokens
from dml.wire.plans.splitmix import GOLDEN, mix

HELD_OUT_DIVISOR = 20  # 1 of 20 windows is held out
MIN_WINDOWS = 4  # of a corpus
PREDICTED_SHARE = 0.15  # of the tokens of a window
# Shares of the predicted tokens that are replaced by [MASK] and by a random token; the
# other predicted tokens, a tenth, are unchanged.
MASK_SHARE, RANDOM_SHARE = 0.8, 0.1
DROPOUT_SEED = 0xD1B54A32D192ED03  # keys differ from the numbers of masked tokens
CLS, SEP, MASK = map(SPECIAL.index, ("[CLS]", "[SEP]", "[MASK]"))


def causal_windows(ids: np.ndarray, length: int) -> tuple[Examples, Batch]:
    """Return (training, held-out) data for GPT.

    Inputs and targets are BxL int32 (B windows, L = length). A window has L + 1 tokens:
    the inputs are the first L, the targets the last L.
    """
    windows_NxW, held_out = _windows(ids, length + 1, min_width=2, length=length)
    training = windows_NxW[:-held_out]
    count = len(training)
    return (
        Examples(count, lambda draws: _shifted(training[draws % count])),
        _shifted(windows_NxW[-held_out:]),
    )


def masked_windows(tokens: Tokens, length: int, seed: int) -> tuple[Examples, Batch]:
    """Return (training, held-out) data for BERT: masked windows with [CLS] and [SEP].

    Inputs are BxL int32 (B windows, L = length). Targets are the M predicted positions
    in ascending order and their original tokens, both BxM int32. M is 15 % of the L - 2
    tokens of a window, rounded, at least 1; special tokens are predicted only if there
    are too few others. Masks depend on the seed and the draw number; the masks of
    held-out windows do not depend on the seed.
    """
    windows_NxW, held_out = _windows(tokens.ids, length - 2, min_width=1, length=length)
    training = windows_NxW[:-held_out]
    mask = partial(_mask, tokens.tokenizer.get_vocab_size())
    count = len(training)
    return (
        Examples(count, lambda draws: mask(seed, training[draws % count], draws)),
        mask(0, windows_NxW[-held_out:], np.arange(held_out)),
    )


def with_keys(examples: Examples, seed: int) -> Examples:
    """Return the examples with a random key per token, for dropout.

    Keys depend only on the seed, the draw number and the position.
    """

    def take(draws: np.ndarray) -> Batch:
        batch = examples.take(draws)
        tokens_BxL = batch.inputs
        random_BxL = _random_uint64(seed ^ DROPOUT_SEED, draws, tokens_BxL.shape[1])
        keys_BxL = (random_BxL >> np.uint64(32)).astype(np.uint32)
        return batch._replace(inputs=KeyedTokens(tokens_BxL, keys_BxL))

    return Examples(examples.count, take)


def _windows(
    ids: np.ndarray, width: int, min_width: int, length: int
) -> tuple[np.ndarray, int]:
    """Return the windows, and the number of held-out windows, which are the last.

    Args:
      ids: Token ids of the corpus.
      width: Tokens per window.
      min_width: Least width.
      length: Length of the inputs, for error messages.
    """
    count = len(ids) // max(width, 1)
    if width < min_width or count < MIN_WINDOWS:
        extra = length - width
        raise BadInput(
            f"expected a length that divides {len(ids)} tokens into {MIN_WINDOWS} "
            f"windows or more, got {length=}; pass a longer corpus or a length of "
            f"{extra + min_width} to {extra + len(ids) // MIN_WINDOWS}"
        )
    windows_NxW = ids[: count * width].reshape(count, width)
    return windows_NxW, max(1, count // HELD_OUT_DIVISOR)


def _shifted(windows_BxW: np.ndarray) -> Batch:
    tokens_BxW = windows_BxW.astype(np.int32)
    return Batch(tokens_BxW[:, :-1], tokens_BxW[:, 1:])


def _mask(
    vocabulary: int, seed: int, windows_BxW: np.ndarray, draws: np.ndarray
) -> Batch:
    """Return windows with [CLS], [SEP] and masked tokens, and the original tokens.

    Args:
      vocabulary: Number of tokens of the vocabulary.
      seed: Random seed.
      windows_BxW: Tokens of the windows.
      draws: Draw number of each window.
    """
    batch, width = windows_BxW.shape
    masks = max(1, round(PREDICTED_SHARE * width))
    random_BxN = _random_uint64(seed, draws, width + 2 * masks)
    order_BxW, choice_BxM, token_BxM = np.split(
        random_BxN, [width, width + masks], axis=1
    )
    # the tokens of lowest order are predicted; special tokens come last
    order_BxW = np.where(windows_BxW < len(SPECIAL), ~np.uint64(0), order_BxW)
    chosen_BxM = np.sort(np.argpartition(order_BxW, masks - 1, axis=1)[:, :masks])
    original_BxM = np.take_along_axis(windows_BxW, chosen_BxM, 1).astype(np.int32)

    ordinary = np.uint64(vocabulary - len(SPECIAL))
    replacement_BxM = (token_BxM % ordinary).astype(np.int32) + np.int32(len(SPECIAL))
    uniform_BxM = choice_BxM * 2.0**-64  # uniform in 0 … 1
    input_BxM = np.where(uniform_BxM < MASK_SHARE, np.int32(MASK), original_BxM)
    is_random_BxM = (uniform_BxM >= MASK_SHARE) & (
        uniform_BxM < MASK_SHARE + RANDOM_SHARE
    )
    input_BxM = np.where(is_random_BxM, replacement_BxM, input_BxM)

    tokens_BxL = np.empty((batch, width + 2), np.int32)
    tokens_BxL[:, 0], tokens_BxL[:, -1] = CLS, SEP
    tokens_BxL[:, 1:-1] = windows_BxW
    positions_BxM = (chosen_BxM + 1).astype(np.int32)  # [CLS] is at position 0
    np.put_along_axis(tokens_BxL, positions_BxM, input_BxM, 1)
    return Batch(tokens_BxL, (positions_BxM, original_BxM))


def _random_uint64(seed: int, draws: np.ndarray, numbers: int) -> np.ndarray:
    """Return BxN random uint64, N = numbers, by SplitMix64.

    Row b depends only on the seed and draws[b].
    """
    start = mix(np.array([seed % 2**64], np.uint64))
    states_B = mix(start + draws.astype(np.uint64) * GOLDEN)
    steps_N = np.arange(1, numbers + 1, dtype=np.uint64) * GOLDEN
    return mix(states_B[:, None] + steps_N)
