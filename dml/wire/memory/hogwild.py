"""HOGWILD! (Niu 2011): no lock.

    worker 0   read x_e   gradient   x_r += δ, x_s += δ, …
    worker 1      read x_f   gradient   x_s += δ, …          one of the two may be lost

A sum is a read, an addition and a write: a write of another worker in between is lost.
There is no message and no wait: an edge reads its rows and writes them.
"""

from numba import njit

STEPS = 0  # consecutive steps of a worker; 0: a block


@njit(nogil=True, cache=True)
def enter(sync, edges, e):
    """Called before an edge's rows are read."""


@njit(nogil=True, cache=True)
def turn(sync, edges, e, t, moves):
    """Called between an edge's gradient and its change, if it moves."""


@njit(nogil=True, cache=True)
def add(numbers, i, delta):
    """numbers[i] += delta."""
    numbers[i] += delta


@njit(nogil=True, cache=True)
def leave(sync, edges, e, t, moves):
    """Called after an edge's rows were changed."""
