"""Tensor parallelism: each rank has a slice of U and D of a block (Shoeybi 2019).

          ┌─► U_0  columns ─► relu ─► D_0  rows ─┐
    x ─ f ┼─► U_1  columns ─► relu ─► D_1  rows ─┼ g ─► y = relu(x U) D
          └─► U_2  columns ─► relu ─► D_2  rows ─┘     the block returns x + y

    U = [U_0 U_1 U_2]      a product by columns computes a slice of the hidden units,
        [D_0]              from all of x; relu (GeLU in the paper) needs no other
    D = [D_1]              a product by rows computes from that slice h_i = relu(x U_i)
        [D_2]              a term of the sum y = h_0 D_0 + h_1 D_1 + h_2 D_2

    f and g are conjugate     forward    f copies     g sums over ranks
                              backward   f sums       g copies

All ranks have the whole minibatch; x, y and the embedding are equal on all ranks.
Cost of a block: an all-reduce of as many words as x has, n = examples · width, forward
and another backward; a rank sends 2(p - 1)/p · n words in each. It stores 1/p of U and
D. The order of sums is that of the ring: the bits differ from those of one process.

    mpirun -n 4 python experiments/single/tensor_parallel.py
"""

import numpy as np
from mpi4py import MPI


def all_reduce(comm, array):
    """Return the sum of arrays over ranks, by a ring all-reduce of p chunks."""
    rank, size = comm.Get_rank(), comm.Get_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    chunks = np.array_split(array.reshape(-1).copy(), size)
    for i in range(size - 1):  # reduce-scatter: a rank ends with the sum of one chunk
        received = np.empty_like(chunks[(rank - i - 1) % size])
        comm.Sendrecv(chunks[(rank - i) % size], right, 0, received, left, 0)
        chunks[(rank - i - 1) % size] += received
    for i in range(size - 1):  # all-gather of the sums
        received = chunks[(rank - i) % size]
        comm.Sendrecv(chunks[(rank - i + 1) % size], right, 0, received, left, 0)
    return np.concatenate(chunks).reshape(array.shape)


def f(comm, x):
    """Return x, and its backward: the sum over ranks."""
    return x, lambda grad: all_reduce(comm, grad)


def g(comm, y):
    """Return the sum over ranks, and its backward: a copy."""
    return all_reduce(comm, y), lambda grad: grad


def block(comm, up, down, x):
    """Return x + relu(x U) D, and its backward: grad -> gradients of x, U_i and D_i.

    The matrices up and down are U_i and D_i of rank i.
    """
    copy, f_backward = f(comm, x)
    hidden = np.maximum(copy @ up, 0)  # h_i, by columns: this rank's hidden units
    y, g_backward = g(comm, hidden @ down)  # by rows: a term of the sum

    def backward(grad):
        grad_y = g_backward(grad)
        grad_hidden = (grad_y @ down.T) * (hidden > 0)
        grad_x = f_backward(grad_hidden @ up.T)
        return grad + grad_x, copy.T @ grad_hidden, hidden.T @ grad_y

    return x + y, backward


def gradient(comm, params, inputs, targets):
    """Return the loss, and the gradients of this rank's params: see `slices`."""
    embedding, ups, downs = params
    x, backwards = inputs @ embedding, []
    for up, down in zip(ups, downs, strict=True):
        x, backward = block(comm, up, down, x)
        backwards.append(backward)
    error = x - targets
    grad, grad_ups, grad_downs = 2 * error / error.size, [], []
    for backward in reversed(backwards):
        grad, grad_up, grad_down = backward(grad)
        grad_ups.insert(0, grad_up)
        grad_downs.insert(0, grad_down)
    grads = inputs.T @ grad, np.array(grad_ups), np.array(grad_downs)
    return np.mean(error**2), grads


def slices(params, rank, size):
    """Return a rank's params: the embedding, columns of each U, rows of each D."""
    embedding, ups, downs = params  # the blocks are the first axis of ups and downs
    own_ups = np.array_split(ups, size, axis=2)[rank]
    return embedding, own_ups, np.array_split(downs, size, axis=1)[rank]


def train(comm, params, inputs, targets, rates):
    """Return the loss by step, and this rank's params after the last step."""
    params, losses = slices(params, comm.Get_rank(), comm.Get_size()), []
    for rate in rates:
        loss, grads = gradient(comm, params, inputs, targets)
        params = [w - rate * grad for w, grad in zip(params, grads, strict=True)]
        losses.append(loss)
    return losses, params


def main(comm):
    rank, size = comm.Get_rank(), comm.Get_size()
    blocks, examples, width, hidden, steps = 3, 32, 12, 48, 6
    if size > hidden:
        message = f"expected at most {hidden} ranks, got {size}; start fewer"
        raise SystemExit(message if rank == 0 else 1)
    rng = np.random.default_rng(0)
    shapes = (width, width), (blocks, width, hidden), (blocks, hidden, width)
    params = [0.2 * rng.standard_normal(shape) for shape in shapes]
    inputs = rng.standard_normal((examples, width))
    problem = params, inputs, np.sin(2 * inputs), [0.5] * steps
    losses, own = train(comm, *problem)
    _, whole = train(MPI.COMM_SELF, *problem)  # one process has all of U and D
    pairs = zip(own, slices(whole, rank, size), strict=True)
    apart = np.array(max(abs(w - expected).max() for w, expected in pairs))
    comm.Allreduce(MPI.IN_PLACE, apart, MPI.MAX)
    if rank == 0:
        chunks = [len(c) for c in np.array_split(range(examples * width), size)]
        words = 2 * (2 * sum(chunks) - chunks[1 % size] - chunks[2 % size])
        stored, total = (sum(w.size for w in some) for some in (own, params))
        print(f"{blocks} blocks, U of {width} x {hidden} words, on {size} ranks")
        print("loss by step:", " ".join(f"{loss:.4f}" for loss in losses))
        print(f"words stored by rank 0: {stored} of {total}")
        print(f"words sent by rank 0 in a step: {blocks * words}")
        print(f"equal to one process except for rounding: {apart < 1e-9} ({apart:.0e})")


if __name__ == "__main__":
    main(MPI.COMM_WORLD)
