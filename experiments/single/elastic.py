"""Elastic training: ranks leave, and the others continue with the same bits.

    steps     0 … 9              10 … 24     25 …       V = 12 virtual shards
    rank 0    shards 0 1 2       0 1 2 3     0 … 5      of every minibatch
    rank 1    shards 3 4 5       4 5 6 7     6 … 11
    rank 2    shards 6 7 8       8 … 11      left
    rank 3    shards 9 10 11     left

The bits of a sum of floats depend on the order of additions, and so on the number of
ranks. Sums of integers do not. A rank computes the gradient g_v of each of its shards,
a term of the gradient of the minibatch:

    e, all |g_v| < 2^e                    all-reduce of the maximum, one byte
    i = Σ_v round(g_v · 2^(24-e))         all-reduce of d integers, without rounding
    sum = i · 2^(e-24)                    the same bits for any division of the shards

Each g_v is rounded before the sum, so that the ranks of the shards do not matter
(reproducible sums, Demmel 2013).
Before every step the ranks vote. If a rank leaves, the others split off a communicator
and divide the shards anew. All ranks have the parameters, so nothing else is sent.
Words sent per rank and step: 2(p-1)/p · d, besides the vote and the byte.
Ranks that die without notice need MPI with ULFM (Bland 2013).

    mpirun -n 4 python experiments/single/elastic.py
"""

import numpy as np
from mpi4py import MPI

V, D, BATCH, STEPS, RATE = 12, 20, 48, 40, np.float32(0.25)
BITS = 24  # of a rounded gradient: the sum of V = 12 fits into 31 bits


def ring(comm, x, op):  # all-reduce of x in place by op
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left, chunks = (rank + 1) % size, (rank - 1) % size, np.array_split(x, size)
    for i in range(size - 1):
        outgoing, result = chunks[(rank - i) % size], chunks[(rank - i - 1) % size]
        received = np.empty_like(result)
        comm.Sendrecv(outgoing, right, recvbuf=received, source=left)
        op(result, received, out=result)
    for i in range(size - 1):
        outgoing, incoming = chunks[(rank + 1 - i) % size], chunks[(rank - i) % size]
        comm.Sendrecv(outgoing, right, recvbuf=incoming, source=left)


def order_free_sum(comm, terms):
    exponent = np.uint8([np.abs(terms).max().view(np.int32) >> 23])  # e + 126
    ring(comm, exponent, np.maximum)
    e = max(30, int(exponent[0])) - 126  # 30: 2^(24-e) is finite if all terms are 0
    scale = np.float32(2.0) ** (BITS - e)
    integers = np.rint(terms * scale).astype(np.int32).sum(axis=0, dtype=np.int32)
    ring(comm, integers, np.add)
    return np.float32(integers) / scale


def gradient(w, step, shard):  # g_v of linear regression with parameters 1
    inputs = np.float32(np.random.default_rng(step).standard_normal((BATCH, D)))
    own = np.array_split(inputs, V)[shard]
    mean = own.T @ (own @ (w - 1)) / np.float32(len(own))
    return mean * np.float32(len(own) / BATCH)


def train(comm, leaves, steps=STEPS):
    """Return the parameters, and the number of ranks by step.

    The rank `me` of comm leaves before a step if leaves(me, step).
    """
    w, ranks, me = np.zeros(D, np.float32), [], comm.Get_rank()
    for step in range(steps):
        # vote: does a rank leave?
        leaving = np.array([leaves(me, step)], np.int32)
        anyone = leaving.copy()
        comm.Allreduce(MPI.IN_PLACE, anyone, MPI.MAX)
        if anyone[0]:
            comm = comm.Split(int(leaving[0]), me)  # of those that stay, or that leave
        if leaving[0]:
            return w, ranks
        # the shards of this rank, and the same update on all ranks
        own = np.array_split(np.arange(V), comm.Get_size())[comm.Get_rank()]
        terms = [gradient(w, step, shard) for shard in own]
        w -= RATE * order_free_sum(comm, np.array(terms))
        ranks.append(comm.Get_size())
    return w, ranks


def main(comm):
    rank, p = comm.Get_rank(), comm.Get_size()
    if p > V:
        refusal = f"expected at most {V} ranks, got {p}; start fewer"
        raise SystemExit(1 if rank else refusal)  # a line of rank 0
    times = {p - 1: 10, p - 2: 25}  # at which ranks leave; rank 0 stays
    w, ranks = train(comm, lambda me, step: me > 0 and times.get(me) == step)
    undisturbed, _ = train(comm, lambda me, step: False)
    one = comm.Split(rank, 0)  # a communicator of this rank alone
    alone, _ = train(one, lambda me, step: False)
    one.Free()
    if rank == 0:
        for n in sorted(set(ranks), reverse=True):
            chunks = np.array_split(np.arange(D), n)
            words = 2 * D - len(chunks[1 % n]) - len(chunks[2 % n])
            print(f"{n} ranks: {ranks.count(n)} steps, {words} words of rank 0 in each")
        print(f"mean of (w - 1)² at the end: {np.mean((w - 1) ** 2):.1e}")
        print("equal bits if no rank leaves:", np.array_equal(w, undisturbed))
        print("equal bits to one process:", np.array_equal(w, alone))


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
