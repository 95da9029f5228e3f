"""Codecs: lossy codes of vectors, with a number of bytes that is known in advance."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dml.types import BadInput


class BadCode(ValueError):
    """A code that `encode` cannot have written; the text has what was expected."""


class Codec(NamedTuple):
    """A lossy code of float32 vectors.

    The sum of decoded codes is computed by `add`, code by code. A code of zero elements
    has zero bytes. NaN and infinity remain visible: some decoded element is not finite.

    Attributes:
      nbytes: (length) -> bytes of the code of `length` elements.
      encode: (values, code, seed) -> None. Writes the code of the values; equal seeds
        give equal codes.
      add: (code, total) -> None. Adds the decoded values to `total`; raises BadCode
        for positions outside of `total`.
      unbiased: Whether the mean of the decoded values over all seeds is the values.
      sparse: Whether a code has a few elements only, which differ between ranks.
    """

    nbytes: Callable[[int], int]
    encode: Callable[[np.ndarray, np.ndarray, int], None]
    add: Callable[[np.ndarray, np.ndarray], None]
    unbiased: bool = False
    sparse: bool = False


def check_fraction(fraction: float) -> None:
    """Raise BadInput unless a fraction of the elements is in (0, 1]."""
    if not 0 < fraction <= 1:
        raise BadInput(
            f"expected a fraction in (0, 1] of the elements, got {fraction}; correct it"
        )


def decode(codec: Codec, code: np.ndarray, length: int) -> np.ndarray:
    """Return the values of a code of `length` elements."""
    values = np.zeros(length, np.float32)
    if length:
        codec.add(code, values)
    return values
