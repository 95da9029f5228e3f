"""Local SGD and DiLoCo: ranks train alone for H updates, then combine their results.

    rank 0  θ ─x─x─x─x─► θ_0 ┐             ┌ θ ─x─x─x─x─► θ_0 ┐
    rank 1  θ ─x─x─x─x─► θ_1 ┼─ all-reduce ┼ θ ─x─x─x─x─► θ_1 ┼─ ...    x: an update
    rank 2  θ ─x─x─x─x─► θ_2 ┘             └ θ ─x─x─x─x─► θ_2 ┘         H = 4

    local SGD (Stich 2019)    θ ← mean of θ_i
    DiLoCo (Douillard 2023)   Δ = mean of θ - θ_i        the outer gradient
                              u ← μ u + Δ                Nesterov momentum; 0 at first
                              θ ← θ - η (Δ + μ u)        the outer step

With H = 1, local SGD is synchronous SGD; with η = 1 and μ = 0, DiLoCo is local SGD. In
both cases the two agree except for rounding, because the order of additions differs.
The updates x are those of SGD; Douillard takes AdamW. All ranks draw examples from one
distribution, so that the θ_i differ little. The lower loss of DiLoCo here may be due to
its longer steps: with a constant Δ an outer step approaches η/(1 - μ) Δ = 7 Δ.
Cost of H updates: a ring all-reduce of n params, 2(p - 1) messages and about
2(p - 1)/p n words a rank; local SGD adds a word to average the loss. Synchronous SGD
sends as many for every update.

    mpirun -n 4 python experiments/single/local_sgd.py
"""

import numpy as np
from mpi4py import MPI


def mean(comm, vector):
    """Return the mean over ranks, by a ring all-reduce of p chunks."""
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(vector * (1 / size), size)
    for i in range(size - 1):  # reduce-scatter: a rank ends with the sum of one chunk
        received = np.empty_like(chunks[(rank - i - 1) % size])
        comm.Sendrecv(chunks[(rank - i) % size], right, 0, received, left, 0)
        chunks[(rank - i - 1) % size] += received
    for i in range(size - 1):  # all-gather of the sums
        received = chunks[(rank - i) % size]
        comm.Sendrecv(chunks[(rank - i + 1) % size], right, 0, received, left, 0)
    return np.concatenate(chunks)


def gradient(params, x, y):
    """Return loss and gradient of a logistic regression."""
    margin = y * (x @ params)
    loss = np.mean(np.log1p(np.exp(-margin)))
    return loss, -(x.T @ (y / (1 + np.exp(margin)))) / len(y)


def local_updates(params, minibatches, rate):
    """Return the mean loss of H updates by SGD, and the params after them."""
    losses = []
    for x, y in minibatches:
        loss, grad = gradient(params, x, y)
        params = params - rate * grad
        losses.append(loss)
    return np.mean(losses), params


def local_sgd(comm, params, rounds, rate):
    """Return the mean loss of all ranks by round of H minibatches, and the params."""
    losses = []
    for minibatches in rounds:
        loss, local = local_updates(params, minibatches, rate)
        means = mean(comm, np.append(local, loss))
        params = means[:-1]
        losses.append(means[-1])
    return losses, params


def diloco(comm, params, rounds, rate, eta=0.7, mu=0.9):
    """Return the loss of this rank by round, and the params after outer steps."""
    losses, u = [], np.zeros_like(params)
    for minibatches in rounds:
        loss, local = local_updates(params, minibatches, rate)
        delta = mean(comm, params - local)
        u = mu * u + delta
        params = params - eta * (delta + mu * u)
        losses.append(loss)
    return losses, params


def examples(rank, updates, batch, dim):
    """Return the inputs and the labels, -1 or 1, of the minibatches of a rank."""
    rng = np.random.default_rng([0, rank])
    x = rng.standard_normal((updates, batch, dim))
    noise = 0.5 * rng.standard_normal((updates, batch))
    y = np.sign(x.sum(axis=-1) + noise)
    return x.astype(np.float32), y.astype(np.float32)


def in_rounds(x, y, every):
    """Return lists of H minibatches (x, y)."""
    minibatches = [*zip(x, y, strict=True)]
    return [minibatches[n : n + every] for n in range(0, len(x), every)]


def words(rank, size, length):
    """Return the words of a ring all-reduce: in two passes, all chunks but one."""
    chunks = [len(chunk) for chunk in np.array_split(range(length), size)]
    return 2 * length - chunks[(rank + 1) % size] - chunks[(rank + 2) % size]


def main(comm):
    rank, size = comm.Get_rank(), comm.Get_size()
    updates, batch, dim, rate = 64, 8, 20, 0.25
    shards = [examples(other, updates, batch, dim) for other in range(size)]
    x, y = (np.concatenate(parts, axis=1) for parts in zip(*shards, strict=True))
    start, results = np.zeros(dim, np.float32), []
    if rank == 0:
        print(f"{updates} updates; loss over the examples of all ranks")
    for name, algorithm, every, outer in [
        ("local SGD, H = 1", local_sgd, 1, ()),
        ("local SGD, H = 16", local_sgd, 16, ()),
        ("DiLoCo, H = 16, η = 1, μ = 0", diloco, 16, (1, 0)),
        ("DiLoCo, H = 16", diloco, 16, ()),
    ]:
        rounds = in_rounds(*shards[rank], every)
        losses, params = algorithm(comm, start, rounds, rate, *outer)
        results.append(params)
        loss, _ = gradient(params, x.reshape(-1, dim), y.reshape(-1))
        sent = len(rounds) * words(rank, size, dim + (algorithm is local_sgd))
        if rank == 0:
            print(f"{name}: loss {loss:.4f}, {sent} words sent by rank 0")
    _, one_process = local_updates(start, zip(x, y, strict=True), rate)
    synchronous, local, plain, _ = results
    apart = max(abs(synchronous - one_process).max(), abs(plain - local).max())
    if rank == 0:
        print("DiLoCo, loss of rank 0 by round:", *[f"{loss:.3f}" for loss in losses])
        print("H = 1 equals one process, and DiLoCo with η = 1, μ = 0 local SGD,")
        print(f"except for rounding: {apart < 1e-5}, difference at most {apart:.0e}")


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
