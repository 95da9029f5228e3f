"""The cells of the matrix: each trains one problem by one method."""

import hashlib
import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from dml import sim
from dml.types import BadInput, Comm, CountedComm
from dml.wire.collectives import tree_allreduce
from dml.wire.comm import Metered
from studies.matrix.methods import (
    DEVICES,
    THREADS,
    WORKERS,
    Method,
    find_method,
    steps,
)
from studies.matrix.problems import Entry, find_problem

Row = dict[str, Any]


def cells(
    comm: Comm, problems: Sequence[str], methods: Sequence[str], updates: int
) -> Iterator[Row]:
    """Yield a row per cell; on ranks other than 0 only the rows of refused cells.

    A single process uses virtual ranks. Under mpirun a method runs on the ranks that it
    needs, if there are enough.
    """
    if comm.size > 1 and comm.size not in {find_method(name).ranks for name in methods}:
        raise BadInput(
            f"expected a method that runs on {comm.size} ranks, got none; pass other "
            f"--methods, or mpirun -n {WORKERS}"
        )
    jax.config.update("jax_num_cpu_devices", WORKERS)
    for problem in problems:
        for name in methods:
            method, row = find_method(name), {"problem": problem, "method": name}
            if comm.size > 1 and comm.size != method.ranks:
                continue
            try:
                if result := cell(comm, method, find_problem(problem), updates):
                    yield row | result
            except BadInput as error:
                yield row | {"fits": False, "reason": str(error)}


def cell(comm: Comm, method: Method, entry: Entry, updates: int) -> Row:
    """Train one cell on the ranks of comm, or on virtual ranks.

    The row is empty on ranks other than 0.
    """

    def program(ranks: Comm) -> Row | None:
        return train(Metered(ranks), method, entry, updates)

    if comm.size > 1:
        return program(comm) or {}
    start = time.perf_counter()
    result = sim.run(program, method.ranks)[0]
    return result | {"real_seconds": time.perf_counter() - start}


def train(comm: CountedComm, method: Method, entry: Entry, updates: int) -> Row | None:
    """Train on this rank; return the row on rank 0."""
    begin, losses = comm.Wtime(), []
    for step in steps(method, entry, comm, updates):
        losses.append(step.loss)
    seconds, words = comm.Wtime() - begin, np.array([comm.bytes_sent // 4])
    tree_allreduce(comm, words)
    params = step.params()
    if comm.rank or params is None:
        return None
    return {
        "fits": True,
        "fabric": method.fabric,
        "ranks": WORKERS if method.fabric in (DEVICES, THREADS) else method.ranks,
        "loss": losses[-1],
        "words_sent": int(words[0]),
        "virtual_seconds": None if method.fabric == DEVICES else seconds,
        "sha256": digest(params),
    }


def digest(params: Any) -> str:
    """Return the hash of all parameters of a tree or a table."""
    sha256 = hashlib.sha256()
    for leaf in jax.tree.leaves(jax.device_get(params)):
        sha256.update(np.ascontiguousarray(leaf).tobytes())
    return sha256.hexdigest()
