"""HOGWILD! (Niu 2011): lock-free updates.

    worker 0   read x_e   gradient   x_r += δ, x_s += δ, …
    worker 1      read x_f   gradient   x_s += δ, …          one x_s += may be lost

Edges e and f are examples with the rows that they use. `+=` is a read, an addition and
a write: a write of another worker in between is lost. An edge reads and writes its
rows without messages and without waiting.

A locking policy is a module with the functions and the constant of this module. The
arguments of the functions:

    sync      shared variables, `state.Sync`
    edges     all edges
    e, t      index of the edge, and of the step
    moves     whether the edge changes its rows
"""

from numba import njit

STEPS = 0  # consecutive steps of a worker; 0 stands for all steps of a block


@njit(nogil=True, cache=True)
def enter(sync, edges, e):
    """Run before the rows of an edge are read."""


@njit(nogil=True, cache=True)
def before_changes(sync, edges, e, t, moves):
    """Run between the gradient of an edge and the change of its rows."""


@njit(nogil=True, cache=True)
def add(array, i, delta):
    """Add delta to array[i]."""
    array[i] += delta


@njit(nogil=True, cache=True)
def leave(sync, edges, e, t, moves):
    """Run after the rows of an edge are changed."""
