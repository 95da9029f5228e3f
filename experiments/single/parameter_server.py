"""Parameter server: rank 0 keeps the parameters x, workers send it gradients.

    worker at clock c                  server
      │ ── read ───────────────────────► │  waits until the rule allows it
      │ ◄─ x, version ────────────────── │
      │ ── gradient, version of its x ─► │  stores it, or updates x: version + 1

               a worker at clock c reads x                the server updates x with
    bsp        when all gradients of clocks < c arrived   the mean of a clock
    async      at every clock, at once                    each gradient
    ssp        when its copy lacks a clock < c - s        each gradient
    essp       as ssp; the server sends x at every clock  each gradient
    softsync   at every clock, at once                    the mean of ⌊λ/n⌋ gradients

λ workers, n divides λ. τ, the staleness of a gradient: updates after the version of its
x; softsync uses the rate α₀/τ. Words per clock and worker: N for a gradient, and N for
x if it is read. Printed: how many clocks a worker was ahead, how often x was sent.

    mpirun -n 4 python experiments/single/parameter_server.py
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from mpi4py import MPI

N, STEPS, RATE = 20, 30, np.float32(0.2)
READ, GRADIENT, END = 1, 2, np.float32([-1])  # two tags, and the last message


class Rule(NamedTuple):
    s: float = np.inf  # clocks that a worker may be ahead of the slowest one
    count: int = 1  # gradients in an update
    mean: bool = False  # whether an update is their mean, not their sum
    eager: bool = False  # whether the server sends x after every clock
    scaled: bool = False  # whether α = α₀/τ


def rules(workers, s=2, n=1):
    return {
        "bsp": Rule(s=0, count=workers, mean=True),
        "async": Rule(),
        "ssp": Rule(s=s),
        "essp": Rule(s=s, eager=True),
        "softsync": Rule(count=workers // n, mean=True, scaled=True),
    }


def serve(comm, rule, x, steps):
    clocks = dict.fromkeys(range(1, comm.Get_size()), 0)  # ended by each worker
    pending, waiting, sends, staleness = [], {}, [], []
    version = slowest = ahead = 0
    message, status = np.empty(1 + len(x), np.float32), MPI.Status()
    while slowest < steps:
        comm.Recv(message, status=status)
        worker, receivers = status.Get_source(), []
        if status.Get_tag() == READ:
            waiting[worker] = message[0]
        else:
            # update x when there are enough gradients
            staleness.append(version - message[0])
            pending.append((worker, staleness[-1], message[1:].copy()))
            if len(pending) == rule.count:
                if rule.s == 0:
                    pending.sort()  # by worker, so that arrival does not change bits
                total = np.zeros_like(x)
                for _, tau, gradient in pending:
                    total += gradient / np.float32(max(1, tau) if rule.scaled else 1)
                share = len(pending) / len(clocks) if rule.mean else 1
                x -= RATE * (total / np.float32(share))
                pending, version = [], version + 1
            clocks[worker] += 1
            ahead = max(ahead, clocks[worker] - min(clocks.values()))
            if rule.eager and min(clocks.values()) > slowest:
                receivers = [w for w in clocks if clocks[w] - (w == worker) < steps]
        slowest = min(clocks.values())  # answer the reads that the rule allows
        receivers += sorted(w for w in waiting if waiting[w] <= slowest)
        for w in receivers:
            waiting.pop(w, None)
            head = np.float32([slowest, version, clocks[w]])
            sends.append(comm.Isend(np.append(head, x), w))
        if rule.eager and clocks[worker] == steps:
            comm.Send(END, worker)
    for send in sends:
        send.Wait()
    return version, staleness, ahead, len(sends)


def receive(comm, x, own):
    message = np.empty(3 + len(x), np.float32)
    comm.Recv(message, 0)
    complete, version, applied = message[:3]
    if complete >= 0:
        x[:] = message[3:]
        for step in own[int(applied) :]:  # own steps that the server had not applied
            x += step
    return complete, version


def work(comm, rule, x, gradient, steps):
    complete, version, own = -np.inf, 0, []
    keeps_copy = 0 < rule.s < np.inf
    for clock in range(steps):
        need = max(-1, clock - rule.s)  # number of clocks that x must include
        while rule.eager and (comm.Iprobe(0) or 0 <= complete < need):
            complete, version = receive(comm, x, own)
        if not keeps_copy or complete < (0 if rule.eager else need):
            comm.Send(np.float32([need]), 0, READ)
            complete, version = receive(comm, x, own)
        g = gradient(x, clock)
        comm.Send(np.append(version, g), 0, GRADIENT)
        if keeps_copy:
            before = x.copy()
            x -= RATE * g
            own.append(x - before)
    while rule.eager and complete >= 0:
        complete, version = receive(comm, x, own)


def gradient(rank, size, x, clock):  # of 8 examples, times 1/λ
    inputs = np.random.default_rng([rank, clock]).standard_normal((8, N))
    return np.float32(inputs.T @ (inputs @ (x - 1)) / 8 / (size - 1))


def main(comm):
    rank, size = comm.Get_rank(), comm.Get_size()
    if size < 2:
        raise SystemExit("expected 2 ranks or more, got 1; start them with mpirun -n 4")
    serial = np.zeros(N, np.float32)
    for clock in range(STEPS):
        serial -= RATE * sum(gradient(w, size, serial, clock) for w in range(1, size))
    if rank == 0:
        print("rule      error  updates  mean τ  most τ  ahead  x sent  equals serial")
    for name, rule in rules(size - 1).items():
        training = comm.Dup()  # its messages do not reach the next one
        x = np.zeros(N, np.float32)
        if rank > 0:
            work(training, rule, x, partial(gradient, rank, size), STEPS)
        else:
            version, taus, ahead, sent = serve(training, rule, x, STEPS)
            numbers = f"{np.mean(taus):8.1f}{max(taus):8.0f}{ahead:7}{sent:8}"
            error, equal = np.mean((x - 1) ** 2), np.array_equal(x, serial)
            print(f"{name:9}{error:6.0e}{version:9}{numbers}  {equal}")
        training.Free()


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
