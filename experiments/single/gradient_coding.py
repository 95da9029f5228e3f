"""Gradient coding (Tandon 2017): an update does not wait for s stragglers.

    n = 4    worker 0   worker 1   worker 2   worker 3    on ranks 1 to 4
    s = 1    parts 0 1  parts 1 2  parts 2 3  parts 3 0   of a minibatch (code: random)
             └─ term ───┴─ term ───┘          late: ×
             rank 0: decodes the sum from any n-s = 3 terms; all ranks: the same update

Worker w sends the term Σ_k B[w, k] g_k of the gradients g_k of its parts. Rank 0
receives terms until numbers a exist with a·B = 1 1 … 1 for their rows of B, and sends
Σ_w a_w term_w to all workers. A worker that has this sum already sends no term; "late
terms" have been sent, but not used.

    uncoded        n parts, one for each worker; rank 0 waits for all terms
    repetition     n/(s+1) parts, each computed by s+1 workers: one term of each part
                   suffices, a = 1, and the sum has the same bits for any late rank
    random         n parts; a worker computes s+1, with random coefficients such that
                   any n-s rows span 1 1 … 1; the sum rounds (Tandon, algorithm 2)

A code makes a worker compute s+1 times as much. Words per update of d parameters: at
most n(d+2) to rank 0, with the loss and the update's number t, and n(d+1) from it.

    mpirun -n 5 python experiments/single/gradient_coding.py
"""

import time
from functools import partial

import numpy as np
from mpi4py import MPI

D, BATCH, STEPS, RATE, SLEEP = 20, 48, 25, np.float32(0.25), 0.02


def repetition(n, s):
    return np.tile(np.eye(n // (s + 1)), (s + 1, 1))


def random(n, s):
    H = np.random.default_rng(0).standard_normal((s, n))
    H[:, -1] = -H[:, :-1].sum(axis=1)  # H·1 = 0: the row of ones is in the null space
    B = np.zeros((n, n))
    for worker in range(n):
        first, *others = (worker + np.arange(s + 1)) % n
        B[worker, first] = 1
        B[worker, others] = np.linalg.solve(H[:, others], -H[:, first])  # H·B[w] = 0
    return B


def encode(B, worker, gradient):
    (parts,) = np.nonzero(B[worker])
    return np.float32(sum(B[worker, part] * gradient(part) for part in parts))


def weights(B, workers):  # a
    return np.linalg.lstsq(B[workers].T, np.ones(B.shape[1]), rcond=None)[0]


def suffices(B, workers):  # whether a·B = 1 1 … 1 has a solution
    return bool(workers) and np.allclose(weights(B, workers) @ B[workers], 1)


def decode(B, terms):
    workers = sorted(terms)
    if (np.count_nonzero(B, axis=1) == 1).all():  # a term is g_k: add in order of k
        first = [next(w for w in workers if B[w, part]) for part in range(B.shape[1])]
        return sum(terms[w] for w in first)
    rows = np.float64([terms[w] for w in workers])
    return np.float32(weights(B, workers) @ rows)


def master(comm, B, w, steps):  # rank 0; a message is [t, *term]
    message, status = np.empty(2 + len(w), np.float32), MPI.Status()
    sends, losses, unused = [], [], 0
    for t in range(steps):
        terms = {}
        while not suffices(B, sorted(terms)):
            comm.Recv(message, status=status)
            if message[0] == t:
                terms[status.Get_source() - 1] = message[1:].copy()
            unused += message[0] < t  # a term of an earlier update
        total = decode(B, terms)
        sends += [comm.Isend(total, 1 + worker) for worker in range(len(B))]
        w -= RATE * total[:-1]
        losses.append(total[-1])
    for worker in range(len(B)):  # terms that are still in transit
        message[0] = steps
        while message[0] >= 0:  # the last message is [-1]
            comm.Recv(message, 1 + worker)
            unused += message[0] >= 0
    for send in sends:
        send.Wait()
    return losses, unused


def work(comm, B, w, gradient, steps, delay):
    worker, total = comm.Get_rank() - 1, np.empty(len(w) + 1, np.float32)
    for t in range(steps):
        late = comm.Iprobe(0)  # the sum has arrived before the term is computed
        arriving = comm.Irecv(total, 0)
        if not late:
            term = encode(B, worker, partial(gradient, w, t))
            delay(t)
            if not arriving.Test():  # else the term is late, and not sent
                comm.Send(np.append(np.float32(t), term), 0)
        arriving.Wait()
        w -= RATE * total[:-1]
    comm.Send(np.float32([-1]), 0)


def gradient(parts, w, t, part):  # a part's term of the mean gradient and loss
    inputs = np.float32(np.random.default_rng(t).standard_normal((BATCH, D)))
    own = np.array_split(inputs, parts)[part]
    errors = own @ (w - 1)
    g, loss = own.T @ errors / np.float32(len(own)), 0.5 * np.mean(errors**2)
    return np.append(g, loss) * np.float32(len(own) / BATCH)


def main(comm):
    rank, n = comm.Get_rank(), comm.Get_size() - 1
    if not 1 <= n <= BATCH:  # a part has at least one example
        refusal = f"expected 2 to {BATCH + 1} ranks, got {n + 1}; start 5"
        raise SystemExit(1 if rank else refusal)
    s = next((s for s in range(1, n) if n % (s + 1) == 0), 0)  # least that divides

    def delay(t):  # another worker is slow at every update
        time.sleep(SLEEP * (t % n == rank - 1))

    if rank == 0:
        print(f"{n} workers, s = {s}, {STEPS} updates with a straggler of {SLEEP} s")
        print("code        seconds  late terms  loss     equal to one process (apart)")
    codes = {"uncoded": repetition(n, 0), "repetition": repetition(n, s)}
    for name, B in (codes | {"random": random(n, s)}).items():
        parts, w = B.shape[1], np.zeros(D, np.float32)
        own, start = comm.Dup(), time.perf_counter()
        if rank > 0:
            work(own, B, w, partial(gradient, parts), STEPS, delay)
        else:
            losses, unused = master(own, B, w, STEPS)
            seconds, serial = time.perf_counter() - start, np.zeros(D, np.float32)
            for t in range(STEPS):
                total = sum(gradient(parts, serial, t, k) for k in range(parts))
                serial -= RATE * total[:-1]
            difference = np.abs(w - serial).max()
            numbers = f"{seconds:9.2f}{unused:12}  {losses[-1]:.1e}"
            print(f"{name:10}{numbers}  {difference == 0} ({difference:.0e})")
        own.Free()


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
