"""All-reduce in five ways: every rank ends with the sum of the vectors of all ranks.

    star, back   tree, and back           butterfly             ring, twice around
    1  2  3      0◄─1  2◄─3  4◄─5  6◄─7   0──1  2──3  4──5 …    ┌─► 0 ──► 1 ─┐
     ╲ │ ╱       0◄────2     4◄────6      0─────2  1─────3 …    │            ▼
      [0]        0◄──────────4            0───────────4  1 …    └── 3 ◄── 2 ◄┘

    hierarchical    [0  1] [2  3]    reduce-scatter in a group: chunk l on its rank l,
                     ╰──┼───╯  │     rings of the l-th ranks of all groups,
                        ╰──────╯     all-gather in a group

For n words, p ranks, g in a group, lg = log₂: rounds, words sent by rank 0, by all

    star            2(p-1)              (p-1)n        2(p-1)n
    tree            2⌈lg p⌉             ⌈lg p⌉n       2(p-1)n
    butterfly       lg p, if p = 2^k    n lg p        p n lg p  small n (Thakur 2005)
    ring            2(p-1)              2(p-1)n/p     2(p-1)n   large n (Patarasuk 2009)
    hierarchical    2(g-1) + 2(p/g-1)   2(p-1)n/p     2(p-1)n   many hosts (Mikami 2018)

    mpirun -n 4 python experiments/single/allreduce.py
"""

import numpy as np
from mpi4py import MPI


def star(comm, x):
    rank, size, received = comm.Get_rank(), comm.Get_size(), np.empty_like(x)
    if rank > 0:
        comm.Send(x, 0)
        comm.Recv(x, 0)
        return
    for worker in range(1, size):
        comm.Recv(received, worker)
        x += received  # in rank order, as one process adds
    for worker in range(1, size):
        comm.Send(x, worker)


def tree(comm, x):
    rank, size, received = comm.Get_rank(), comm.Get_size(), np.empty_like(x)
    step = 1
    while step < size and (rank & step) == 0:  # up: add the sums of the children
        if rank + step < size:
            comm.Recv(received, rank + step)
            x += received
        step *= 2
    if rank > 0:  # step is the lowest 1 bit of the rank; parent: rank - step
        comm.Send(x, rank - step)
        comm.Recv(x, rank - step)
    while step > 1:  # down: the same edges in reverse order
        step //= 2
        if rank + step < size:
            comm.Send(x, rank + step)


def butterfly(comm, x):
    rank, size, received = comm.Get_rank(), comm.Get_size(), np.empty_like(x)
    power = 1 << (size.bit_length() - 1)  # largest power of two up to p
    pairs = size - power  # of ranks of which the even one acts for both
    if rank < 2 * pairs and rank % 2:
        comm.Send(x, rank - 1)
        comm.Recv(x, rank - 1)
        return
    if rank < 2 * pairs:
        comm.Recv(received, rank + 1)
        x += received
    place = rank // 2 if rank < 2 * pairs else rank - pairs  # among those that act
    for k in range(power.bit_length() - 1):  # x is the sum of 2^k places
        other = place ^ (1 << k)
        partner = 2 * other if other < pairs else other + pairs
        comm.Sendrecv(x, partner, recvbuf=received, source=partner)
        x += received
    if rank < 2 * pairs:
        comm.Send(x, rank + 1)


def reduce_scatter(comm, chunks):  # at the end rank r has the sum of chunk r+1
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    for i in range(size - 1):
        outgoing, sums = chunks[(rank - i) % size], chunks[(rank - i - 1) % size]
        received = np.empty_like(sums)
        comm.Sendrecv(outgoing, right, recvbuf=received, source=left)
        sums += received


def all_gather(comm, chunks):  # starts from chunk r+1 on rank r
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    for i in range(size - 1):
        outgoing, incoming = chunks[(rank + 1 - i) % size], chunks[(rank - i) % size]
        comm.Sendrecv(outgoing, right, recvbuf=incoming, source=left)


def ring(comm, x):
    chunks = np.array_split(x, comm.Get_size())
    reduce_scatter(comm, chunks)
    all_gather(comm, chunks)


def hierarchical(comm, x, group=None):
    rank, size = comm.Get_rank(), comm.Get_size()
    group = group or next((g for g in range(2, size) if size % g == 0), size)
    inside = comm.Split(rank // group, rank)  # g = group divides p
    across = comm.Split(rank % group, rank)  # the l-th ranks of all groups
    chunks = np.array_split(x, group)
    chunks = chunks[-1:] + chunks[:-1]  # moved by one: chunk l of x on rank l
    reduce_scatter(inside, chunks)
    ring(across, chunks[(rank % group + 1) % group])
    all_gather(inside, chunks)
    inside.Free()
    across.Free()


def gradient(rank, w):  # of a rank's examples of linear regression, and the loss
    inputs = np.random.default_rng(rank).standard_normal((8, len(w)))
    errors = inputs @ (w - 1)
    return np.append(inputs.T @ errors / 8, 0.5 * np.mean(errors**2))


def train(comm, n, allreduce=None):  # None: one process computes all gradients
    rank, size = comm.Get_rank(), comm.Get_size()
    w, losses = np.zeros(n - 1), []
    for _ in range(30):
        total = sum(gradient(r, w) for r in ([rank] if allreduce else range(size)))
        if allreduce:
            allreduce(comm, total)
        w -= 0.3 / size * total[:-1]
        losses.append(total[-1] / size)
    return w, losses


def main(comm):
    p = comm.Get_size()
    n, lg = 4 * p, (p - 1).bit_length()
    serial, losses = train(comm, n)
    words = {star: (p - 1) * n, tree: lg * n, butterfly: lg * n}
    words |= {ring: 2 * (p - 1) * n // p, hierarchical: 2 * (p - 1) * n // p}
    results = [(f.__name__, words[f], train(comm, n, f)[0]) for f in words]
    if comm.Get_rank() == 0:
        print(f"{p} ranks, {n} words, loss every 5 steps:", *np.round(losses[::5], 3))
        print("           words of rank 0 in a step  equal bits to one process (apart)")
        for name, sent, w in results:
            difference = np.abs(w - serial).max()
            print(f"{name:15}{sent:21}  {difference == 0} ({difference:.0e})")


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
