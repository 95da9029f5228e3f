"""Adam fused with the sum of the gradients of all ranks, in one loop.

                  element i
    terms      read, add up        in registers: the sum is not stored
    moments    read, Adam, write
    outputs    read one, write all

The loop reads and writes 24 + 4n bytes per element for n terms and one output, and 4
bytes for each further output. Separate passes (copy, add, Adam, copy) move 36 + 12(n-1)
bytes, and 8 for each further output. With many terms, the passes are over chunks whose
sum and parameters remain in cache.
"""

import math
from collections.abc import Sequence

import numpy as np

from dml.compiled import compile_loop

CHUNK = 4 << 10  # bytes of a chunk, whose operands fit into L1
STREAMS = 4  # most terms and outputs of one loop: LLVM does not vectorize a longer one
PAGE = 4096  # bytes
ONE = np.float32(1)


class FusedAdam:
    """A part of the parameters of a model, with Adam's moments (Kingma 2015).

    The rule is optax.adam's up to rounding; the gradient is the mean of the terms.

    Args:
      length: Number of parameters of the part.
      rate: Learning rate.
      decays: Decay rates of the two moments.
      epsilon: Term added to the root of the second moment.
    """

    def __init__(
        self,
        length: int,
        rate: float = 1e-3,
        decays: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        self.first, self.second = moments(length)
        self.rate, self.decays, self.epsilon = rate, decays, epsilon
        self.updates = 0
        self.coefficients = np.empty(0, np.float32)

    def begin(self, terms: int) -> None:
        """Start an update of all parameters by the mean of a number of terms."""
        self.updates += 1
        first, second = self.decays
        root = math.sqrt(1 - second**self.updates)
        rate = self.rate * root / (1 - first**self.updates)
        self.coefficients = np.array(
            [1 / terms, rate, root * self.epsilon, first, second], np.float32
        )

    def update(
        self,
        start: int,
        terms: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
    ) -> None:
        """Update consecutive parameters.

        Args:
          start: Position of the first parameter in this part.
          terms: Gradients of each rank, added in this order.
          outputs: Arrays that receive the new parameters; the first array has the old
            parameters.
        """
        if max(len(terms), len(outputs)) > STREAMS:
            self.update_by_chunks(start, terms, outputs, CHUNK)
            return
        part = slice(start, start + len(outputs[0]))
        moments = self.first[part], self.second[part]
        add_and_update(tuple(terms), tuple(outputs), *moments, self.coefficients)

    def update_by_chunks(
        self,
        start: int,
        terms: Sequence[np.ndarray],
        outputs: Sequence[np.ndarray],
        chunk: int,
    ) -> None:
        """Update consecutive parameters by separate passes over each chunk.

        The bits are those of `update`. `chunk` is a size in bytes.
        """
        length = len(outputs[0])
        part = slice(start, start + length)
        total = np.empty(max(1, min(chunk // 4, length)), np.float32)
        arrays = tuple(terms), tuple(outputs), self.first[part], self.second[part]
        pass_over_chunks(*arrays, total, self.coefficients)


def moments(length: int) -> tuple[np.ndarray, np.ndarray]:
    """Return two zeroed vectors that begin at different cache lines of a page.

    A load waits for an earlier store to the same offset in another page. Gradients and
    parameters in shared windows begin at the start of a page, the moments at a quarter
    and at half of a page.
    """
    nbytes = 4 * length
    memory = np.zeros(2 * (nbytes + PAGE) + PAGE, np.uint8)
    first = -memory.__array_interface__["data"][0] % PAGE + PAGE // 4
    second = first + -(-nbytes // PAGE) * PAGE + PAGE // 4
    starts = first, second
    one, two = (memory[start : start + nbytes].view(np.float32) for start in starts)
    return one, two


@compile_loop(error_model="numpy")
def add_and_update(terms, outputs, first, second, coefficients):
    for i in range(len(first)):
        total = terms[0][i]
        # order matters: in rank order all methods have equal bits
        for k in range(1, len(terms)):
            total += terms[k][i]
        value, first[i], second[i] = adam(
            outputs[0][i], total, first[i], second[i], coefficients
        )
        for k in range(len(outputs)):
            outputs[k][i] = value


@compile_loop(error_model="numpy")
def pass_over_chunks(terms, outputs, first, second, total, coefficients):
    step = len(total)
    for start in range(0, len(first), step):
        stop = min(start + step, len(first))
        sums, values = total[: stop - start], outputs[0][start:stop]
        copy(sums, terms[0][start:stop])
        for k in range(1, len(terms)):
            add(sums, terms[k][start:stop])
        pass_of_adam(values, sums, first[start:stop], second[start:stop], coefficients)
        for k in range(1, len(outputs)):
            copy(outputs[k][start:stop], values)


@compile_loop()
def copy(target, source):
    for i in range(len(target)):  # Numba's target[:] = source is half as fast
        target[i] = source[i]


@compile_loop()
def add(sums, term):
    for i in range(len(sums)):
        sums[i] += term[i]


@compile_loop(error_model="numpy")
def pass_of_adam(values, sums, first, second, coefficients):
    for i in range(len(values)):
        values[i], first[i], second[i] = adam(
            values[i], sums[i], first[i], second[i], coefficients
        )


@compile_loop(error_model="numpy")
def adam(value, total, first, second, coefficients):
    # the end of Section 2 of the paper: corrected rate and epsilon, so one division
    share, rate, epsilon = coefficients[0], coefficients[1], coefficients[2]
    decay, decay_2 = coefficients[3], coefficients[4]
    gradient = share * total
    m = (ONE - decay) * gradient + decay * first
    v = (ONE - decay_2) * (gradient * gradient) + decay_2 * second
    return value - rate * (m / (np.sqrt(v) + epsilon)), m, v
