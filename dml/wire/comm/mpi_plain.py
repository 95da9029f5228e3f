"""Duplicates of mpi4py's communicators, kept as attributes of the originals."""

import functools
from typing import Any

import numpy as np

from dml.types import BadInput
from dml.wire.comm.mpi import FreedWorld, World
from dml.wire.comm.mpi_library import MPI
from dml.wire.comm.mpi_process import free_windows, this_process

PLAIN = 0  # first number of the lineages of duplicates; those of world() begin with 1


def world_of(comm: MPI.Comm) -> World:
    """Return the World of a communicator; the first call is collective.

    It is an attribute of the communicator, so that MPI deletes it with the communicator
    and does not copy it to duplicates.
    """
    check(comm)
    world: Any = comm.Get_attr(keyval())
    if world is None:
        world = duplicate(comm)
        comm.Set_attr(keyval(), world)
    return world


def check(comm: MPI.Comm) -> None:
    """Raise BadInput unless a communicator is an intracommunicator in use."""
    if MPI.Is_finalized():
        problem = "one after MPI.Finalize(); call Finalize after the last operation"
    elif not comm:
        problem = "COMM_NULL or one that was freed; call Free after the last operation"
    elif comm.is_inter:
        problem = "an intercommunicator; pass the result of its Merge()"
    else:
        return
    raise BadInput(f"expected an intracommunicator in use, got {problem}")


def duplicate(comm: MPI.Comm) -> World:
    """Return a duplicate whose errors are exceptions; collective."""
    process = this_process()
    world = World(MPI.Intracomm(comm).Dup())
    world.Set_errhandler(MPI.ERRORS_RETURN)
    # a number that none of its ranks has used: windows are freed in the order of their
    # lineages, which differ for any two communicators of a rank
    number = np.array([process.duplicates + 1])
    MPI.Intracomm.Allreduce(world, MPI.IN_PLACE, number, MPI.MAX)
    process.duplicates = int(number[0])
    world.lineage = PLAIN, process.duplicates
    world.set_attributes(process.windows)
    return world


@functools.cache
def keyval() -> int:
    """Return the key of the attribute, whose deletion frees the World."""

    def delete(comm: MPI.Comm, key: int, world: Any) -> None:
        free(world)

    return MPI.Comm.Create_keyval(delete_fn=delete)


def free(world: World) -> None:
    """Free a World, and all that was made from it; collective."""
    free_windows(world.windows, world.lineage)
    for reference in world.made:
        child = reference()
        if child is not None and not isinstance(child, FreedWorld):
            free(child)
    world.Free()
