"""ZeRO (Rajbhandari 2020): data parallelism with state divided among p ranks.

    level        0          1          2          3      stored by a rank:
    params     all n      all n      all n      n / p    w, gathered layer by layer
    gradients  all n      all n      n / p      n / p    g, summed by reduce-scatter
    state      all 2n     2n / p     2n / p     2n / p   m and v of Adam (Kingma 2015)
    sent         2          3          2          3      times (p - 1)/p · n words

    rank 0  [w_0 . . .] ┐                  ┌ [w_0 w_1 w_2 w_3]
    rank 1  [. w_1 . .] ┤    all-gather    ├ [w_0 w_1 w_2 w_3]     all-reduce =
    rank 2  [. . w_2 .] ┤ ───────────────► ├ [w_0 w_1 w_2 w_3]     reduce-scatter
    rank 3  [. . . w_3] ┘ ◄─────────────── └ [w_0 w_1 w_2 w_3]     + all-gather
                          reduce-scatter     sums on the left, terms on the right

A level changes where numbers are stored, not what is computed: all have equal bits.
A step sums the gradients (level 0 and 1: all-reduce, 2; level 2 and 3: reduce-scatter,
1). Levels 1 and 2 then gather the updated params (1). Level 3 gathers each layer in the
forward and again in the backward pass (2), and drops it after use.
Level 1 gathers all gradients only in order to store them; level 2 sends less.
Cost: a reduce-scatter or an all-gather of a layer takes p - 1 rounds.

    mpirun -n 4 python experiments/single/zero.py
"""

import numpy as np
from mpi4py import MPI


def reduce_scatter(comm, vector):
    """Return this rank's slice of the sum over ranks, around a ring."""
    rank, size = comm.Get_rank(), comm.Get_size()
    slices = np.array_split(vector.copy(), size)
    for i in range(size - 1):
        outgoing, total = slices[(rank - i - 1) % size], slices[(rank - i - 2) % size]
        received = np.empty_like(total)
        comm.Sendrecv(outgoing, (rank + 1) % size, 0, received, (rank - 1) % size, 0)
        total += received
    return slices[rank].copy()


def all_gather(comm, own, length):
    """Return the vector whose slices the ranks have, around a ring."""
    rank, size = comm.Get_rank(), comm.Get_size()
    vector = np.empty(length, own.dtype)
    slices = np.array_split(vector, size)
    slices[rank][:] = own
    for i in range(size - 1):
        outgoing, received = slices[(rank - i) % size], slices[(rank - i - 1) % size]
        comm.Sendrecv(outgoing, (rank + 1) % size, 0, received, (rank - 1) % size, 0)
    return vector


def own_slice(comm, vector):
    """Return this rank's slice of a vector."""
    return np.array_split(vector, comm.Get_size())[comm.Get_rank()]


def adam(w, grad, state, rate=0.01):
    """Return w, all params of a layer or a slice, and the state after an update."""
    m, v, t = state
    m, v, t = 0.9 * m + 0.1 * grad, 0.999 * v + 0.001 * grad**2, t + 1
    step = m / (1 - 0.9**t) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return w - rate * step, (m, v, t)


def zero(comm, level, shapes, params, states, x, y, update=adam):
    """Update params and states in place; return this rank's loss, and gradients.

    Params, states and gradients are lists by layer; a vector has all elements of a
    layer or this rank's slice, according to the level.
    """
    layers, lengths = range(len(shapes)), [a * b for a, b in shapes]

    def weights(n):  # level 3: gathered when a layer needs them, and then dropped
        vector = all_gather(comm, params[n], lengths[n]) if level == 3 else params[n]
        return vector.reshape(shapes[n])

    saved = [x]  # forward
    for n in layers:
        saved.append(np.maximum(saved[n] @ weights(n), 0))
    error = saved[-1] - y
    grad, grads = 2 * error / error.size, [None for _ in layers]

    for n in reversed(layers):  # backward
        grad = grad * (saved[n + 1] > 0)
        term = (saved[n].T @ grad).reshape(-1) / comm.Get_size()  # of the mean gradient
        grad = grad @ weights(n).T
        grads[n] = reduce_scatter(comm, term)
        if level < 2:  # an all-reduce: all gradients are stored
            grads[n] = all_gather(comm, grads[n], lengths[n])

    for n in layers:  # update, of a slice from level 1 on
        w = own_slice(comm, params[n]) if level in (1, 2) else params[n]
        g = own_slice(comm, grads[n]) if level == 1 else grads[n]
        w, states[n] = update(w, g, states[n])
        params[n] = all_gather(comm, w, lengths[n]) if level in (1, 2) else w
    return np.mean(error**2), grads


def train(comm, level, shapes, start, x, y):
    """Return this rank's losses, whole params, and the words that it stores by kind."""
    params = [own_slice(comm, w) if level == 3 else w for w in start]
    slices = [own_slice(comm, w) if level > 0 else w for w in start]
    states, losses = [(0 * w, 0 * w, 0) for w in slices], []
    mine = np.array_split(range(x.shape[1]), comm.Get_size())[comm.Get_rank()]
    for step in range(len(x)):
        batch = x[step, mine], y[step, mine]
        loss, grads = zero(comm, level, shapes, params, states, *batch)
        losses.append(loss)
    moments = [array for m, v, _ in states for array in (m, v)]
    stored = [sum(array.size for array in each) for each in (params, grads, moments)]
    if level == 3:
        params = [all_gather(comm, params[n], len(w)) for n, w in enumerate(start)]
    return np.array(losses), np.concatenate(params), stored


def main(comm):
    rank, size = comm.Get_rank(), comm.Get_size()
    width, hidden, batch, steps = 16, 32, 8, 50
    rng = np.random.default_rng(0)
    shapes = [(width, hidden), (hidden, width)]
    start = [0.3 * rng.standard_normal(a * b) for a, b in shapes]
    x = rng.standard_normal((steps, size * batch, width))
    problem = shapes, start, x, abs(x)
    _, expected, _ = train(MPI.COMM_SELF, 0, *problem)  # on one process
    parts = [np.array_split(w, size) for w in start]
    total, own = sum(map(len, start)), sum(len(part[rank]) for part in parts)
    scatter, gather = total - own, total - sum(len(p[(rank + 1) % size]) for p in parts)
    results = []
    if rank == 0:
        print("words of rank 0; the loss is the mean over ranks at every 12th step")
        print("level  sent in a step  stored: params  gradients  state  loss")
    for level, gathers in enumerate((1, 2, 1, 2)):
        losses, w, stored = train(comm, level, *problem)
        comm.Allreduce(MPI.IN_PLACE, losses, MPI.SUM)
        results.append(w)
        if rank == 0:
            row = f"{level:5}  {scatter + gathers * gather:14}  {stored[0]:14}"
            losses = " ".join(f"{loss:.3f}" for loss in losses[:: steps // 4] / size)
            print(f"{row}  {stored[1]:9}  {stored[2]:5}  {losses}")
    if rank == 0:
        same = all(np.array_equal(w, results[0]) for w in results)
        print(f"equal bits at all levels: {same}")
        apart = abs(results[0] - expected).max()
        print(f"equal to one process except for rounding: {apart < 1e-9} ({apart:.0e})")


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
