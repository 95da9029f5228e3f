"""Tables of the finite field of q = pⁿ elements, numbered 0 ... q - 1, for Slim Fly.

p is a prime. An element is a polynomial in x over the integers mod p; its coefficients
are the digits of its number in base p. Products are powers of ξ = x, modulo a primitive
polynomial: the first monic polynomial for which the powers of ξ are all
elements but 0 (for n = 1 it is x - c, where c is a primitive root). See Lidl &
Niederreiter 1997, "Finite fields", chapters 2 and 9.
"""

from typing import NamedTuple

import numpy as np


class Field(NamedTuple):
    """Powers ξ⁰ ... ξ^(q - 2), and q x q tables of a + b and a·b."""

    powers: np.ndarray
    plus: np.ndarray
    times: np.ndarray


def prime_power(q: int) -> tuple[int, int]:
    """Return p, n with q = pⁿ, p prime; (0, 0) if q is not a prime power."""
    p = next((p for p in range(2, int(max(q, 0) ** 0.5) + 1) if q % p == 0), q)
    n = 0
    while p > 1 and q % p == 0:
        q, n = q // p, n + 1
    return (p, n) if q == 1 and n else (0, 0)


def field(q: int) -> Field:
    """Return the tables of the field of q elements, where q is a prime power."""
    p, n = prime_power(q)
    place = p ** np.arange(n)
    digits = np.arange(q)[:, None] // place % p
    powers = next(
        cycle for low in digits if len(cycle := orbit(low, p)) == q - 1 and cycle[-1]
    )
    logs = np.zeros(q, np.int64)
    logs[powers] = np.arange(q - 1)
    times = powers[(logs[:, None] + logs) % (q - 1)]
    times[0] = times[:, 0] = 0
    plus = (digits[:, None] + digits) % p @ place
    return Field(powers, plus, times)


def orbit(low: np.ndarray, p: int) -> np.ndarray:
    """Return 1, x, x², ... modulo xⁿ + low(x), until a power repeats."""
    n = len(low)
    place = p ** np.arange(n)
    element = np.zeros(n, np.int64)
    element[0] = 1
    seen: dict[int, None] = {}
    while (number := int(element @ place)) not in seen:
        seen[number] = None
        top = element[-1]
        element = (np.concatenate([[0], element[:-1]]) - top * low) % p
    return np.array(list(seen))
