"""Parameter server: rank 0 keeps the parameters x, workers send it gradients.

    worker at clock c                  server
      │ ── read ───────────────────────► │  waits until the rule allows it
      │ ◄─ x, version ────────────────── │
      │ ── gradient, version of its x ─► │  stores it, or updates x: version + 1

              a worker at clock c reads x          the server subtracts from x
    bsp       when clocks < c are complete         α Σ g of a clock
    async     at every clock, at once              α g of each gradient
    ssp       when its copy lacks a clock < c - s  α g of each gradient
    essp      as ssp; x is sent after every clock  α g of each gradient
    softsync  at every clock, at once              α n Σ g/max(1, τ) of λ/n gradients

λ workers, n divides λ; g: 1/λ of the mean gradient of a worker's examples; τ, its
staleness: updates after the version of its x. bsp waits for the slowest worker at every
clock; workers of ssp (Ho 2013) and essp (Dai 2015) may be s clocks ahead of it, and add
own steps to their copy at once; async (Dean 2012) and softsync (Zhang 2015) never wait.
Words of a worker and clock: N for g, and N for x if sent. No worker is slow here, and
messages take longer than gradients: essp stays s clocks ahead, ssp waits for newer x.

    mpirun -n 4 python experiments/single/parameter_server.py
"""

from typing import NamedTuple

import numpy as np
from mpi4py import MPI

N, STEPS, RATE = 20, 30, np.float32(0.2)  # length of x, clocks, α
READ, GRADIENT, END = 1, 2, np.float32([-1])  # two tags, and the last message


class Rule(NamedTuple):
    s: float = np.inf  # clocks that a worker may be ahead of the slowest one
    count: int = 1  # gradients in an update
    mean: bool = False  # whether it subtracts α n Σ g/max(1, τ), not α Σ g
    eager: bool = False  # whether the server sends x after every clock


def rules(workers, s=2, n=1):
    return {
        "bsp": Rule(s=0, count=workers),
        "async": Rule(),
        "ssp": Rule(s=s),
        "essp": Rule(s=s, eager=True),
        "softsync": Rule(count=workers // n, mean=True),
    }


def serve(comm, rule, x, steps):
    clocks = dict.fromkeys(range(1, comm.Get_size()), 0)  # ended by each worker
    pending, waiting, sends, staleness, running = [], {}, [], [], list(clocks)
    version = slowest = ahead = 0
    message, status = np.empty(1 + len(x), np.float32), MPI.Status()
    while slowest < steps:
        comm.Recv(message, status=status)
        worker, receivers = status.Get_source(), []
        if status.Get_tag() == READ:
            waiting[worker] = message[0]
        else:
            staleness.append(version - message[0])
            pending.append((worker, staleness[-1], message[1:].copy()))
            if len(pending) == rule.count:  # update x
                if rule.s == 0:
                    pending.sort()  # by worker, so that arrival does not change bits
                total = np.zeros_like(x)
                for _, tau, gradient in pending:
                    total += gradient / np.float32(max(1, tau) if rule.mean else 1)
                share = rule.count / len(clocks) if rule.mean else 1  # 1/n
                x -= RATE * (total / np.float32(share))
                pending, version = [], version + 1
            ahead = max(ahead, clocks[worker] - slowest)
            clocks[worker] += 1
            if rule.eager and min(clocks.values()) > slowest:
                receivers = [*running]  # also a worker that waits for its END
        slowest = min(clocks.values())  # answer the reads that the rule allows
        receivers += sorted(w for w in waiting if waiting[w] <= slowest)
        for w in receivers:
            waiting.pop(w, None)
            head = np.float32([slowest, version, clocks[w]])
            sends.append(comm.Isend(np.append(head, x), w))
        if rule.eager and clocks[worker] == steps:
            running.remove(worker)
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
    keeps_copy = 0 < rule.s < np.inf  # ssp and essp
    for clock in range(steps):
        need = clock - rule.s  # number of clocks that x must include
        while rule.eager and (comm.Iprobe(0) or 0 <= complete < need):
            complete, version = receive(comm, x, own)  # what has arrived, or is needed
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
        print("rule     error  updates  mean τ  most τ  clocks ahead  x sent  = serial")
    for name, rule in rules(size - 1).items():
        training = comm.Dup()  # its messages do not reach the next one
        x = np.zeros(N, np.float32)
        if rank > 0:
            work(training, rule, x, lambda *at: gradient(rank, size, *at), STEPS)
        else:
            version, taus, ahead, sent = serve(training, rule, x, STEPS)
            numbers = f"{np.mean(taus):8.1f}{max(taus):8.0f}{ahead:14}{sent:8}"
            error, equal = np.mean((x - 1) ** 2), np.array_equal(x, serial)
            print(f"{name:8}{error:6.0e}{version:9}{numbers}  {equal}")
        training.Free()


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
