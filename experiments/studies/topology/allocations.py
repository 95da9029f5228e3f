"""Traffic between groups and seconds of all-reduces of jobs on random places."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from dml.runs.writers import Row
from dml.sim.networks.placed import Placed, allocation
from dml.types import Round
from studies.topology import rows as topology_rows

MACHINE = 16  # ranks of the machine for each rank of a job
BUSY = 0.9  # most of the machine that other jobs have
# All-reduces of full buffers; others send parts.
FULL = ("star", "tree", "butterfly", "bine", "multiplying", "one_shot")
BASES = {True: "butterfly", False: "halving_doubling"}  # of full buffers, of parts


def base_of(name: str) -> str:
    """Return the textbook's all-reduce with which another one is compared."""
    return BASES[name in FULL]


def global_bytes(rounds: Sequence[Round], group: np.ndarray) -> int:
    """Return the bytes of messages between ranks of different groups."""
    total = 0
    for one in rounds:
        crosses = group[one.source] != group[one.dest]
        total += one.times * int(one.nbytes[crosses].sum())
    return total


def rows(
    text: str,
    net: Any,
    size: int,
    buffer_bytes: Sequence[int],
    names: Sequence[str],
    number: int,
) -> Iterator[Row]:
    """Yield a row for each buffer and all-reduce, over random allocations.

    The columns compare with the textbook's all-reduce on the same places: `saved` is
    the share of its bytes between groups that are not sent, `gain` its seconds divided
    by those of the all-reduce.

    Args:
      text: Name or shape of the machine.
      net: The machine.
      size: Number of ranks of a job.
      buffer_bytes: Sizes of buffers.
      names: Keys of `rows.SCHEDULES`.
      number: Number of allocations, by seeds 0, 1, …
    """
    jobs = [one_job(net, size, seed) for seed in range(number)]
    every = dict.fromkeys([*names, *BASES.values()])
    for nbytes in buffer_bytes:
        length = nbytes // topology_rows.ITEMSIZE
        sent, took = {}, {}
        for name in every:
            sent[name], took[name] = np.zeros((2, number))
            for k, job in enumerate(jobs):
                rounds = list(topology_rows.schedule(name, job, size, length, [0]))
                sent[name][k] = global_bytes(rounds, job.group(np.arange(size)))
                took[name][k], _ = topology_rows.seconds(rounds, job, size)
        for name in names:
            base = base_of(name)
            saved = 1 - sent[name] / np.maximum(sent[base], 1)
            gain = took[base] / took[name]
            yield {
                "network": text,
                "p": size,
                "machine": net.capacity,
                "bytes": nbytes,
                "algorithm": name,
                "base": base,
                "allocations": number,
                "global_bytes": float(np.median(sent[name])),
                "saved": float(np.median(saved)),
                "most_saved": float(saved.max()),
                "least_saved": float(saved.min()),
                "worse": float(np.mean(saved < 0)),
                "seconds": float(np.median(took[name])),
                "gain": float(np.median(gain)),
                "slower": float(np.mean(gain < 1)),
            }


def one_job(net: Any, size: int, seed: int) -> Placed:
    """Return the machine with a job on random places."""
    rng = np.random.default_rng(seed)
    return Placed(net, allocation(net.capacity, size, rng.uniform(0, BUSY), rng))
