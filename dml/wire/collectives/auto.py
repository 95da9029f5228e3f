"""Choice of the all-reduce: measured on real ranks, predicted on virtual ranks.

    buffers of 2^(k-1)+1 to 2^k bytes are of size class k
    first all-reduce of a class: time all candidates in turn, store the fastest
    later ones, and later runs on this machine: use the stored choice

Rank 0 reads the stored choices, and all ranks use the largest of their times, so that
all choose the same algorithm. `auto` chooses among a few algorithms, `auto_all` among
all of `table.COLLECTIVES` except MPI's own.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dml.types import Comm, Op
from dml.wire.collectives import stored
from dml.wire.collectives.benchmark import time_alternately
from dml.wire.collectives.broadcast import broadcast
from dml.wire.collectives.rates import CANDIDATES, candidates, machine_rates, usable
from dml.wire.collectives.shared import reduce_small
from dml.wire.comm import buffers
from dml.wire.comm.buffers import allocate, flat, release
from dml.wire.comm.metered import uncounted
from dml.wire.comm.once import once
from dml.wire.comm.plain import as_comm
from dml.wire.costs.allreduce import Job, seconds
from dml.wire.plans.topology import SMALL

CHOICES = "allreduces.json"
MIN_CLASS, MAX_CLASS = 10, 25  # size classes; those below and above are of these, too
REPEATS = 7  # timings of each candidate
UNKNOWN = -1  # choice that has not been measured


class Candidates(NamedTuple):
    """The algorithms of a choice.

    Attributes:
      name: Prefix of stored choices.
      functions: Algorithms by name.
      predict: (comm, names, job) -> predicted seconds of each name, on virtual ranks.
    """

    name: str
    functions: Mapping[str, Callable[..., None]]
    predict: Callable[[Comm, Sequence[str], Job], list[float]]


def by_formulas(comm: Comm, names: Sequence[str], job: Job) -> list[float]:
    """Return the seconds of the formulas, without the links of the network."""
    rates = machine_rates(comm)
    return [seconds(name, job, rates) for name in names]


FEW = Candidates("", CANDIDATES, by_formulas)


def auto_allreduce(
    comm: Comm, buffer: np.ndarray, op: Op = np.add, among: Candidates = FEW
) -> None:
    """Reduce in place over all ranks by the fastest algorithm on this machine.

    The first call for a size of buffers measures the candidates and stores the choice.
    On virtual ranks it is the algorithm with the least predicted time.

    Args:
      comm: The ranks.
      buffer: Buffer to reduce.
      op: The reduction.
      among: The candidates.
    """
    comm, buffer = as_comm(comm), flat(comm, buffer)
    if comm.size > 1:
        name = choice(comm, buffer, among)
        if name == "shared" and buffer.nbytes <= SMALL:
            reduce_small(comm, buffer, op)  # as `shared`, without its tests
        else:
            among.functions[name](comm, buffer, op)


def candidates_of(allreduce: Callable[..., None]) -> Candidates | None:
    """Return the candidates of an all-reduce that chooses; None for another one."""
    if isinstance(allreduce, partial) and allreduce.func is auto_allreduce:
        return allreduce.keywords["among"]
    return FEW if allreduce is auto_allreduce else None


def chosen_allreduce(comm: Comm, buffer: np.ndarray, among: Candidates = FEW) -> str:
    """Return the name of the algorithm that `auto_allreduce` uses for this buffer."""
    return choice(as_comm(comm), buffer, among)


def choice(comm: Comm, buffer: np.ndarray, among: Candidates) -> str:
    """Return the name of the algorithm for a buffer, stored after the first call."""
    # SMALL buffers are reduced alike whether registered or not
    registered = buffer.nbytes > SMALL and buffers.is_registered(comm, buffer)
    key = among.name, len(buffer), buffer.itemsize, registered
    chosen = comm.cache.chosen
    if key not in chosen:
        if comm.platform.virtual:
            job = Job(0, len(buffer), buffer.itemsize, registered)
            call = partial(predicted_choice, comm, job, among)
            name = once(comm, "chosen", key, call)
        else:
            name = measured_choice(comm, buffer.nbytes, registered, among)
        chosen[key] = name
    return chosen[key]


def predicted_choice(comm: Comm, job: Job, among: Candidates) -> str:
    """Return the name of the candidate with the least predicted time."""
    usable, layout = candidates(comm)
    names = [x for x in among.functions if x in usable or x not in CANDIDATES]
    job = job._replace(size=comm.size, groups=layout.groups)
    times = among.predict(comm, names, job)
    return names[times.index(min(times))]


def measured_choice(
    comm: Comm, nbytes: int, registered: bool, among: Candidates = FEW
) -> str:
    """Return the name of the fastest candidate for a size class; collective."""
    size_class = int(np.clip((nbytes - 1).bit_length(), MIN_CLASS, MAX_CLASS))
    place, names = (int(registered), size_class), list(among.functions)
    choices = stored_choices(comm, among)
    if choices[place] == UNKNOWN:
        size = int(np.clip(nbytes, 1 << MIN_CLASS, 1 << MAX_CLASS))
        inner = uncounted(comm)
        choices[place] = measure_choice(inner, size, registered, among)
        fastest = {key_of(among, registered, size_class): names[choices[place]]}
        stored.write(CHOICES, inner, read_choices(inner) | fastest)
    return names[choices[place]]


def measure_choice(
    comm: Comm, nbytes: int, registered: bool, among: Candidates = FEW
) -> int:
    """Return the index in the candidates of the fastest all-reduce of a buffer."""
    names, length = usable(comm, among.functions), nbytes // 4
    memory = allocate(comm, length) if registered else np.zeros(length, np.float32)
    calls = [partial(among.functions[name], comm, memory) for name in names]
    least = time_alternately(comm, calls, REPEATS).min(axis=1)
    if registered:
        release(comm, memory)
    return list(among.functions).index(names[int(least.argmin())])


def stored_choices(comm: Comm, among: Candidates) -> np.ndarray:
    """Return an index of a candidate by registration and size class; collective."""
    if among.name not in comm.cache.choices:
        choices = np.full((2, MAX_CLASS + 1), UNKNOWN, np.int64)
        inner = uncounted(comm)
        fill(choices, read_choices(inner), among)
        broadcast(inner, choices)
        comm.cache.choices[among.name] = choices
    return comm.cache.choices[among.name]


def read_choices(comm: Comm) -> dict[str, Any]:
    """Return the stored choices of this machine by key, on rank 0; collective."""
    choices = stored.read(CHOICES, comm)
    return choices if isinstance(choices, dict) else {}


def fill(choices: np.ndarray, chosen: dict[str, Any], among: Candidates) -> None:
    """Write the stored choices into the array; other names are skipped."""
    names = list(among.functions)
    for registered, size_class in np.ndindex(choices.shape):
        name = chosen.get(key_of(among, bool(registered), size_class))
        if name in names:
            choices[registered, size_class] = names.index(name)


def key_of(among: Candidates, registered: bool, size_class: int) -> str:
    """Return the key of a stored choice, such as "plain, at most 4096 bytes"."""
    memory = "registered" if registered else "plain"
    return f"{among.name}{memory}, at most {1 << size_class} bytes"
