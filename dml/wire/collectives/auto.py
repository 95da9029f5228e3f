"""Choice of the all-reduce: measured on real ranks, predicted on virtual ranks.

    buffers of 2^(k-1)+1 to 2^k bytes are of size class k
    first all-reduce of a class: time all candidates in turn, store the fastest
    later ones, and later runs on this machine: use the stored choice

Rank 0 reads the stored choices, and all ranks use the largest of their times, so that
all choose the same algorithm.
"""

from functools import partial
from typing import Any

import numpy as np

from dml.types import Comm, Op
from dml.wire.collectives import stored
from dml.wire.collectives.benchmark import time_alternately
from dml.wire.collectives.broadcast import broadcast
from dml.wire.collectives.rates import CANDIDATES, candidates, machine_rates, usable
from dml.wire.comm import buffers
from dml.wire.comm.buffers import allocate, flat, release
from dml.wire.comm.metered import uncounted
from dml.wire.comm.once import once
from dml.wire.comm.plain import as_comm
from dml.wire.costs.allreduce import choose
from dml.wire.plans.topology import SMALL

CHOICES = "allreduces.json"
MIN_CLASS, MAX_CLASS = 10, 25  # size classes; those below and above are of these, too
REPEATS = 7  # timings of each candidate
UNKNOWN = -1  # choice that has not been measured


def auto_allreduce(comm: Comm, buffer: np.ndarray, op: Op = np.add) -> None:
    """Reduce in place over all ranks by the fastest algorithm on this machine.

    The first call for a size of buffers measures the candidates and stores the choice.
    On virtual ranks it is the algorithm with the least predicted time.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    if comm.size > 1:
        CANDIDATES[chosen_allreduce(comm, buffer)](comm, buffer, op)


def chosen_allreduce(comm: Comm, buffer: np.ndarray) -> str:
    """Return the name of the algorithm that `auto_allreduce` uses for this buffer."""
    comm = as_comm(comm)
    # SMALL buffers are reduced alike whether registered or not
    registered = buffer.nbytes > SMALL and buffers.is_registered(comm, buffer)
    key = len(buffer), buffer.itemsize, registered
    if key not in comm.cache.chosen:
        if comm.platform.virtual:
            call = partial(predicted_choice, comm, *key)
            name = once(comm, "chosen", key, call)
        else:
            name = measured_choice(comm, buffer.nbytes, registered)
        comm.cache.chosen[key] = name
    return comm.cache.chosen[key]


def predicted_choice(comm: Comm, length: int, itemsize: int, registered: bool) -> str:
    """Return the name of the candidate with the least predicted time."""
    names, job = candidates(comm)
    job = job._replace(length=length, itemsize=itemsize, registered=registered)
    return choose(job, machine_rates(comm), names)


def measured_choice(comm: Comm, nbytes: int, registered: bool) -> str:
    """Return the name of the fastest candidate for a size class; collective."""
    size_class = int(np.clip((nbytes - 1).bit_length(), MIN_CLASS, MAX_CLASS))
    place, names = (int(registered), size_class), list(CANDIDATES)
    choices = stored_choices(comm)
    if choices[place] == UNKNOWN:
        size = int(np.clip(nbytes, 1 << MIN_CLASS, 1 << MAX_CLASS))
        inner = uncounted(comm)
        choices[place] = measure_choice(inner, size, registered)
        fastest = {key_of(registered, size_class): names[choices[place]]}
        stored.write(CHOICES, inner, read_choices(inner) | fastest)
    return names[choices[place]]


def measure_choice(comm: Comm, nbytes: int, registered: bool) -> int:
    """Return the index in CANDIDATES of the fastest all-reduce of a buffer."""
    names, length = usable(comm), nbytes // 4
    memory = allocate(comm, length) if registered else np.zeros(length, np.float32)
    calls = [partial(CANDIDATES[name], comm, memory) for name in names]
    least = time_alternately(comm, calls, REPEATS).min(axis=1)
    if registered:
        release(comm, memory)
    return list(CANDIDATES).index(names[int(least.argmin())])


def stored_choices(comm: Comm) -> np.ndarray:
    """Return an index in CANDIDATES by registration and size class; collective."""
    if comm.cache.choices is None:
        choices = np.full((2, MAX_CLASS + 1), UNKNOWN, np.int64)
        inner = uncounted(comm)
        fill(choices, read_choices(inner))
        broadcast(inner, choices)
        comm.cache.choices = choices
    return comm.cache.choices


def read_choices(comm: Comm) -> dict[str, Any]:
    """Return the stored choices of this machine by key, on rank 0; collective."""
    choices = stored.read(CHOICES, comm)
    return choices if isinstance(choices, dict) else {}


def fill(choices: np.ndarray, chosen: dict[str, Any]) -> None:
    """Write the stored choices into the array; other names are skipped."""
    names = list(CANDIDATES)
    for registered, size_class in np.ndindex(choices.shape):
        name = chosen.get(key_of(bool(registered), size_class))
        if name in names:
            choices[registered, size_class] = names.index(name)


def key_of(registered: bool, size_class: int) -> str:
    """Return the key of a stored choice, such as "plain, at most 4096 bytes"."""
    memory = "registered" if registered else "plain"
    return f"{memory}, at most {1 << size_class} bytes"
