"""Compressed gradients: PowerSGD with error feedback, and QSGD.

    PowerSGD (Vogels 2019)                   Q: b x r, of the step before
        M  a x b  ◄── gradient + error       this rank's term of the mean gradient
        P = M Q                              a x r; all-reduce; orthonormal basis
        Q = Mᵀ P                             b x r; all-reduce
        error = M - P Q_iᵀ                   with the Q_i of this rank, before its sum
        mean ≈ P Qᵀ

    QSGD (Alistarh 2017)                     s = 4 levels of the norm
        x            0.9 -0.2  0.0  0.5      norm 1.05
        s x / norm   3.4 -0.8  0.0  1.9      rounded up or down at random
        sent           4   -1    0    2      unbiased: it needs no error feedback

P and Q are linear in M: all-reduces add them. QSGD sends its codes to all ranks.
Cost of a step: 2(p - 1)/p · r(a + b) words in two ring all-reduces, instead of
2(p - 1)/p · ab; QSGD: (p - 1)(32 + ab ⌈lg(2s + 1)⌉) bits.

    mpirun -n 4 python experiments/single/power_sgd.py
"""

import numpy as np
from mpi4py import MPI


def all_gather(comm, chunks, own):
    """Fill the list of chunks of all ranks; this rank has chunk number `own`."""
    rank, size = comm.Get_rank(), comm.Get_size()
    for i in range(size - 1):
        here, next_one = chunks[(own - i) % size], chunks[(own - i - 1) % size]
        comm.Sendrecv(here, (rank + 1) % size, 0, next_one, (rank - 1) % size, 0)


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
    """Return a sum of rank r, and the error and the factor for the next step."""
    m = m + error
    p = np.linalg.qr(add_up(comm, m @ q))[0]
    q = m.T @ p
    error = m - p @ q.T
    q = add_up(comm, q)
    return p @ q.T, error, np.linalg.qr(q)[0]  # so that q neither grows nor vanishes


def encode(x, levels, draws):
    """Return norm and levels as bytes; draws are random numbers in [0, 1)."""
    norm = np.sqrt(np.sum(x.astype(np.float64) ** 2)).astype(np.float32)
    level = np.floor(x * (levels / norm) + draws).clip(-levels, levels).astype(int)
    bits = (2 * levels).bit_length()
    binary = (level.reshape(-1, 1) + levels) >> np.arange(bits) & 1
    packed = np.packbits(binary.astype(np.uint8), bitorder="little")
    return np.concatenate([norm.reshape(1).view(np.uint8), packed])


def decode(code, levels, count):
    """Return the values of a code of `count` elements."""
    bits = (2 * levels).bit_length()
    binary = np.unpackbits(code[4:], bitorder="little")[: count * bits]
    level = (binary.reshape(count, bits) << np.arange(bits)).sum(axis=1) - levels
    return code[:4].view(np.float32) / np.float32(levels) * level.astype(np.float32)


def qsgd(comm, m, levels, rng):
    """Return the sum of the codes of all ranks, added in the order of ranks."""
    rank, size = comm.Get_rank(), comm.Get_size()
    code = encode(m.reshape(-1), levels, rng.random(m.size, np.float32))
    codes = np.tile(code, (size, 1))
    all_gather(comm, codes, rank)
    total = sum(decode(code, levels, m.size) for code in codes)
    return total.reshape(m.shape), levels, rng


def gradient(w, x, y):
    """Return loss and gradient of a linear regression with a matrix of params."""
    error = x @ w - y
    return np.mean(error**2) / 2, x.T @ error / error.size


def train(comm, w, minibatches, rate, compress, state):
    """Return the loss by step, and the params; minibatches are arrays (x, y)."""
    share, losses = np.float32(1 / comm.Get_size()), []
    for x, y in zip(*minibatches, strict=True):
        loss, grad = gradient(w, x, y)
        mean, *state = compress(comm, grad * share, *state)
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
    rng = np.random.default_rng([2, rank])
    q = np.random.default_rng(0).standard_normal((b, b)).astype(np.float32)
    start, equal = np.zeros((a, b), np.float32), []
    shards = [examples(each, steps, batch, a, b) for each in range(size)]
    whole = [np.concatenate(parts, axis=1) for parts in zip(*shards, strict=True)]
    _, expected = train(MPI.COMM_SELF, start, whole, rate, exact, [])  # one process

    def ring(length):  # words of a ring all-reduce: twice all chunks but one
        chunks = [len(chunk) for chunk in np.array_split(range(length), size)]
        return 2 * length - chunks[(rank + 1) % size] - chunks[(rank + 2) % size]

    def without_feedback(comm, m, q):
        return power_sgd(comm, m, 0, q)[::2]  # leaves out the error

    for name, words, compress, *state in [
        ("exact sum", ring(a * b), exact),
        ("PowerSGD, r = b", 2 * ring(a * b), power_sgd, start, q),
        (f"PowerSGD, r = {r}", 2 * ring(r * a), power_sgd, start, q[:, :r].copy()),
        ("without feedback", 2 * ring(r * a), without_feedback, q[:, :r].copy()),
        ("QSGD, s = 4", (size - 1) * (1 + a * b // 8), qsgd, 4, rng),
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
