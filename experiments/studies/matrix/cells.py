"""The cells of the matrix: each trains one problem by one method."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import numpy as np

from dml.case import measure
from dml.problems import Entry, find_problem
from dml.types import BadInput, Comm
from dml.wire.collectives import tree_allreduce
from studies.matrix.methods import DEVICES, THREADS, WORKERS, Method, find_method

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
    start, real = time.perf_counter(), comm.size > 1
    case, ranks = method.case(entry, updates), comm if real else None
    measured = measure(case, ranks, evaluate=lambda comm, last: {})
    first, seconds = measured[0], time.perf_counter() - start
    words = np.array([sum(rank.bytes // 4 for rank in measured)])
    tree_allreduce(comm, words)
    if comm.rank or not first.sha256:
        return {}
    return {
        "fits": True,
        "fabric": method.fabric,
        "ranks": WORKERS if method.fabric in (DEVICES, THREADS) else method.ranks,
        "loss": first.rows[-1]["loss"],
        "words_sent": int(words[0]),
        "virtual_seconds": None if method.fabric == DEVICES else first.seconds,
        "sha256": first.sha256,
    } | ({} if real else {"real_seconds": seconds})
