"""Gossip on a ring: each rank averages with its two neighbours, never with all ranks.

    ┌─► 0 ◄──► 1 ◄──► 2 ◄──► 3 ◄─┐            0   1   2   3
    └────────────────────────────┘       0   1/3 1/3  .  1/3
                                         1   1/3 1/3 1/3  .      W: rows and columns
    x_i ← Σ_j w_ij x_j                   2    .  1/3 1/3 1/3     sum to 1, so that the
                                         3   1/3  .  1/3 1/3     mean never changes

    D-PSGD (Lian 2017)   x_i ← Σ_j w_ij (x_j - γ ∇f_j(x_j))     an update, then a mean

Ranks 0 and 3 are neighbours. A round multiplies the distance √Σ_i |x_i - mean|² by at
most |λ₂|, the second largest absolute value of an eigenvalue of W. Here λ₂ = 1/3 +
2/3 cos(2π/p): |λ₂| is small on small rings and near 1 on large ones.
Cost of a round: a rank sends 2 messages of n words each, for any number of ranks p > 1.
Below, f_j is the loss of the examples of rank j; each f_j has another minimum, so that
neither the loss of the mean nor the distance to the mean tends to 0.

    mpirun -n 4 python experiments/single/gossip.py
"""

import numpy as np
from mpi4py import MPI


def mix(comm, x, weight=1 / 3):
    """Return the weighted mean of the vectors of this rank and its two neighbours."""
    rank, size = comm.Get_rank(), comm.Get_size()
    if size == 1:
        return x
    right, left = (rank + 1) % size, (rank - 1) % size
    x_left, x_right = np.empty_like(x), np.empty_like(x)
    comm.Sendrecv(x, right, 0, x_left, left, 0)
    comm.Sendrecv(x, left, 0, x_right, right, 0)
    return (1 - weight - weight) * x + weight * x_left + weight * x_right


def d_psgd(comm, x, minibatches, gamma):
    """Return the vector of this rank after each update and round of mixing."""
    path = [x]
    for inputs, outputs in minibatches:
        _, grad = gradient(x, inputs, outputs)
        x = mix(comm, x - gamma * grad)
        path.append(x)
    return np.array(path)


def gradient(x, inputs, outputs):
    """Return loss and gradient of a linear regression."""
    error = inputs @ x - outputs
    return np.mean(error**2) / 2, inputs.T @ error / len(error)


def examples(rank, updates, batch, dim):
    """Return the minibatches of a rank, whose examples have a solution of their own."""
    rng = np.random.default_rng([0, rank])
    solution = 1 + rng.standard_normal(dim)
    inputs = rng.standard_normal((updates, batch, dim)).astype(np.float32)
    return [(each, (each @ solution).astype(np.float32)) for each in inputs]


def ring_matrix(size, weight=1 / 3):
    """Return W."""
    w = (1 - 2 * weight) * np.eye(size)
    for i in range(size):
        w[i, (i + 1) % size] += weight
        w[i, (i - 1) % size] += weight
    return w


def distances(comm, path):
    """Return the mean over ranks, and their distance to it, by round, to print."""
    mean = path / comm.Get_size()
    comm.Allreduce(MPI.IN_PLACE, mean, MPI.SUM)
    squares = np.sum((path - mean) ** 2, axis=1, dtype=float)
    comm.Allreduce(MPI.IN_PLACE, squares, MPI.SUM)
    return mean, np.sqrt(squares)


def main(comm):
    rank, size = comm.Get_rank(), comm.Get_size()
    rounds, updates, batch, dim, gamma = 6, 30, 8, 20, 0.125
    start, x = np.zeros(dim, np.float32), np.random.default_rng(rank).random(dim)
    path = [x] + [x := mix(comm, x) for _ in range(rounds)]
    _, averaged = distances(comm, np.array(path))

    shards = [examples(each, updates, batch, dim) for each in range(size)]
    path = d_psgd(comm, start, shards[rank], gamma)
    mean, distance = distances(comm, path)

    # one process, in float64: the rows of X are the x_i, and X ← W (X - γ ∇f)
    w, rows = ring_matrix(size), np.zeros((size, dim))
    for minibatches in zip(*shards, strict=True):
        steps = [gradient(x, *own)[1] for x, own in zip(rows, minibatches, strict=True)]
        rows = w @ (rows - gamma * np.array(steps))
    apart = np.array(abs(path[-1] - rows[rank]).max(), float)
    comm.Allreduce(MPI.IN_PLACE, apart, MPI.MAX)

    everything = [np.concatenate(each) for each in zip(*sum(shards, []), strict=True)]
    losses = [gradient(x, *everything)[0] for x in mean]
    if rank == 0:
        second = abs(1 / 3 + 2 / 3 * np.cos(2 * np.pi / size)) if size > 1 else 0
        for text, values in [
            (f"averaging: distance by round, |λ₂| = {second:.3f}", averaged),
            ("D-PSGD: loss of the mean by 5 rounds", losses[::5]),
            ("D-PSGD: distance by 5 rounds", distance[::5]),
        ]:
            print(f"{text}:", " ".join(f"{value:.4f}" for value in values))
        print(f"words sent by a rank in a round: {2 * dim * (size > 1)}")
        print(f"equal to one process except for rounding: {apart < 1e-5} ({apart:.0e})")


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
