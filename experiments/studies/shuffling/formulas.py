"""Bytes of a reshuffle and of gradients, per epoch and rank: pure arithmetic.

N examples of x bytes, p ranks, b examples of a rank in a minibatch, n bytes of
parameters, compression r, and a fraction Q of the examples that is exchanged:

    shuffle     Q N/p (1 - 1/p) x            a moved example leaves its rank: 1 - 1/p
    gradients   N/(pb) · 2 (p - 1)/p · n/r   updates · ring all-reduce
    ratio       Q r x b / (2n)               free of N and p; 1 at r* = 2n/(Qxb)
"""

from typing import NamedTuple


class Sizes(NamedTuple):
    """The sizes that determine the ratio of the bytes.

    Attributes:
      example: Bytes of an example, x.
      batch: Examples of a rank in a minibatch, b.
      model: Bytes of the parameters, n.
    """

    example: float
    batch: float
    model: float


# JPEG files, and ResNet-50 in float32
IMAGENET = Sizes(example=150e3, batch=32, model=102e6)


def traffic_ratio(sizes: Sizes, fraction: float = 1, compression: float = 1) -> float:
    """Return the bytes of the shuffle over the bytes of the gradients.

    Args:
      sizes: Sizes of an example, a minibatch and the parameters.
      fraction: Fraction of the examples that is exchanged, Q.
      compression: Bytes of a ring all-reduce in every update over the bytes that are
        sent, r. Averages every H updates have r = H.
    """
    return fraction * compression * sizes.example * sizes.batch / (2 * sizes.model)


def parity(sizes: Sizes) -> float:
    """Return the compression at which a global reshuffle sends as many bytes."""
    return 1 / traffic_ratio(sizes)


def ring_bytes(nbytes: float, ranks: int) -> float:
    """Return the bytes that a rank sends in a ring all-reduce of `nbytes`."""
    return 2 * (ranks - 1) / ranks * nbytes
