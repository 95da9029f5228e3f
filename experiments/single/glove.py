"""GloVe (Pennington 2014) on p processes: vectors v_i of T tokens from counts N_ij.

    L = ½ Σ w(N_ij) (⟨v_i, v_j⟩ + b_i + b_j - log N_ij)²,   w(N) = min((N/10)^¾, 1)

N_ij counts how often tokens i and j are near each other; (i, j, log N_ij, w(N_ij)) is a
record, and L sums over the B records of a minibatch. Here a token has one vector.

    data parallelism                         operation parallelism
      records │0│1│2│3│4│5│6│7│                columns │0│1│2│3│4│5│6│7│ of every vector
      a process has all vectors and            a process has D/p columns of all vectors
      biases, and B/p records of the           and all biases b, and all B records of
      minibatch: a term of the gradient        the minibatch: a term of each ⟨v_i, v_j⟩

      all-reduce of T(D+1) gradients           all-reduce of B products: every process
      0──1  2──3  4──5  6──7   round 0         has the error of each record and from it
      0─────2  1─────3  …      round 1         the gradient of its columns and of b
      0───────────4  1 …       round 2

AdaGrad (Duchi 2011): h ← h + (ηg)², v ← v - ηg/√h from h = 1; η = 1 for the biases.
The butterfly adds the terms of p ranks in pairs, 0 + 1, 2 + 3, …, then these sums: one
process that adds in this order has the same bits. Words (numbers) sent per rank and
step, lg = log₂: lg p · (T(D+1) + 1), with the loss, or lg p · B for any T and D.

    mpirun -n 8 python experiments/single/glove.py
"""

import numpy as np
from mpi4py import MPI

T, D, B, STEPS, ETA = 40, 16, 120, 100, np.float32(0.1)


def butterfly(comm, x):  # x becomes the sum over ranks
    received, step = np.empty_like(x), 1
    while step < comm.Get_size():
        partner = comm.Get_rank() ^ step
        comm.Sendrecv(x, partner, recvbuf=received, source=partner)
        x += received
        step *= 2
    return x


def in_pairs(terms):  # what the butterfly computes, on one process
    while len(terms) > 1:
        terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=True)]
    return terms[0]


def products(v, batch):  # a row is a vector and its bias
    i, j, _, _ = batch
    return (v[i, :-1] * v[j, :-1]).sum(axis=1)


def gradient(v, batch, total):  # of the summed loss; total: the products
    i, j, logs, weights = batch
    errors = total + v[i, -1] + v[j, -1] - logs
    slopes = (weights * errors)[:, None]
    g = np.zeros_like(v)
    np.add.at(g[:, :-1], i, slopes * v[j, :-1])
    np.add.at(g[:, :-1], j, slopes * v[i, :-1])
    np.add.at(g[:, -1], i, slopes[:, 0])
    np.add.at(g[:, -1], j, slopes[:, 0])
    return g, 0.5 * np.dot(slopes[:, 0], errors)


def adagrad(v, h, g):
    step = g * ETA
    step[:, -1] = g[:, -1]  # of the biases
    h += step * step
    v -= step / np.sqrt(h)


def data_parallel(ranks, size, add_up, v, batches):
    v, h, losses = v.copy(), np.ones_like(v), []
    for batch in batches:
        terms = []
        for rank in ranks:  # this rank, or all ranks on one process
            own = [np.array_split(field, size)[rank] for field in batch]
            g, loss = gradient(v, own, products(v, own))
            terms.append(np.append(g, np.float32(loss)))
        total = add_up(terms)
        adagrad(v, h, total[:-1].reshape(v.shape))
        losses.append(total[-1])
    return [v for _ in ranks], losses


def operation_parallel(ranks, size, add_up, v, batches):
    columns = np.array_split(np.arange(D), size)
    parts = [v[:, [*columns[rank], D]] for rank in ranks]  # and the biases
    squares, losses = [np.ones_like(part) for part in parts], []
    for batch in batches:
        total = add_up([products(part, batch) for part in parts])
        for part, h in zip(parts, squares, strict=True):
            g, loss = gradient(part, batch, total)
            adagrad(part, h, g)
        losses.append(loss)
    return parts, losses


def minibatches():  # log N_ij = 2 + products of hidden vectors of 4 columns
    draws = np.random.default_rng(0)
    hidden = draws.standard_normal((T, 4)) / 2
    i, j = np.triu_indices(T, 1)
    logs = np.float32((hidden[i] * hidden[j]).sum(axis=1) + 2)
    weights = np.minimum((np.exp(logs) / 10) ** np.float32(0.75), np.float32(1))
    for _ in range(STEPS):
        own = draws.choice(len(i), B, replace=False)
        yield i[own], j[own], logs[own], weights[own]


def main(comm):
    rank, p = comm.Get_rank(), comm.Get_size()
    if p & (p - 1) or p > D:
        refusal = f"expected 1, 2, 4, 8 or 16 ranks, got {p}; start 8"
        raise SystemExit(1 if rank else refusal)  # a line of rank 0
    draws, batches = np.random.default_rng(1), [*minibatches()]
    v = np.float32((draws.random((T, D + 1)) - 0.5) / D)

    def over_ranks(terms):  # one term, of this rank
        return butterfly(comm, *terms)

    for train, words in (data_parallel, T * (D + 1) + 1), (operation_parallel, B):
        (own,), losses = train([rank], p, over_ranks, v, batches)
        serial, _ = train(range(p), p, in_pairs, v, batches)
        if rank == 0:
            rounds = p.bit_length() - 1
            print(f"{train.__name__}: {words * rounds} words per rank and step")
            print("  loss L at every 20th step:", *np.round(losses[::20], 3))
            print("  equal bits to one process:", np.array_equal(own, serial[rank]))


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
