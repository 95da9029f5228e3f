"""Data parallelism: all-reduces of gradients that overlap with the backward pass.

    backward   layer 3 │ layer 2 │ layer 1 │ layer 0 │                     time →
    bucket 0                     └ round 0 ┴ round 1 ┘                     layers 3, 2
    bucket 1                               └ round 0 ┴ round 1 ┘           layer 1
    bucket 2                                         └ round 0 ┴ round 1 ┘ layer 0, loss

    w ← w - η Σ_r g_r / p      g_r: gradient of the mean loss of the shard of rank r

Every rank has all n parameters w and a shard, 1/p of each minibatch. A bucket is the
gradients of a few layers in one vector, summed by one all-reduce (Li 2020). It starts
when the last gradient of the bucket is complete; a round of messages is in transit
while the gradient of the next layer is computed.
The butterfly adds the same pairs of ranks in every bucket, so that the bits depend
neither on the buckets nor on the overlap, and are those of one process that adds the
gradients of p shards in pairs. Rounds: lg p = log₂ p per bucket. Words sent per rank
and step: lg p · (n + 1), with the loss.
Printed: g3, the gradient of layer 3 is complete; [0], a round of bucket 0 begins; wait,
a round begins after the backward pass.

    mpirun -n 4 python experiments/single/data_parallel.py
"""

import numpy as np
from mpi4py import MPI

WIDTHS, BATCH, STEPS, ETA = (8, 32, 32, 32, 1), 64, 50, np.float32(0.125)
BUCKET = 1000  # a bucket is complete if it has as many words, or the loss


def butterfly(comm, x, tag):  # yields while the messages of a round are in transit
    step = 1
    while step < comm.Get_size():
        partner, received = comm.Get_rank() ^ step, np.empty_like(x)
        receive = comm.Irecv(received, partner, tag)
        send = comm.Isend(x, partner, tag)
        yield
        send.Wait()
        receive.Wait()
        x += received
        step *= 2


def gradients(layers, inputs, targets, share):
    """Yield share · gradient of each layer, last layer first, then share · loss."""
    outputs = [inputs]
    for w, b in layers[:-1]:
        outputs.append(np.tanh(outputs[-1] @ w + b))
    w, b = layers[-1]
    delta = outputs[-1] @ w + b - targets
    loss = 0.5 * np.mean(delta**2)
    delta = delta / np.float32(len(inputs))
    for (w, _), x in zip(reversed(layers), reversed(outputs), strict=True):
        yield share * np.append(x.T @ delta, delta.sum(axis=0))
        delta = (delta @ w.T) * (1 - x * x)  # through tanh; not used for layer 0
    yield share * np.float32([loss])


def sum_gradients(comm, vectors, layers, log):
    """Return the sums over ranks of the vectors, as one vector; log events."""
    filling, buckets, running = [], [], []
    for number, vector in enumerate(vectors):
        log.append("loss" if number == layers else f"g{layers - 1 - number}")
        filling.append(vector)
        if sum(map(len, filling)) >= BUCKET or number == layers:
            buckets.append(np.concatenate(filling))
            running.append(butterfly(comm, buckets[-1], len(buckets)))
            filling = []
        for bucket, rounds in enumerate(running):  # end a round, begin the next
            if next(rounds, "end") != "end":
                log.append(f"[{bucket}]")
    for rounds in running:  # the rounds that the backward pass did not overlap
        for _ in rounds:
            log.append("wait")
    return np.concatenate(buckets)


def update(layers, total):
    start = 0
    for layer in reversed(layers):
        for parameter in layer:
            gradient = total[start : start + parameter.size]
            parameter -= ETA * gradient.reshape(parameter.shape)
            start += parameter.size


def in_pairs(terms):  # what the butterfly computes, on one process
    while len(terms) > 1:
        terms = [a + b for a, b in zip(terms[::2], terms[1::2], strict=True)]
    return terms[0]


def start():
    draws = np.random.default_rng(0)
    sizes = zip(WIDTHS, WIDTHS[1:], strict=False)
    weights = [draws.standard_normal((m, n)) / np.sqrt(m) for m, n in sizes]
    return [[np.float32(w), np.zeros(w.shape[1], np.float32)] for w in weights]


def minibatch(step):
    inputs = np.float32(np.random.default_rng([1, step]).standard_normal((BATCH, 8)))
    return inputs, np.sin(inputs[:, :1])


def main(comm):
    rank, p = comm.Get_rank(), comm.Get_size()
    if p & (p - 1) or p > BATCH:
        refusal = f"expected 1, 2, 4, … or {BATCH} ranks, got {p}; start 4"
        raise SystemExit(1 if rank else refusal)  # a line of rank 0
    layers, serial, share, losses = start(), start(), np.float32(1 / p), []
    for step in range(STEPS):
        shards = [*zip(*(np.split(part, p) for part in minibatch(step)), strict=True)]
        log = []
        own = gradients(layers, *shards[rank], share)
        total = sum_gradients(comm, own, len(layers), log)
        update(layers, total)
        losses.append(total[-1])
        terms = [np.concatenate([*gradients(serial, *s, share)]) for s in shards]
        update(serial, in_pairs(terms))
    if rank == 0:
        equal = all(map(np.array_equal, sum(layers, []), sum(serial, [])))
        print("order of gradients and rounds of [buckets]:", *log)
        print(f"{len(total) * (p.bit_length() - 1)} words per rank and step")
        print("loss at every 10th step:", *np.round(losses[::10], 4))
        print("equal bits to one process:", equal)


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
