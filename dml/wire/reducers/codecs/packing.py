"""Packing of integers of 1 to 8 bits, eight at a time in a word of 64 bits.

    8 bytes of a word   0000aaaa 0000bbbb 0000cccc 0000dddd ...     4 bits
    pairs               bbbbaaaa 00000000 ddddcccc 00000000 ...
    pairs of pairs      bbbbaaaa ddddcccc 00000000 00000000 ...

The lowest bytes and bits are the first ones. The loops over words have no branches, so
that they are vectorised, and the same instructions for any number of bits.
"""

import numpy as np
from numba import njit

BLOCK = 512  # elements in a buffer of words


@njit(nogil=True, cache=True)
def pack(words, bits, code):
    """Write the lowest bits of each byte of `words` to `code`, without gaps.

    Args:
      words: At most BLOCK integers, 8 of them in a word; overwritten.
      bits: Number of bits of an integer.
      code: Receives the bytes; its length determines the number of integers.
    """
    move = np.uint64(8 - bits)
    for width in (8, 16, 32):
        low, high = halves(width, bits * width // 8)
        for n in range(len(words)):
            words[n] = (words[n] & low) | ((words[n] >> move) & high)
        move *= np.uint64(2)
    whole = max(0, (len(code) - 8) // bits + 1)  # words with 8 bytes in the code
    start = np.uint64(0)  # indices without a sign need no test
    for w in range(whole):
        word = words[w]
        for n in range(8):  # one store; the next word overwrites the last bytes
            code[start + np.uint64(n)] = np.uint8(word >> np.uint64(8 * n))
        start += np.uint64(bits)
    for w in range(whole, -(-len(code) // bits)):
        for n in range(min(bits, len(code) - w * bits)):
            code[w * bits + n] = np.uint8(words[w] >> np.uint64(8 * n))


@njit(nogil=True, cache=True)
def unpack(code, bits, words):
    """Write each `bits` bits of `code` to a byte of `words`: the inverse of `pack`."""
    whole = max(0, (len(code) - 8) // bits + 1)  # words with 8 bytes in the code
    start = np.uint64(0)
    for w in range(whole):
        word = np.uint64(0)
        for n in range(8):  # one load; the masks remove the bytes of the next word
            word |= np.uint64(code[start + np.uint64(n)]) << np.uint64(8 * n)
        words[w] = word
        start += np.uint64(bits)
    for w in range(whole, -(-len(code) // bits)):
        word = np.uint64(0)
        for n in range(min(bits, len(code) - w * bits)):
            word |= np.uint64(code[w * bits + n]) << np.uint64(8 * n)
        words[w] = word
    move = np.uint64(32 - 4 * bits)
    for width in (32, 16, 8):
        low, high = halves(width, bits * width // 8)
        for n in range(len(words)):
            words[n] = (words[n] & low) | ((words[n] & high) << move)
        move //= np.uint64(2)


@njit(nogil=True, cache=True)
def halves(width, bits):
    """Return masks of the lower and upper `bits` bits of pairs of packed lanes."""
    low = np.uint64((1 << bits) - 1)
    for distance in (2 * width, 4 * width):
        if distance < 64:
            low |= low << np.uint64(distance)
    return low, low << np.uint64(bits)
