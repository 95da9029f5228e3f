"""Blocks, shifts and limits of the integers of order-free sums.

`wire/reducers/fixed_point.py` sums over ranks, `wire/mesh/exact.py` over JAX devices;
both round in the same way.
"""

from dml.types import BadInput

BLOCK = 512  # elements that have a common exponent
MOST = {32: 64, 64: 1 << 16}  # default of the largest number of terms, by bits
LOWEST = 30  # float32 exponents below it count as it, so that scales are finite


def check_most(most: int) -> None:
    """Raise BadInput unless `most` is a power of two up to 65,536."""
    if most < 1 or most & (most - 1) or most > 1 << 16:
        raise BadInput(
            f"expected at most a power of two of terms up to 65536, got {most}; "
            "correct it"
        )


def integer_shift(bits: int, most: int) -> int:
    """Return the exponent of the largest integer of a term."""
    return bits - 1 - most.bit_length()
