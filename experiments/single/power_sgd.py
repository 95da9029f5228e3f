"""Compressed gradients: PowerSGD with error feedback, and QSGD.

    PowerSGD (Vogels 2019)                   Q: b x r, from the step before
        M  a x b  ◄── gradient/p + error     this rank's term of the mean gradient
        P = M Q                              a x r; all-reduce; orthonormal basis
        Q = Σ Q_i, Q_i = Mᵀ P                b x r; all-reduce
        error = M - P Q_iᵀ                   of this rank, added in the next step
        mean ≈ P Qᵀ                          next Q: an orthonormal basis of Q

    QSGD (Alistarh 2017)                     s = 4 levels of the norm
        x            0.9 -0.2  0.0  0.5      norm 1.05
        s x / norm   3.4 -0.8  0.0  1.9      rounded up or down at random
        codes        4   -1    0    2        to all ranks; unbiased: no error feedback

M Q, and Mᵀ P for one P, are linear in M: all-reduces add them. Updates and errors
add up to all gradients. One power iteration a step suffices: Q is kept between steps.
Cost of a step: 2(p - 1)/p · r(a + b) words by all-reduces, not 2(p - 1)/p · ab. QSGD:
(p - 1)(32 + ab ⌈lg(2s + 1)⌉) bits, in codes of fixed width (Alistarh: Elias codes).

    mpirun -n 4 python experiments/single/power_sgd.py
"""

import numpy as np
from mpi4py import MPI


def all_gather(comm, chunks, own):
    """Fill the chunks of all ranks; this rank has chunk number `own` modulo p."""
    rank, size = comm.Get_rank(), comm.Get_size()
    for i in range(size - 1):
        here, incoming = chunks[(own - i) % size], chunks[(own - i - 1) % size]
        comm.Sendrecv(here, (rank + 1) % size, 0, incoming, (rank - 1) % size, 0)


def add_up(comm, array):
    """Return the sum over ranks, by a ring all-reduce of p chunks."""
    rank, size = comm.Get_rank(), comm.Get_size()
    chunks = np.array_split(array.reshape(-1).copy(), size)
    for i in range(size - 1):  # reduce-scatter: a rank ends with the sum of one chunk
        here, total = chunks[(rank - i) % size], chunks[(rank - i - 1) % size]
        received = np.empty_like(total)
        comm.Sendrecv(here, (rank + 1) % size, 0, received, (rank - 1) % size, 0)
        total += received
    all_gather(comm, chunks, rank + 1)
    return np.concatenate(chunks).reshape(array.shape)


def exact(comm, m):
    return [add_up(comm, m)]


def power_sgd(comm, m, error, q):
    """Return about the sum of all m, and the error and the Q of the next step."""
    m = m + error
    p = np.linalg.qr(add_up(comm, m @ q))[0]
    q = m.T @ p
    error = m - p @ q.T
    q = add_up(comm, q)
    return p @ q.T, error, np.linalg.qr(q)[0]  # so that q neither grows nor vanishes


def encode(x, s, draws):
    """Return the norm and the codes as bytes; draws are random numbers in [0, 1)."""
    norm = np.sqrt(np.sum(x.astype(np.float64) ** 2)).astype(np.float32)
    scale = s / norm if norm > 0 else norm
    codes = np.floor(x * scale + draws).clip(-s, s).astype(int)
    binary = (codes.reshape(-1, 1) + s) >> np.arange((2 * s).bit_length()) & 1
    return np.append(norm[None].view(np.uint8), np.packbits(binary, bitorder="little"))


def decode(message, s, count):
    """Return the `count` values of a norm and codes."""
    bits = (2 * s).bit_length()
    binary = np.unpackbits(message[4:], bitorder="little")[: count * bits]
    codes = (binary.reshape(count, bits) << np.arange(bits)).sum(axis=1) - s
    return message[:4].view(np.float32) / np.float32(s) * codes.astype(np.float32)


def qsgd(comm, m, s, rng):
    """Return the sum of the values of all ranks, added in the order of ranks."""
    rank, size = comm.Get_rank(), comm.Get_size()
    message = encode(m.reshape(-1), s, rng.random(m.size, np.float32))
    messages = np.tile(message, (size, 1))
    all_gather(comm, messages, rank)
    total = sum(decode(message, s, m.size) for message in messages)
    return total.reshape(m.shape), s, rng


def gradient(w, x, y):
    """Return loss and gradient of a linear regression with a matrix of params."""
    error = x @ w - y
    return np.mean(error**2) / 2, x.T @ error / error.size


def train(comm, w, minibatches, rate, compress, state):
    """Return the loss by step, and the params; minibatches are arrays (x, y)."""
    share, losses = np.float32(1 / comm.Get_size()), []
    for x, y in zip(*minibatches, strict=True):
        loss, grad = gradient(w, x, y)
        mean, *state = compress(comm, grad * share, *state)  # the sum of the shares
        w = w - rate * mean
        losses.append(loss)
    return np.array(losses), w


def examples(rank, steps, batch, a, b):
    """Return the minibatches of a rank: inputs, and noisy outputs."""
    rng = np.random.default_rng([1, rank])
    x = rng.standard_normal((steps, batch, a)) * np.linspace(0.2, 1, a)
    y = x @ np.random.default_rng(0).standard_normal((a, b))
    y += rng.standard_normal(y.shape)
    return x.astype(np.float32), y.astype(np.float32)


def main(comm):
    rank, size = comm.Get_rank(), comm.Get_size()
    a, b, r, steps, batch, rate = 16, 16, 1, 100, 8, 2.0
    rng, equal = np.random.default_rng([2, rank]), []
    q = np.random.default_rng(0).standard_normal((b, b)).astype(np.float32)
    start, error = np.zeros((2, a, b), np.float32)
    shards = [examples(each, steps, batch, a, b) for each in range(size)]
    whole = [np.concatenate(parts, axis=1) for parts in zip(*shards, strict=True)]
    _, expected = train(MPI.COMM_SELF, start, whole, rate, exact, [])  # one process

    def ring(length):  # words of a ring all-reduce: in two passes, all chunks but one
        chunks = [len(chunk) for chunk in np.array_split(range(length), size)]
        return 2 * length - chunks[(rank + 1) % size] - chunks[(rank + 2) % size]

    def without_feedback(comm, m, q):
        return power_sgd(comm, m, 0, q)[::2]  # the sum and the next Q

    for name, words, compress, *state in [
        ("exact sum", ring(a * b), exact),
        ("PowerSGD, r = b", ring(a * b) + ring(b * b), power_sgd, error, q),
        (f"PowerSGD, r = {r}", ring(r * a) + ring(r * b), power_sgd, error, q[:, :r]),
        ("without feedback", ring(r * a) + ring(r * b), without_feedback, q[:, :r]),
        ("QSGD, s = 4", (size - 1) * (32 + 4 * a * b) // 32, qsgd, 4, rng),
    ]:
        losses, w = train(comm, start, shards[rank], rate, compress, state)
        comm.Allreduce(MPI.IN_PLACE, losses, MPI.SUM)
        equal.append(np.allclose(w, expected, atol=1e-5))
        if rank == 0:
            some = " ".join(f"{loss:.2f}" for loss in losses[:: steps // 9] / size)
            print(f"{name}: {words} words sent in a step, loss {some}")
    if rank == 0:
        print(f"the first two equal one process except for rounding: {all(equal[:2])}")


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
