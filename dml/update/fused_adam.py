"""Adam fused with the sum of the gradients of all ranks, by chunks in cache.

                  chunk 0          chunk 1       …    a chunk stays in cache while its
    terms      read, add up     read, add up          terms are added, its parameters
    moments    Adam             Adam                  are updated and the new ones are
    outputs    write            write                 written

The loop moves 24 + 4n bytes per element for n terms and one output: p, m and v are read
and written once. Separate passes move 32 + 8n bytes and more.
"""

from collections.abc import Sequence

import numpy as np

from dml.compiled import compile_loop

CHUNK = 32 << 10  # bytes of a chunk, as published; all its operands fit into L2
ONE = np.float32(1)


class FusedAdam:
    """A part of the parameters of a model, with Adam's moments (Kingma 2015).

    The rule is optax.adam's up to rounding; the gradient is the mean of the terms.

    Args:
      length: Number of parameters of the part.
      rate: Learning rate.
      chunk: Size of a chunk in bytes; 0: one chunk, the part.
      decays: Decay rates of the two moments.
      epsilon: Term added to the root of the second moment.
    """

    def __init__(
        self,
        length: int,
        rate: float = 1e-3,
        chunk: int = CHUNK,
        decays: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        self.first, self.second = np.zeros((2, length), np.float32)
        self.rate, self.decays, self.epsilon = rate, decays, epsilon
        self.step = max(1, (chunk or 4 * length) // 4)
        self.total = np.empty(max(1, min(self.step, length)), np.float32)
        self.updates = 0
        self.coefficients = np.empty(0, np.float32)

    def begin(self, terms: int) -> None:
        """Start an update of all parameters by the mean of a number of terms."""
        self.updates += 1
        first, second = self.decays
        self.coefficients = np.array(
            [
                *(1 / terms, self.rate, self.epsilon, first, second),
                *(1 - first**self.updates, 1 - second**self.updates),
            ],
            np.float32,
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
        part = slice(start, start + len(outputs[0]))
        arrays = tuple(terms), tuple(outputs), self.first[part], self.second[part]
        add_and_update(*arrays, self.total, self.coefficients)


@compile_loop(error_model="numpy")
def add_and_update(terms, outputs, first, second, total, coefficients):
    step = len(total)
    for start in range(0, len(first), step):
        stop = min(start + step, len(first))
        sums = total[: stop - start]
        sums[:] = terms[0][start:stop]
        # order matters: in rank order the result does not depend on the chunk
        for k in range(1, len(terms)):
            add(sums, terms[k][start:stop])
        values = outputs[0][start:stop]
        adam(values, sums, first[start:stop], second[start:stop], coefficients)
        for k in range(1, len(outputs)):
            outputs[k][start:stop] = values


@compile_loop()
def add(sums, term):
    for i in range(len(sums)):
        sums[i] += term[i]


@compile_loop(error_model="numpy")
def adam(values, sums, first, second, coefficients):
    share, rate, epsilon = coefficients[0], coefficients[1], coefficients[2]
    decay, decay_2 = coefficients[3], coefficients[4]
    correction, correction_2 = coefficients[5], coefficients[6]
    for i in range(len(values)):
        gradient = share * sums[i]
        m = (ONE - decay) * gradient + decay * first[i]
        v = (ONE - decay_2) * (gradient * gradient) + decay_2 * second[i]
        first[i], second[i] = m, v
        values[i] -= rate * ((m / correction) / (np.sqrt(v / correction_2) + epsilon))
