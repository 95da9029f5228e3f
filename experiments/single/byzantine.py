"""Byzantine workers: robust estimates of the mean of n gradients, f of them arbitrary.

    · ·                         rank 0    rank 1    rank 2
   · ○ ·       ×                w0 … w5   w6 … w10  w11 … w15   gradients of workers
    · ·        ×                   └───── all-gather ─────┘     ring, p-1 rounds
    honest     f attackers      w ← w - η rule(gradients)       the same on all ranks

    mean           of all gradients; one attacker moves it anywhere
    median         of the values of each coordinate (Yin 2018), n > 2f
    trimmed mean   of each coordinate without its f smallest and f largest values (Yin
                   2018), n > 2f
    Krum           the gradient with the smallest sum of squared distances to its n-f-2
                   nearest others (Blanchard 2017), n ≥ 2f+3

The last f of the n workers attack. They know the mean μ and the standard deviation σ
of the honest gradients in each coordinate; every rank replaces their gradients by

    IPM            -ε μ, against the direction of descent (Xie 2019)
    ALIE           μ - z σ, within the range of many honest values (Baruch 2019)

IPM makes the mean an ascent if fε > n-f. ALIE can mislead the median and the trimmed
mean more than the mean, because the values of the attackers are not extreme. Without an
attack Krum is the worst: its result has the noise of a single gradient.
Words sent per rank and step: about (p-1)/p · nd for d parameters. All ranks have the
bits of one process.

    mpirun -n 4 python experiments/single/byzantine.py
"""

from functools import cache

import numpy as np
from mpi4py import MPI

N, F, D, BATCH, STEPS, ETA = 16, 3, 20, 8, 40, np.float32(0.25)
EPSILON, Z = 10, 1.5


def mean(rows):
    return np.float32(rows.sum(axis=0, dtype=np.float64) / len(rows))


def median(rows):
    middle = [(len(rows) - 1) // 2, len(rows) // 2]  # equal if n is odd
    return mean(np.sort(rows, axis=0)[middle])


def trimmed_mean(rows):
    return mean(np.sort(rows, axis=0)[F : len(rows) - F])


def krum(rows):
    squared = np.square(rows[:, None] - rows[None]).sum(axis=2, dtype=np.float64)
    nearest = np.sort(squared, axis=1)[:, 1 : len(rows) - F - 1]  # [:, 0]: to itself
    return rows[np.argmin(nearest.sum(axis=1))]


def no_attack(honest, own):
    return own


def ipm(honest, own):  # -ε μ for all attackers
    return -EPSILON * honest.mean(axis=0, dtype=np.float64)


def alie(honest, own):
    mu, sigma = honest.mean(0, np.float64), honest.std(0, np.float64)
    return mu - Z * sigma


def all_gather(comm, rows):  # around a ring; rank r has the rows of its workers
    rank, size = comm.Get_rank(), comm.Get_size()
    parts = np.array_split(rows, size)
    for i in range(size - 1):
        outgoing, incoming = parts[(rank - i) % size], parts[(rank - i - 1) % size]
        right, left = (rank + 1) % size, (rank - 1) % size
        comm.Sendrecv(outgoing, right, recvbuf=incoming, source=left)


@cache
def examples(worker, step):  # of linear regression with weights 1, and noise
    draws = np.random.default_rng([worker, step])
    inputs = np.float32(draws.standard_normal((BATCH, D)))
    return inputs, inputs.sum(axis=1) + np.float32(draws.standard_normal(BATCH))


def gradient(w, worker, step):
    inputs, targets = examples(worker, step)
    return inputs.T @ (inputs @ w - targets) / np.float32(BATCH)


def train(rule, attack, workers, gather):  # workers: of this rank
    w, rows = np.zeros(D, np.float32), np.zeros((N, D), np.float32)
    for step in range(STEPS):
        for worker in workers:
            rows[worker] = gradient(w, worker, step)
        gather(rows)
        rows[N - F :] = attack(rows[: N - F], rows[N - F :])
        w -= ETA * rule(rows)
    return w


def main(comm):
    rank, p = comm.Get_rank(), comm.Get_size()
    parts = np.array_split(np.arange(N), p)
    words = D * (N - len(parts[(rank + 1) % p]))
    if rank == 0:
        print(
            f"{N} workers, {F} attackers, on {p} ranks; {words} words of rank 0 a step"
        )
        print("mean of (w - 1)²       no attack         IPM        ALIE")
    equal = True
    for rule in mean, median, trimmed_mean, krum:
        errors = []
        for attack in no_attack, ipm, alie:
            w = train(rule, attack, parts[rank], lambda rows: all_gather(comm, rows))
            serial = train(rule, attack, range(N), lambda rows: None)
            equal = equal and np.array_equal(w, serial)
            errors.append(f"{np.mean((w - 1) ** 2):12.2g}")
        if rank == 0:
            print(f"{rule.__name__:20}", *errors)
    if rank == 0:
        print("equal bits to one process:", equal)


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
