"""HOGWILD! (Niu 2011): workers change weights w in shared memory, example by example.

    lock-free     worker 0   read w, gradient, change w   read w, gradient, change w
                  worker 1       read w, gradient, change w   …     no worker waits
    locked        worker 0   │read, gradient, change│                      │read, …
                  worker 1                          │read, gradient, change│
    round robin   worker 0   read, gradient │change│      read, gradient     │change│
                  worker 1   read, gradient        │change│      read, gradient      …
    CYCLADES      example    e0 ── e2    e1    e3 ── e4 ── e5     ──: common features
    (Pan 2016)    worker     1     1     1     0     0     0      then a barrier

A support vector machine: feature r has the weight w_r; an example of margin y⟨x, w⟩ < 1
changes the weights of its three features, w_r ← w_r + η y x_r. A lock-free change that
another worker overwrites is lost: few are, because few examples have common features
(here 3 % of pairs). In round robin none is lost, but the w of a gradient lacks the last
changes of other workers. CYCLADES gives connected examples of a block to one worker:
the result equals one process bit for bit. No messages: the weights are shared memory.

    mpirun -n 4 python experiments/single/hogwild.py
"""

import os
from types import SimpleNamespace

import numpy as np
from mpi4py import MPI

WEIGHTS, EXAMPLES, BLOCK, EPOCHS, RATE = 300, 400, 40, 3, 0.125

allocate_shared = MPI.Win.Allocate_shared  # memory of all ranks of a host


def share(comm):
    window = allocate_shared(8 * (2 + 2 * WEIGHTS), 8, comm=comm)
    window.Lock_all()  # allows access to the memory of all ranks; excludes no rank
    words = np.frombuffer(window.Shared_query(0)[0], np.int64)  # those of rank 0
    words[:] = 0
    w, hits = words[2:].reshape(2, WEIGHTS)  # weights, each with a count of changes

    def next_ticket():  # add 1 to word 0, and return its value before
        ticket = np.empty(1, np.int64)
        window.Fetch_and_op(np.ones(1, np.int64), ticket, 0)
        window.Flush(0)  # the ticket has arrived
        return ticket[0]

    def pause():  # let other processes run, and see their changes
        os.sched_yield()
        window.Sync()

    memory = SimpleNamespace(w=w.view(float), hits=hits, turn=words[1:2], window=window)
    memory.next_ticket, memory.pause = next_ticket, pause
    return memory


def step(memory, example):  # features of an example, and the changes of their weights
    features, x, y = example
    return features, RATE * y * x * (y * (x * memory.w[features]).sum() < 1)


def change(memory, features, delta):
    memory.w[features] += delta  # a read, an addition and a write: not atomic
    memory.hits[features] += 1


def lock_free(memory, t, example):
    features, delta = step(memory, example)
    memory.pause()  # other workers change w meanwhile
    change(memory, features, delta)


def locked(memory, t, example):  # in the order of tickets
    ticket = memory.next_ticket()
    while memory.turn[0] != ticket:
        memory.pause()
    change(memory, *step(memory, example))
    memory.turn[0] = ticket + 1


def round_robin(memory, t, example):  # in the order of visits, of which this is t
    features, delta = step(memory, example)
    while memory.turn[0] != t:
        memory.pause()
    change(memory, features, delta)
    memory.turn[0] = t + 1


def components(visits, block, workers):
    """Return the visits of each worker: components connected by common features."""
    groups = []  # pairs: the visits of a component, and their features
    for t in block:
        group, features, apart = [t], set(visits[t][0]), []
        for others, theirs in groups:
            if features.isdisjoint(theirs):
                apart.append((others, theirs))
            else:
                group += others
                features |= theirs
        groups = [*apart, (group, features)]
    shares = [[] for _ in range(workers)]
    for group in sorted((group for group, _ in groups), key=len, reverse=True):
        min(shares, key=len).extend(group)  # to the worker with the fewest examples
    return [sorted(own) for own in shares]


POLICIES = {"lock-free": lock_free, "locked": locked}
POLICIES |= {"round robin": round_robin, "CYCLADES": lock_free}


def train(comm, policy, visits):  # visits: examples in the order of one process
    memory, rank, p = share(comm), comm.Get_rank(), comm.Get_size()
    comm.Barrier()
    for first in range(0, len(visits), BLOCK):
        block = range(first, min(first + BLOCK, len(visits)))
        own = block[rank::p]
        if policy == "CYCLADES":
            comm.Barrier()  # the previous block is complete
            own = components(visits, block, p)[rank]
        for t in own:
            POLICIES[policy](memory, t, visits[t])
    comm.Barrier()
    w, hits = memory.w.copy(), memory.hits.copy()
    memory.window.Unlock_all()
    memory.window.Free()
    return w, hits


def draw_example(number):
    draws = np.random.default_rng(number)
    features, x = draws.choice(WEIGHTS, 3, replace=False), draws.standard_normal(3)
    return features, x, np.sign(x @ np.cos(features))


def main(comm):
    visits, p = [*map(draw_example, range(EXAMPLES))] * EPOCHS, comm.Get_size()
    serial = SimpleNamespace(w=np.zeros(WEIGHTS), hits=np.zeros(WEIGHTS))
    for example in visits:
        change(serial, *step(serial, example))
    if comm.Get_rank() == 0:
        print(f"{p} workers, {EPOCHS} epochs of {EXAMPLES} examples, no words sent")
        print("policy        hinge loss   changes lost   equal bits to one process")
    for policy in POLICIES:
        w, hits = train(comm, policy, visits)
        if comm.Get_rank() == 0:
            loss = np.mean([max(0, 1 - y * x @ w[f]) for f, x, y in visits])
            lost, equal = int((serial.hits - hits).sum()), np.array_equal(w, serial.w)
            print(f"{policy:12}{loss:12.4f}{lost:15}   {equal}")


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
