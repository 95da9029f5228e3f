"""Solve a tridiagonal system by conjugate gradients, on any number of ranks.

mpirun -n 4 python docs/examples/conjugate_gradient.py 4000 100
python -m dml.sim -n 1000 --network=torus:10x10x10 docs/examples/conjugate_gradient.py
"""

import sys

import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
rows = int(sys.argv[1]) if len(sys.argv) > 1 else 4000
limit = int(sys.argv[2]) if len(sys.argv) > 2 else 100  # of steps
own = rows // size + (rank < rows % size)  # rows of this rank
below = rank - 1 if rank > 0 else MPI.PROC_NULL
above = rank + 1 if rank + 1 < size else MPI.PROC_NULL
padded = np.zeros(own + 2)  # with one value of each neighbour


def apply(vector):
    """Return A·vector for the matrix with 2.1 on the diagonal and -1 beside it."""
    padded[1:-1] = vector
    comm.Sendrecv(padded[-2:-1], above, 1, padded[:1], below, 1)
    comm.Sendrecv(padded[1:2], below, 2, padded[-1:], above, 2)
    return 2.1 * vector - padded[:-2] - padded[2:]


def dot(a, b):
    part, total = np.array([a @ b]), np.empty(1)
    comm.Allreduce(part, total, MPI.SUM)
    return total[0]


first = comm.scan(own) - own  # row of this rank
exact = np.sin(np.arange(first, first + own))
right = apply(exact)
x = np.zeros(own)
residual = right - apply(x)
direction, squared = residual.copy(), dot(residual, residual)
steps = 0
while squared > 1e-20 and steps < limit:
    product = apply(direction)
    alpha = squared / dot(direction, product)
    x += alpha * direction
    residual -= alpha * product
    before, squared = squared, dot(residual, residual)
    direction = residual + squared / before * direction
    steps += 1

error = comm.reduce(float(np.abs(x - exact).max()), MPI.MAX, root=0)
if rank == 0:
    print(f"{rows} rows: error {error:.1e} after {steps} steps")
