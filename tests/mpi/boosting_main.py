"""Boosting on MPI.COMM_WORLD; rank 0 prints the hash of the model by split."""

from mpi4py import MPI
from scipy import sparse

from dml.boosting import train
from tests.boosting.tables import blocks, settings, table

x, y = table("logistic")
comm = MPI.COMM_WORLD
hashes = []
for split, stored in (("rows", x), ("columns", x), ("rows", sparse.csr_array(x))):
    given = settings("logistic", split=split, row_share=0.8)
    own = blocks(comm.rank, comm.size, split, stored, y)
    hashes += comm.allgather(train(comm, own, given, [own]).model.sha256)
if comm.rank == 0:
    print(*sorted(set(hashes)))
