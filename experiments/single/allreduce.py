"""All-reduce in five ways: every rank ends with the sum of the vectors of all ranks.

    star, back   tree, and back           butterfly             ring, twice around
    1  2  3      0◄─1  2◄─3  4◄─5  6◄─7   0──1  2──3  4──5 …    ┌─► 0 ──► 1 ─┐
     ╲ │ ╱       0◄────2     4◄────6      0─────2  1─────3 …    │            ▼
      [0]        0◄──────────4            0───────────4  1 …    └── 3 ◄── 2 ◄┘

    hierarchical    [0  1] [2  3]    a ring inside each group sums chunk l on rank l,
                     ╰──┼───╯  │     rings of the l-th ranks of all groups sum over the
                        ╰──────╯     groups, and the ring inside gathers the chunks

Cost for n words on p ranks, g in a group: rounds, words of rank 0, words of all ranks

    star            2(p-1)              (p-1)n        2(p-1)n
    tree            2⌈lg p⌉             ⌈lg p⌉n       2(p-1)n
    butterfly       lg p, p = 2^k       n lg p        p n lg p
    ring            2(p-1)              2(p-1)n/p     2(p-1)n
    hierarchical    2(g-1) + 2(p/g-1)   2(p-1)n/p     2(p-1)n

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
    while step < size and not rank & step:  # up: add the sums of the children
        if rank + step < size:
            comm.Recv(received, rank + step)
            x += received
        step *= 2
    if rank > 0:  # step is the lowest bit of the rank
        comm.Send(x, rank - step)
        comm.Recv(x, rank - step)
    while step > 1:  # down: the same edges in reverse order
        step //= 2
        if rank + step < size:
            comm.Send(x, rank + step)


def butterfly(comm, x):
    rank, size, received = comm.Get_rank(), comm.Get_size(), np.empty_like(x)
    power = 1 << (size.bit_length() - 1)  # largest power of two up to p
    pairs = size - power  # fold: the first 2·pairs ranks act as `pairs` ranks
    if rank < 2 * pairs and rank % 2:
        comm.Send(x, rank - 1)
        comm.Recv(x, rank - 1)
        return
    if rank < 2 * pairs:
        comm.Recv(received, rank + 1)
        x += received
    place = rank // 2 if rank < 2 * pairs else rank - pairs
    for k in range(power.bit_length() - 1):  # now every rank has a sum of 2^k ranks
        other = place ^ (1 << k)
        partner = 2 * other if other < pairs else other + pairs
        comm.Sendrecv(x, partner, recvbuf=received, source=partner)
        x += received
    if rank < 2 * pairs:
        comm.Send(x, rank + 1)


def reduce_scatter(comm, chunks):  # chunk r+1 is complete on rank r
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    for i in range(size - 1):
        outgoing, sums = chunks[(rank - i) % size], chunks[(rank - i - 1) % size]
        received = np.empty_like(sums)
        comm.Sendrecv(outgoing, right, recvbuf=received, source=left)
        sums += received


def all_gather(comm, chunks):
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
    inside = comm.Split(rank // group, rank)  # ranks of one host; group divides p
    across = comm.Split(rank % group, rank)  # the l-th ranks of all hosts
    chunks = np.array_split(x, group)
    chunks = chunks[-1:] + chunks[:-1]  # so that chunk l is complete on rank l
    reduce_scatter(inside, chunks)
    ring(across, chunks[(rank % group + 1) % group])
    all_gather(inside, chunks)
    inside.Free()
    across.Free()


def gradient(rank, w):  # on the examples of a rank; the last word is the loss
    inputs = np.random.default_rng(rank).standard_normal((8, len(w)))
    errors = inputs @ (w - 1)
    return np.append(inputs.T @ errors / 8, 0.5 * np.mean(errors**2))


def train(comm, n, allreduce=None):
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
    words |= {ring: 2 * (p - 1) * 4, hierarchical: 2 * (p - 1) * 4}
    results = [(f.__name__, words[f], train(comm, n, f)[0]) for f in words]
    if comm.Get_rank() == 0:
        print(f"{p} ranks, {n} words, loss by step:", *np.round(losses[::5], 3))
        print("               words of rank 0 in a step   equal bits to one process")
        for name, sent, w in results:
            difference = np.abs(w - serial).max()
            print(f"{name:15}{sent:7}{'':21}{difference == 0} ({difference:.0e})")


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
