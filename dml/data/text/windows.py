"""BATCH: windows of a corpus' tokens, for models that fill in or go on with a text.

Tokens in, (training, held out) out. Windows follow one another, share no token and
have no padding; tokens behind the last whole one are dropped. The last 5 % of windows
are held out.
"""

from functools import partial

import numpy as np

from dml.data.text.tokens import SPECIAL, Tokens
from dml.types import BadInput, Batch, Examples

HELD_OUT = 20  # one window of so many
FEWEST = 4  # windows
MASKED = 0.15  # of a window's tokens
HIDDEN, REPLACED = 0.8, 0.1  # of those: become [MASK]; become any token; else are kept
CLS, SEP, MASK = map(SPECIAL.index, ("[CLS]", "[SEP]", "[MASK]"))


def causal(ids: np.ndarray, length: int) -> tuple[Examples, Batch]:
    """Return GPT's examples: inputs and targets BxL int32, the targets one further on.

    A window has length + 1 tokens.
    """
    windows_NxW, held_out = _windows(ids, length + 1, least=2, length=length)
    training = windows_NxW[:-held_out]
    count = len(training)
    return (
        Examples(count, lambda draws: _shifted(training[draws % count])),
        _shifted(windows_NxW[-held_out:]),
    )


def masked(tokens: Tokens, length: int, seed: int) -> tuple[Examples, Batch]:
    """Return BERT's examples: [CLS], a window of length - 2 tokens, [SEP]; some masked.

    Inputs are BxL int32, targets (positions BxM, the tokens that stood there BxM), both
    int32, by rising position. M is 15 % of the window, rounded, and at least 1; special
    tokens are among them only where there are too few others. Masks hang on the seed
    and the draw; those of held-out windows are the same for every seed.
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
    """Return the windows, and how many of them are held out."""
    count = len(ids) // max(width, 1)
    if width < least or count < FEWEST:
        raise BadInput(
            f"expected a length that cuts {len(ids)} tokens into {FEWEST} windows or "
            f"more, got {length=}; pass a longer corpus or a length of "
            f"{length - width + least} to {length - width + len(ids) // FEWEST}"
        )
    return ids[: count * width].reshape(count, width), max(1, count // HELD_OUT)


def _shifted(windows_BxW: np.ndarray) -> Batch:
    tokens_BxW = windows_BxW.astype(np.int32)
    return Batch(tokens_BxW[:, :-1], tokens_BxW[:, 1:])


def _masked(
    vocabulary: int, seed: int, windows_BxW: np.ndarray, draws: np.ndarray
) -> Batch:
    batch, width = windows_BxW.shape
    some = max(1, round(MASKED * width))
    chance_BxN = _chance(seed, draws, width + 2 * some)
    order_BxW, fate_BxM, other_BxM = np.split(chance_BxN, [width, width + some], axis=1)
    # special tokens come last in the order by which tokens are chosen
    order_BxW = np.where(windows_BxW < len(SPECIAL), ~np.uint64(0), order_BxW)
    chosen_BxM = np.sort(np.argpartition(order_BxW, some - 1, axis=1)[:, :some])
    found_BxM = np.take_along_axis(windows_BxW, chosen_BxM, 1).astype(np.int32)

    ordinary = np.uint64(vocabulary - len(SPECIAL))
    any_BxM = (other_BxM % ordinary).astype(np.int32) + np.int32(len(SPECIAL))
    share_BxM = fate_BxM * 2.0**-64
    shown_BxM = np.where(share_BxM < HIDDEN, np.int32(MASK), found_BxM)
    replaced_BxM = (share_BxM >= HIDDEN) & (share_BxM < HIDDEN + REPLACED)
    shown_BxM = np.where(replaced_BxM, any_BxM, shown_BxM)

    tokens_BxL = np.empty((batch, width + 2), np.int32)
    tokens_BxL[:, 0], tokens_BxL[:, -1] = CLS, SEP
    tokens_BxL[:, 1:-1] = windows_BxW
    positions_BxM = (chosen_BxM + 1).astype(np.int32)  # [CLS] stands before them
    np.put_along_axis(tokens_BxL, positions_BxM, shown_BxM, 1)
    return Batch(tokens_BxL, (positions_BxM, found_BxM))


STRIDE = 0x9E3779B97F4A7C15  # 2**64 over the golden ratio


def _chance(seed: int, draws: np.ndarray, numbers: int) -> np.ndarray:
    """Return so many numbers for each draw, uint64: splitmix64 begun at its hash.

    Steele, Lea & Flood 2014. They depend on nothing but the seed and the draw.
    """
    start = _mix(np.array([seed % 2**64], np.uint64))
    states_B = _mix(start + draws.astype(np.uint64) * np.uint64(STRIDE))
    steps_N = np.arange(1, numbers + 1, dtype=np.uint64) * np.uint64(STRIDE)
    return _mix(states_B[:, None] + steps_N)


def _mix(numbers: np.ndarray) -> np.ndarray:
    """Scatter 64 bits: each depends on all."""
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
