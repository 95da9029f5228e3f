"""Pipeline parallelism: each rank holds some layers; microbatches pass through them.

    x ──► rank 0 ──► rank 1 ──► rank 2 ──► loss      gradients go back from the loss

    GPipe  rank 0   F0 F1 F2 F3  .  .  .  . B3 B2 B1 B0   all forwards F,
           rank 1    . F0 F1 F2 F3  .  . B3 B2 B1 B0  .   then all backwards B
           rank 2    .  . F0 F1 F2 F3 B3 B2 B1 B0  .  .

    1F1B   rank 0   F0 F1 F2  .  . B0 F3 B1  . B2  . B3   K - k forwards on rank k,
           rank 1    . F0 F1  . B0 F2 B1 F3 B2  . B3  .   then one backward before
           rank 2    .  . F0 B0 F1 B1 F2 B2 F3 B3  .  .   each further forward

The gradient is the mean over M microbatches. With both schedules a rank is idle for a
fraction (K - 1)/(M + K - 1) of the time, the bubble, which is small if M >> K ranks.
1F1B (Narayanan 2021) saves memory only: at most K - k microbatches are in flight on
rank k (forward done, backward not); GPipe (Huang 2019; here without recomputation): M.
Cost of a step: M messages of (examples x width) words to the next rank, and M back.

    mpirun -n 4 python experiments/single/pipeline.py
"""

import numpy as np
from mpi4py import MPI


def gpipe(rank, size, count):
    """Return the order of the forwards and backwards of `count` microbatches."""
    forwards = [("F", m) for m in range(count)]
    return forwards + [("B", m) for m in reversed(range(count))]


def one_forward_one_backward(rank, size, count):
    """Return the order of 1F1B, whose sum of gradients starts with microbatch 0."""
    ahead = min(size - 1 - rank, count)
    order = [("F", m) for m in range(ahead)]  # warm-up: forwards only
    for m in range(count - ahead):  # steady: one forward, one backward
        order += [("F", ahead + m), ("B", m)]
    return order + [("B", m) for m in range(count - ahead, count)]  # cool-down


def forward(weights, x):
    """Return the input of each layer, and the output of the last."""
    saved = [x]
    for w in weights:
        saved.append(np.maximum(saved[-1] @ w, 0))
    return saved


def backward(weights, saved, grad):
    """Return the gradients of the weights and of the input."""
    grads = []
    for w, x, output in reversed([*zip(weights, saved[:-1], saved[1:], strict=True)]):
        grad = grad * (output > 0)
        grads.insert(0, x.T @ grad)
        grad = grad @ w.T
    return grads, grad


def pipeline(comm, schedule, weights, inputs, targets):
    """Return loss (last rank), gradients of this rank's layers, most in flight.

    Inputs and targets: microbatches x examples x width, the width of all layers.
    """
    rank, last, count = comm.Get_rank(), comm.Get_size() - 1, len(inputs)
    grads, loss = np.zeros_like(weights), 0
    saved, in_flight, sends = {}, 0, []
    for work, m in schedule(rank, last + 1, count):
        if work == "F":
            x = inputs[m] if rank == 0 else np.empty_like(inputs[m])
            if rank > 0:
                comm.Recv(x, rank - 1)
            saved[m] = forward(weights, x)
            in_flight = max(in_flight, len(saved))
            if rank < last:  # not Send: two neighbours may send to each other at once
                sends.append(comm.Isend(saved[m][-1], rank + 1))
        else:
            grad = np.empty_like(inputs[m])
            if rank < last:
                comm.Recv(grad, rank + 1)
            else:
                error = saved[m][-1] - targets[m]
                loss += np.mean(error**2) / count
                grad = 2 * error / error.size / count  # of the loss
            terms, grad = backward(weights, saved.pop(m), grad)
            grads += terms
            if rank > 0:
                sends.append(comm.Isend(grad, rank - 1))
    for request in sends:
        request.Wait()
    return loss, grads, in_flight


def train(comm, schedule, layers, inputs, targets, rates):
    """Return the losses, this rank's layers, and most in flight."""
    weights = np.array_split(layers, comm.Get_size())[comm.Get_rank()].copy()
    losses = np.zeros(len(rates))
    for step, rate in enumerate(rates):
        losses[step], grads, most = pipeline(comm, schedule, weights, inputs, targets)
        weights -= rate * grads
    return losses, weights, most


def picture(schedule, size, count):
    """Return a row of work for each rank, if all forwards and backwards take a tick."""
    orders = [schedule(rank, size, count) for rank in range(size)]
    rows, done = [[] for _ in orders], set()
    while any(orders):
        ready = []  # F m needs F m of the previous rank, B m needs B m of the next rank
        for rank, order in enumerate(orders):
            work, m = order[0] if order else (".", "")
            before = rank - 1 if work == "F" else rank + 1
            if order and (before in (-1, size) or (work, m, before) in done):
                ready.append((*order.pop(0), rank))
                rows[rank].append(f"{work}{m}")
            else:
                rows[rank].append(" .")
        done.update(ready)
    return [" ".join(row) for row in rows]


def main(comm):
    rank, size = comm.Get_rank(), comm.Get_size()
    layer_count, count, examples, width = 8, 8, 16, 8
    if size > layer_count:
        message = f"expected at most {layer_count} ranks, got {size}; start fewer"
        raise SystemExit(message if rank == 0 else 1)
    rng = np.random.default_rng(0)
    layers, teacher = rng.standard_normal((2, layer_count, width, width)) / 2
    inputs = rng.standard_normal((count, examples, width))
    targets = forward(teacher, inputs)[-1]
    for schedule in (gpipe, one_forward_one_backward):
        problem = schedule, layers, inputs, targets, [0.1] * 6
        losses, weights, most = train(comm, *problem)
        _, whole, _ = train(MPI.COMM_SELF, *problem)  # one process, same schedule
        equal = np.array([np.array_equal(weights, np.array_split(whole, size)[rank])])
        comm.Allreduce(MPI.IN_PLACE, equal, MPI.LAND)
        comm.Allreduce(MPI.IN_PLACE, losses, MPI.SUM)  # only the last rank has them
        words = inputs.size * ((rank < size - 1) + (rank > 0))
        if rank == 0:
            print(f"{schedule.__name__}: {layer_count} layers on {size} ranks")
            print("\n".join(picture(schedule, size, count)))
            print("loss by step:", " ".join(f"{loss:.4f}" for loss in losses))
            print(f"words sent by rank 0 in a step: {words}")
            bubble = (size - 1) / (count + size - 1)
            print(f"bubble: {bubble:.0%}, most in flight on rank 0: {most}")
            print(f"equal bits to one process with this schedule: {equal[0]}")


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
