"""Windows of the tokens of a corpus, for masked and causal language models.

Windows are consecutive and disjoint, without padding; tokens after the last full window
are dropped. The last 5 % of the windows are held out.
"""

from functools import partial

import numpy as np

from dml.data.text.tokens import SPECIAL, Tokens
from dml.types import BadInput, Batch, Examples

HELD_OUT = 20  # 1 of 20 windows
MIN_WINDOWS = 4  # windows
MASKED = 0.15  # share of a window's tokens that are predicted
# Shares of the predicted tokens that become [MASK] or a random token; the other tenth
# is unchanged.
HIDDEN, REPLACED = 0.8, 0.1
CLS, SEP, MASK = map(SPECIAL.index, ("[CLS]", "[SEP]", "[MASK]"))


def causal(ids: np.ndarray, length: int) -> tuple[Examples, Batch]:
    """Return (training, held-out) data for GPT: inputs and targets, BxL int32.

    A window has length + 1 tokens; targets are the inputs shifted by one.
    """
    windows_NxW, held_out = _windows(ids, length + 1, least=2, length=length)
    training = windows_NxW[:-held_out]
    count = len(training)
    return (
        Examples(count, lambda draws: _shifted(training[draws % count])),
        _shifted(windows_NxW[-held_out:]),
    )


def masked(tokens: Tokens, length: int, seed: int) -> tuple[Examples, Batch]:
    """Return (training, held-out) data for BERT: masked windows with [CLS] and [SEP].

    Inputs are BxL int32; targets are (positions BxM, original tokens BxM), both int32,
    by ascending position. M is 15 % of the window, rounded, at least 1; special tokens
    are masked only if there are too few others. Masks depend on the seed and the draw
    number; the masks of held-out windows do not depend on the seed.
    """
    windows_NxW, held_out = _windows(tokens.ids, length - 2, least=1, length=length)
    training = windows_NxW[:-held_out]
    mask = partial(_masked, tokens.tokenizer.get_vocab_size())
    count = len(training)
    return (
        Examples(count, lambda draws: mask(seed, training[draws % count], draws)),
        mask(0, windows_NxW[-held_out:], np.arange(held_out)),
    )


def _windows(
    ids: np.ndarray, width: int, least: int, length: int
) -> tuple[np.ndarray, int]:
    """Return the windows, and the number of held-out ones."""
    count = len(ids) // max(width, 1)
    if width < least or count < MIN_WINDOWS:
        raise BadInput(
            f"expected a length that cuts {len(ids)} tokens into {MIN_WINDOWS} "
            f"windows or more, got {length=}; pass a longer corpus or a length of "
            f"{length - width + least} to {length - width + len(ids) // MIN_WINDOWS}"
        )
    return ids[: count * width].reshape(count, width), max(1, count // HELD_OUT)


def _shifted(windows_BxW: np.ndarray) -> Batch:
    tokens_BxW = windows_BxW.astype(np.int32)
    return Batch(tokens_BxW[:, :-1], tokens_BxW[:, 1:])


def _masked(
    vocabulary: int, seed: int, windows_BxW: np.ndarray, draws: np.ndarray
) -> Batch:
    """Return windows with [CLS], [SEP] and masked tokens, and the original tokens."""
    batch, width = windows_BxW.shape
    masks = max(1, round(MASKED * width))
    random_BxN = _random_uint64(seed, draws, width + 2 * masks)
    order_BxW, kind_BxM, token_BxM = np.split(
        random_BxN, [width, width + masks], axis=1
    )
    # special tokens come last in the order by which tokens are chosen
    order_BxW = np.where(windows_BxW < len(SPECIAL), ~np.uint64(0), order_BxW)
    chosen_BxM = np.sort(np.argpartition(order_BxW, masks - 1, axis=1)[:, :masks])
    original_BxM = np.take_along_axis(windows_BxW, chosen_BxM, 1).astype(np.int32)

    ordinary = np.uint64(vocabulary - len(SPECIAL))
    any_BxM = (token_BxM % ordinary).astype(np.int32) + np.int32(len(SPECIAL))
    share_BxM = kind_BxM * 2.0**-64
    shown_BxM = np.where(share_BxM < HIDDEN, np.int32(MASK), original_BxM)
    replaced_BxM = (share_BxM >= HIDDEN) & (share_BxM < HIDDEN + REPLACED)
    shown_BxM = np.where(replaced_BxM, any_BxM, shown_BxM)

    tokens_BxL = np.empty((batch, width + 2), np.int32)
    tokens_BxL[:, 0], tokens_BxL[:, -1] = CLS, SEP
    tokens_BxL[:, 1:-1] = windows_BxW
    positions_BxM = (chosen_BxM + 1).astype(np.int32)  # [CLS] is at position 0
    np.put_along_axis(tokens_BxL, positions_BxM, shown_BxM, 1)
    return Batch(tokens_BxL, (positions_BxM, original_BxM))


STRIDE = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio


def _random_uint64(seed: int, draws: np.ndarray, numbers: int) -> np.ndarray:
    """Return BxN random uint64: splitmix64 (Steele, Lea & Flood 2014) per draw.

    Row b depends only on the seed and draws[b].
    """
    start = _mix(np.array([seed % 2**64], np.uint64))
    states_B = _mix(start + draws.astype(np.uint64) * np.uint64(STRIDE))
    steps_N = np.arange(1, numbers + 1, dtype=np.uint64) * np.uint64(STRIDE)
    return _mix(states_B[:, None] + steps_N)


def _mix(numbers: np.ndarray) -> np.ndarray:
    """Return the finalizer of splitmix64."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
