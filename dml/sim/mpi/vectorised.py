"""All-reduces of all virtual ranks at once, if nothing else can happen meanwhile.

    rank      0   1   2   3        by messages: each rank sends one in every round
    round 0   └─┬─┘   └─┬─┘
    round 1   └───┬───┘ …          at once: a round is a few operations on arrays of the
                                   clocks, the ports and the values of all ranks

A rank waits in `allreduce_doubling` until all have entered it, on which its result
depends anyway. The last one computes values, clocks and ports of all, bit for bit those
of the messages. Ranks send messages if there are few of them, if one has open requests,
if their arguments differ, or if nothing can happen before a missing rank enters.
"""

from typing import Any

import numpy as np

from dml.sim.comm import VirtualComm
from dml.sim.mpi.channel import Channel

LEAST_RANKS = 32  # fewer send messages in less time
MOST_BYTES = 1 << 28  # of the values of all ranks


class JointCall:
    """A call that some ranks of a communicator have entered.

    Attributes:
      world: The virtual ranks.
      shared: State that the ranks of the communicator share.
      entered: Channel, value and operation of each rank that has entered.
      found: The results by rank; None if the ranks send messages.
    """

    def __init__(self, world: Any, shared: Any):
        self.world, self.shared = world, shared
        self.entered: list[tuple[Any, np.ndarray, Any]] = []
        self.found: np.ndarray | None = None
        world.joint_calls.append(self)

    def describe(self) -> str:
        size = self.entered[0][0].size
        return f"Allreduce(), entered by {len(self.entered)} of {size} ranks"

    def failure(self, comm: Any) -> str:
        """Return "": a rank of a revoked communicator fails when it sends."""
        return ""

    def end(self) -> None:
        """Wake the ranks that wait."""
        self.world.joint_calls.remove(self)
        del self.shared.results["joint call"]
        # `ready` is last in, first out: rank 0 resumes first, then ranks in order
        for channel, *_ in sorted(self.entered, key=lambda one: -one[0].rank):
            if channel.process.waits is self:
                channel.process.wake()


def allreduce(channel: Any, value: np.ndarray, op: Any) -> np.ndarray | None:
    """Return the result of `allreduce_doubling`, or None if it must send messages."""
    if not may_wait(channel, value, op):
        return None
    results, process = channel.comm.shared.results, channel.process
    call = results.get("joint call")
    if call is None:
        call = results["joint call"] = JointCall(process.world, channel.comm.shared)
    call.entered.append((channel, value, op))
    if len(call.entered) < channel.size:
        process.wait(call)
    else:
        reduce_all(call)
        call.end()
        process.world.progress()
        if process.clock >= process.end_time or process.budget < 0:
            process.end()
    return None if call.found is None else call.found[channel.rank]


def may_wait(channel: Any, value: np.ndarray, op: Any) -> bool:
    """Return whether this rank may wait for the others before it sends messages.

    Without open requests, no message of another rank changes its clock or its ports.
    """
    comm, process = channel.comm, channel.process
    return (
        type(channel) is Channel
        and type(comm) is VirtualComm  # no links, failures or deaths
        and isinstance(op, np.ufunc)
        and channel.trace is None
        and channel.size >= LEAST_RANKS
        and value.nbytes <= comm.eager
        and value.nbytes * channel.size <= MOST_BYTES
        and not (process.open_receives or process.waiting_sends)
    )


def reduce_all(call: JointCall) -> None:
    """Set the values, clocks and ports of all ranks, unless they need messages."""
    by_rank = sorted(call.entered, key=lambda one: one[0].rank)
    channels, values, ops = zip(*by_rank, strict=True)
    _, first, op = by_rank[0]
    alike = all(
        value.dtype == first.dtype and value.shape == first.shape for value in values
    )
    ready = all(not (one.comm.inbox or one.comm.posted) for one in channels)
    if not alike or not ready or any(other is not op for other in ops):
        return
    processes = [channel.process for channel in channels]
    comm = channels[0].comm
    ports = Ports(processes, comm.alpha + comm.beta * first.nbytes)
    added = comm.gamma * first.nbytes
    rows, size = np.stack(values), len(values)
    power = 1 << size.bit_length() - 1
    extra = size - power
    even = np.arange(0, 2 * extra, 2)
    odd = even + 1
    ports.send(even, odd)
    rows[odd] = op(rows[even], rows[odd])
    ports.clock[odd] += added
    places = np.r_[odd, 2 * extra : size]  # ranks by place
    step = 1
    while step < power:
        lower = np.flatnonzero(~np.arange(power) & step)
        left, right = places[lower], places[lower ^ step]
        ports.exchange(np.r_[left, right], np.r_[right, left])
        rows[left] = rows[right] = op(rows[left], rows[right])
        ports.clock[places] += added
        step *= 2
    ports.send(odd, even)
    rows[even] = rows[odd]
    call.found = rows
    rounds = power.bit_length() - 1
    counts = np.full(size, rounds)
    counts[odd] += 1
    counts[even] = 1
    ports.store(processes, counts.tolist())
    for channel, count in zip(channels, counts.tolist(), strict=True):
        channel.owner.messages += count
        channel.owner.nbytes += count * first.nbytes


class Ports:
    """Clocks and ports of all ranks, in s, as `VirtualComm` has them one by one.

    Args:
      processes: The ranks.
      duration: Seconds of a message.
    """

    def __init__(self, processes: list[Any], duration: float):
        self.duration = duration
        self.clock = np.array([process.clock for process in processes])
        self.out_free = np.array([process.out_free for process in processes])
        self.in_free = np.array([process.in_free for process in processes])

    def start(self, ranks: np.ndarray) -> np.ndarray:
        """Return the times at which ranks begin to send; occupy their out ports."""
        started = np.maximum(self.clock[ranks], self.out_free[ranks])
        self.out_free[ranks] = started + self.duration
        return started

    def arrive(self, ranks: np.ndarray, started: np.ndarray) -> np.ndarray:
        """Return the times of arrival; occupy the in ports."""
        begun = np.maximum(np.maximum(started, self.clock[ranks]), self.in_free[ranks])
        self.in_free[ranks] = done = begun + self.duration
        return done

    def send(self, sources: np.ndarray, dests: np.ndarray) -> None:
        """Send a message from each source to its destination."""
        done = self.arrive(dests, self.start(sources))
        self.clock[sources] = np.maximum(self.clock[sources], self.out_free[sources])
        self.clock[dests] = np.maximum(self.clock[dests], done)

    def exchange(self, ranks: np.ndarray, peers: np.ndarray) -> None:
        """Exchange messages between each rank and its peer; both lists have both."""
        started = np.empty_like(self.clock)
        started[ranks] = self.start(ranks)
        done = self.arrive(ranks, started[peers])
        self.clock[ranks] = np.maximum(self.out_free[ranks], done)

    def store(self, processes: list[Any], counts: list[int]) -> None:
        """Set clocks and ports of the ranks; `counts` has the messages of each."""
        columns = self.clock, self.out_free, self.in_free
        rows = zip(processes, counts, *(one.tolist() for one in columns), strict=True)
        for process, count, clock, out_free, in_free in rows:
            process.clock, process.out_free = clock, out_free
            process.in_free = in_free
            process.budget -= count
