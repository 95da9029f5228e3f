"""Measured seconds of codes on one core: to encode, and to decode and add.

Seconds are those of the processor, which other programs hardly lengthen.

A code that all-reduces can sum, such as PowerSGD's, has one time for all computation
of a reduction, and the lengths of the all-reduces in it.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from lab import flags
import numpy as np

from dml import sim
from dml.types import BadInput, Comm
from dml.wire.collectives import ALLREDUCE
from dml.wire.comm.buffers import layout
from dml.wire.reducers import names, transports
from dml.wire.reducers.codecs import Codec
from dml.wire.reducers.codecs.largest import top_k
from dml.wire.reducers.codecs.levels import int8, qsgd, terngrad
from dml.wire.reducers.codecs.powers import natural
from dml.wire.reducers.codecs.signs import one_bit, sign

SIDE = 512  # rows and columns of a matrix
CODECS: dict[str, Callable[..., Codec]] = {
    "qsgd": qsgd,
    "terngrad": terngrad,
    "natural": natural,
    "int8": int8,
    "sign": sign,
    "one_bit": one_bit,
    "top_k": top_k,
}
SUMS = ("random_k", "power_sgd", "power_sgd_alternating")  # of all-reduces


class Speed(NamedTuple):
    """The measured code of a gradient of `length` elements.

    Attributes:
      name: Name in --reduce.
      length: Number of elements.
      encode: Seconds to encode them, the error memory included.
      decode: Seconds to decode them and add; 0 for a code of all-reduces.
      codec: The codec; None for a code of all-reduces.
      lengths: Numbers of elements of the all-reduces of a reduction.
    """

    name: str
    length: int
    encode: float
    decode: float
    codec: Codec | None = None
    lengths: tuple[int, ...] = ()

    def nbytes(self) -> int:
        """Return the bytes of a code, or of the buffers of the all-reduces."""
        if self.codec:
            return self.codec.nbytes(self.length)
        return 4 * sum(self.lengths)


def matrices(count: int, seed: int) -> dict[str, np.ndarray]:
    """Return matrices of normal numbers, which stand for a gradient."""
    draws = np.random.default_rng(seed)
    return {
        f"{n:04d}": draws.standard_normal((SIDE, SIDE), np.float32)
        for n in range(count)
    }


def check(text: str, grads: dict[str, np.ndarray]) -> None:
    """Raise BadInput unless a text names a code of these matrices."""
    if not names.is_lossy(text) or names.parse(text).name not in (*CODECS, *SUMS):
        raise BadInput(
            f"expected codes of {', '.join((*CODECS, *SUMS))}, got {text!r}; correct "
            "--codes"
        )
    flags.reducer(text, ALLREDUCE["ring"]).init(layout(grads))


def measure(text: str, grads: dict[str, np.ndarray], repeats: int) -> Speed:
    """Return the median seconds of a code of matrices.

    Args:
      text: Name of the reducer.
      grads: Matrices by name.
      repeats: Number of timings.
    """
    choice = names.parse(text)
    if choice.name in CODECS:
        make = CODECS[choice.name]
        codec = make(*choice.arguments)
        return measure_codec(text, codec, grads, repeats)
    return measure_sums(text, grads, repeats)


def measure_codec(
    text: str, codec: Codec, grads: dict[str, np.ndarray], repeats: int
) -> Speed:
    """Return the median seconds to encode, and to decode and add."""
    values = np.concatenate([grad.reshape(-1) for grad in grads.values()])
    total, lost = np.zeros_like(values), np.zeros_like(values)
    memory = names.parse(text).feedback

    def encode() -> np.ndarray:
        if not memory:
            return transports.encode(codec, values, None, 1)
        np.add(values, lost, out=total)
        return transports.encode(codec, total, lost, 1)

    code = encode()
    encoding = median_seconds(encode, repeats)
    decoding = median_seconds(lambda: codec.add(code, total), repeats)
    return Speed(text, len(values), encoding, decoding, codec)


def measure_sums(text: str, grads: dict[str, np.ndarray], repeats: int) -> Speed:
    """Return the median seconds of a reduction on one rank, and its all-reduces."""
    shape = layout(grads)
    values = np.concatenate([grad.reshape(-1) for grad in grads.values()])
    lengths: list[int] = []

    def allreduce(comm: Comm, buffer: np.ndarray, op: Any = np.add) -> None:
        lengths.append(len(buffer))

    def program(comm: Comm) -> float:
        made = flags.reducer(text, allreduce)
        state, buffer = made.init(shape), values.copy()
        state = made.reduce(comm, buffer, state)
        times = []
        for _ in range(repeats):
            buffer[:] = values
            lengths.clear()
            start = time.process_time()
            state = made.reduce(comm, buffer, state)
            times.append(time.process_time() - start)
        return statistics.median(times)

    (seconds,) = sim.run(program, 1)
    return Speed(text, len(values), seconds, 0.0, lengths=tuple(lengths))


def adding_seconds(length: int, repeats: int) -> float:
    """Return the seconds to add a byte of float32."""
    total, term = np.zeros(length, np.float32), np.ones(length, np.float32)
    seconds = median_seconds(lambda: np.add(total, term, out=total), repeats)
    return seconds / total.nbytes


def flop_seconds(repeats: int) -> float:
    """Return the seconds of a floating-point operation of a matrix product."""
    matrix = np.ones((SIDE, SIDE), np.float32)
    out = np.empty_like(matrix)
    seconds = median_seconds(lambda: np.matmul(matrix, matrix, out=out), repeats)
    return seconds / (2 * SIDE**3)


def median_seconds(call: Callable[[], Any], repeats: int) -> float:
    """Return the median seconds of calls, after one that compiles."""
    times: Sequence[float] = [seconds_of(call) for _ in range(repeats + 1)]
    return statistics.median(times[1:])


def seconds_of(call: Callable[[], Any]) -> float:
    start = time.process_time()
    call()
    return time.process_time() - start
