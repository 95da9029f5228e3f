"""Diffuse heat on a plate of n x n cells, on a grid of ranks with halo exchange.

mpirun -n 4 python docs/examples/heat.py 64 100
python -m dml.sim -n 1000 --network=fat_tree docs/examples/heat.py 400 20
"""

import sys

import numpy as np
from mpi4py import MPI

n = int(sys.argv[1]) if len(sys.argv) > 1 else 64
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 100
dims = MPI.Compute_dims(MPI.COMM_WORLD.Get_size(), 2)
grid = MPI.COMM_WORLD.Create_cart(dims, periods=[False, True])
coords = grid.Get_coords(grid.Get_rank())


def part(axis):
    """Return the first cell of this rank along an axis, and the cell after its last."""
    place, parts = coords[axis], dims[axis]
    return n * place // parts, n * (place + 1) // parts


(top, bottom), (left, right) = part(0), part(1)
cells = np.zeros((bottom - top + 2, right - left + 2))
for i in range(top, bottom):
    for j in range(left, right):
        cells[i - top + 1, j - left + 1] = (i * 7 + j * 13) % 10
# a column of a C array is a vector of single cells with a stride
column = MPI.DOUBLE.Create_vector(cells.shape[0], 1, cells.shape[1]).Commit()
up, down = grid.Shift(0, 1)
west, east = grid.Shift(1, 1)


def exchange():
    """Fill the border cells with those of the neighbours, by four messages."""
    flat = cells.reshape(-1)
    width = cells.shape[1]
    requests = [
        grid.Irecv(cells[0], up, 1),
        grid.Irecv(cells[-1], down, 2),
        grid.Irecv([flat, 1, column], west, 3),
        grid.Irecv([flat[width - 1 :], 1, column], east, 4),
        grid.Isend(cells[-2], down, 1),
        grid.Isend(cells[1], up, 2),
        grid.Isend([flat[width - 2 :], 1, column], east, 3),
        grid.Isend([flat[1:], 1, column], west, 4),
    ]
    MPI.Request.Waitall(requests)


for _ in range(steps):
    exchange()
    inner = cells[1:-1, 1:-1]
    around = cells[:-2, 1:-1] + cells[2:, 1:-1] + cells[1:-1, :-2] + cells[1:-1, 2:]
    cells[1:-1, 1:-1] = inner + 0.2 * (around - 4 * inner)

column.Free()
heat = np.array([cells[1:-1, 1:-1].sum(), (cells[1:-1, 1:-1] ** 2).sum()])
grid.Allreduce(MPI.IN_PLACE, heat)
if grid.Get_rank() == 0:
    print(f"{n} x {n} cells: heat {heat[0]:.6f}, square {heat[1]:.6f}")
