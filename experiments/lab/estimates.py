"""Estimates of long virtual runs, printed before they start."""

import math
import sys
from collections.abc import Sequence

from lab.shared_flags import FlagValues, widths
import numpy as np

from dml import extend, sim
from dml.types import Comm
from dml.wire import collectives
from dml.wire.collectives import (
    ALLREDUCE,
    COLLECTIVES,
    broadcast,
    called,
    machine_rates,
)
from dml.wire.comm.buffers import allocate, is_registered
from dml.wire.comm.once import once
from dml.wire.plans.topology import levels

# Seconds of one core per message between virtual ranks, by algorithm, measured on an
# AMD EPYC (family 26, Zen 5) virtual machine (docs/measured/virtual.md).
MESSAGE_SECONDS = {
    "ring": 2.6e-6,  # 1,024 ranks
    "hierarchical": 3.8e-6,  # 1,024 ranks on hosts of 4
    "shared": 1.2e-6,  # per read of another rank's memory; 512 ranks
    "butterfly": 8.5e-6,  # 16,384 ranks
    "halving_doubling": 9.5e-6,  # 16,384 ranks
    "tree": 2.0e-5,  # 16,384 ranks; includes the start of a rank per two messages
    "star": 1.7e-5,  # 16,384 ranks, as tree
    "any": 1.7e-5,  # received from any source; 10,001 ranks
    "server": 7.5e-5,  # includes the computation of worker and server; 4,096 ranks
}
Group = int | Sequence[int]  # members of a group, for each level
MIN_SECONDS = 20.0  # seconds; shorter runs print no estimate


def warn(comm: Comm, part: str, messages: int, algorithm: str) -> None:
    """Print the number of messages and the seconds of a long part of a virtual run.

    Args:
      comm: Communicator; only virtual rank 0 prints.
      part: Name of the part.
      messages: Number of messages.
      algorithm: Key of MESSAGE_SECONDS; other algorithms count as "any".
    """
    seconds = messages * MESSAGE_SECONDS.get(algorithm, MESSAGE_SECONDS["any"])
    if not comm.platform.virtual or comm.rank or seconds < MIN_SECONDS:
        return
    hours = f"{seconds / 3600:,.0f} hours"
    duration = f"{seconds:,.0f} s" if seconds < 7200 else hours
    sys.stdout.write(
        f"{part} on {comm.size:,} virtual ranks: about {messages:,} messages, "
        f"{duration} of one core\n"
    )
    sys.stdout.flush()


def warn_of_updates(values: FlagValues, comm: Comm, length: int) -> None:
    """Print the messages and the seconds of the updates of a long virtual run.

    Args:
      values: Flags.
      comm: Communicator; only virtual rank 0 prints.
      length: Number of elements that --allreduce sums in an update.
    """
    if not comm.platform.virtual or comm.rank:
        return
    name, steps, gradient = values.allreduce, values.steps, np.zeros(length, np.float32)
    topology = widths(values.group), values.outside
    calls = allreduce_messages(comm, name, gradient, *topology)
    warn(comm, f"{steps} all-reduces by {name}", steps * calls, name)


def predicted_seconds(
    comm: Comm, name: str, buffer: np.ndarray, group: Group = 0, outside: str = "ring"
) -> float | None:
    """Predict the seconds of an all-reduce on this machine; collective.

    A user-defined all-reduce has no formula: it runs on virtual ranks with the rates of
    this machine. If it fails there, the result is None. The arguments are those of
    `dml.wire.collectives.predicted_seconds`.
    """
    if name in ALLREDUCE:
        return collectives.predicted_seconds(comm, name, buffer, group, outside)
    rates = machine_rates(comm)
    network = sim.Uniform(rates.alpha, rates.beta, rates.gamma)
    call = extend.find(name, ALLREDUCE, extend.ALLREDUCES)
    registered, size = is_registered(comm, buffer), comm.size

    def program(ranks: Comm) -> float:
        memory = np.zeros(len(buffer), buffer.dtype)
        elements = allocate(ranks, len(buffer), buffer.dtype) if registered else memory
        start = ranks.Wtime()
        call(ranks, elements)
        return ranks.Wtime() - start

    def simulate() -> float:
        try:
            return max(sim.run(program, size, network))
        except Exception as error:  # of the user's function, which real ranks may run
            text = (str(error).splitlines() or [""])[0]
            sys.stderr.write(
                f"{name} has no prediction: on virtual ranks it fails with "
                f"{type(error).__name__}: {text}; run python -m dml.conformance "
                f"{name}\n"
            )
            return math.nan

    key = name, len(buffer), buffer.dtype, registered
    if comm.platform.virtual:
        result = once(comm, "simulated", key, simulate)
    else:  # rank 0 alone has the memory of all ranks
        value = np.array([simulate() if comm.rank == 0 else 0.0])
        broadcast(comm, value)
        result = float(value[0])
    return None if math.isnan(result) else result


def allreduce_messages(
    comm: Comm, name: str, buffer: np.ndarray, group: Group = 0, outside: str = "ring"
) -> int:
    """Return the number of messages of an all-reduce, without segmentation.

    A read of another rank's shared memory counts as a message.
    """
    name = called(comm, name, buffer)
    size = comm.size
    if name == "native":
        return size
    if name == "shared":
        return size * (size - 1)
    if name != "hierarchical":
        return schedule_messages(name, size)
    total, copies = 0, 1  # messages, and ranks with a chunk in each group
    for level in levels(comm.platform.hosts(), group):
        total += copies * sum(2 * n * (n - 1) for n in level.sizes)
        copies *= min(level.sizes)
    return total + copies * schedule_messages(outside, len(level.sizes))


def schedule_messages(name: str, size: int) -> int:
    """Return the number of messages of a schedule over chunks of equal length."""
    algorithm = COLLECTIVES["allreduce"].get(name)
    if algorithm is None or algorithm.schedule is None:
        return 0  # the schedule of a user-defined all-reduce is unknown
    rounds = algorithm.schedule(size, size)
    return sum(len(round_.source) * round_.times for round_ in rounds)
