"""The watchdog: a thread per rank that reports long waits and ends deadlocks.

    rank 0: Recv(source=1) <-> rank 1: Recv(source=0)        a cycle: the run is ended
    rank 0: computing <- rank 1: Recv(source=0) <- rank 2: Recv(source=1)    a report

Each rank sends its state to rank 0 four times per timeout, from a thread that also
inspects the main thread. A slow rank never ends a run. Rank 0 ends it only if some
ranks wait for each other or for a rank that has ended. Because their states may be old,
rank 0 first sends these ranks a query; all of them must still be in the same calls.
"""

import sys
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from dml.types import ANY

COMM = str(Path(__file__).parent)  # folder of the communicators
WIRE = str(Path(__file__).parents[1])
WINDOW = str(Path(WIRE, "memory", "window.py"))  # the barrier in shared memory
STANDARD = str(Path(threading.__file__).parent)  # the standard library
MIN_RATE = 1e7  # bytes per second: extends the timeout of calls with long buffers


class Call(NamedTuple):
    """A blocking call that lasts longer than the timeout."""

    text: str
    peers: tuple[int, ...]  # ranks of MPI's world that the call waits for
    any_peer: bool = False  # whether the call waits for one of the peers only
    collective: tuple = ()  # name of a collective call, equal on all its ranks
    begun: float = 0.0  # seconds, by the clock of the rank


class RankState(NamedTuple):
    """The state of a rank; without calls the rank computes or has ended."""

    calls: tuple[Call, ...] = ()
    location: str = ""  # function and line of the main thread
    ended: bool = False
    waited: float = 0.0  # seconds since the start of the longest call
    query: int = 0  # number of the last query of rank 0 before this state


def deadlocked_ranks(states: Mapping[int, RankState]) -> list[int]:
    """Return the ranks that wait for each other or for a rank that has ended.

    This is the largest set of waiting ranks in which every call needs a rank of the set
    or a rank that has ended.
    """
    ended = {rank for rank, state in states.items() if state.ended}
    waiting = {rank for rank, state in states.items() if state.calls}
    while True:
        silent = waiting | ended
        blocked = {
            rank
            for rank in waiting
            if all(is_blocked(call, silent, states) for call in states[rank].calls)
        }
        if blocked == waiting:
            return sorted(blocked)
        waiting = blocked


def is_blocked(call: Call, silent: set[int], states: Mapping[int, RankState]) -> bool:
    """Return whether the call can only return after a message of a silent rank."""
    missing = [
        peer
        for peer in call.peers
        if peer in silent and not has_entered(call, states.get(peer))
    ]
    return len(missing) == len(call.peers) if call.any_peer else bool(missing)


def has_entered(call: Call, state: RankState | None) -> bool:
    """Return whether a rank in this state has made the same collective call."""
    calls = state.calls if state else ()
    return bool(call.collective) and any(
        other.collective == call.collective for other in calls
    )


class Watchdog:
    """Reads the `call` of every communicator of this process; see `World.call`.

    Args:
      comm: A communicator of all ranks for the reports, with mpi4py's `isend`, `iprobe`
        and `recv`; no other messages are sent on it.
      stop: Called on rank 0 to end all ranks.
    """

    def __init__(self, comm: Any, stop: Callable[[], Any]):
        self.comm, self.stop = comm, stop
        self.seconds = 0.0  # timeout
        self.watched: list[weakref.ref] = []  # communicators
        # id of a communicator -> its call, and the time at which it was first read
        self.call_starts: dict[int, tuple[Any, float]] = {}
        self.requests: list[Any] = []  # of messages that are being sent
        self.query = 0  # number of the last query that rank 0 has sent
        self.closing = threading.Event()
        self.thread: threading.Thread | None = None
        # On rank 0:
        self.states: dict[int, RankState] = {}  # by rank
        self.received: dict[int, float] = {}  # times of the last states, by rank
        self.suspected: list[tuple] = []  # (rank, calls) of ranks in a deadlock
        self.printed_wait = 0.0  # seconds of waiting at the last printed report

    def start(self, seconds: float) -> None:
        """Watch for calls longer than `seconds`; 0 switches the watchdog off."""
        self.seconds = seconds
        if seconds > 0 and self.thread is None:
            self.thread = threading.Thread(target=self.run, daemon=True)
            self.thread.start()

    def add(self, comm: Any) -> None:
        self.watched.append(weakref.ref(comm))

    def run(self) -> None:
        """Report in the thread of the watchdog until `close`."""
        due = 0.0
        while not self.closing.wait(min(1.0, self.seconds / 4 or 1.0)):
            if self.seconds <= 0:
                continue
            # order matters: the state must be newer than the query
            queried = self.receive_query()
            now = time.monotonic()
            state = self.state(now)
            if queried or now >= due:
                self.report(state)
                due = now + self.seconds / 4
            self.receive()

    def close(self) -> None:
        """End the thread and report that this rank has ended; call before MPI ends."""
        if self.thread is None:
            return
        self.closing.set()
        self.thread.join()
        self.report(RankState(ended=True))
        while self.comm.rank == 0 and not self.all_have_ended():
            self.receive()
            time.sleep(1e-3)

    def all_have_ended(self) -> bool:
        states = self.states.values()
        return len(states) == self.comm.size and all(state.ended for state in states)

    def state(self, now: float) -> RankState:
        """Return the state of this rank."""
        calls = []
        all_calls_are_long = True
        for reference in list(self.watched):
            comm = reference()
            if comm is None:
                self.watched.remove(reference)
                continue
            call = comm.call
            previous, start = self.call_starts.get(id(comm), (None, now))
            if call is None or call is not previous:
                self.call_starts[id(comm)] = call, now
                all_calls_are_long = all_calls_are_long and call is None
                continue
            if now - start < self.seconds + call_nbytes(call) / MIN_RATE:
                all_calls_are_long = False
                continue
            calls.append(describe(comm, call, start))
        frame = sys._current_frames().get(threading.main_thread().ident or 0)
        if not all_calls_are_long or not in_blocking_call(frame):
            calls = []
        longest = max((now - call.begun for call in calls), default=0.0)
        return RankState(tuple(calls), location(frame), False, longest)

    def report(self, state: RankState) -> None:
        """Send the state to rank 0."""
        state = state._replace(query=self.query)
        if self.comm.rank == 0:
            self.handle(0, state)
        else:
            self.send((self.comm.rank, state), 0)

    def receive_query(self) -> bool:
        """Return whether rank 0 has sent a query to this rank."""
        previous = self.query
        while self.comm.rank and self.comm.iprobe():
            self.query = self.comm.recv()
        return self.query > previous

    def send(self, message: Any, rank: int) -> None:
        self.requests = [request for request in self.requests if not request.Test()]
        self.requests.append(self.comm.isend(message, rank))

    def receive(self) -> None:
        """Handle the states that have arrived, on rank 0."""
        while self.comm.rank == 0 and self.comm.iprobe():
            self.handle(*self.comm.recv())

    def handle(self, rank: int, state: RankState) -> None:
        """Store the state of a rank on rank 0; end a deadlock or print long waits."""
        self.states[rank], self.received[rank] = state, time.monotonic()
        suspects = deadlocked_ranks(self.states)
        suspected = [(suspect, self.states[suspect].calls) for suspect in suspects]
        if suspected != self.suspected:
            self.suspected = suspected
            self.query += 1
            for suspect in suspects:
                if suspect != 0:
                    self.send(self.query, suspect)
        waited = max(state.waited for state in self.states.values())
        if suspects and all(self.states[rank].query == self.query for rank in suspects):
            self.print(f"deadlock of {rank_text(suspects)}; the run ends")
            self.stop()
        elif waited == 0:
            self.printed_wait = 0.0
        # at 1.5 timeouts every rank has reported a call longer than the timeout
        elif waited >= max(2 * self.printed_wait, 1.5 * self.seconds):
            self.printed_wait = waited
            self.print(f"the longest call has lasted {waited:.3g} s; the run continues")

    def print(self, title: str) -> None:
        """Print the states of all ranks; ranks in equal states share a line."""
        now = time.monotonic()
        ranks_by_text: dict[str, list[int]] = {}
        for rank in sorted(self.states):
            age = now - self.received[rank]
            text = state_text(self.states, rank, age if age > self.seconds else 0.0)
            ranks_by_text.setdefault(text, []).append(rank)
        lines = [f"{rank_text(ranks)}: {text}" for text, ranks in ranks_by_text.items()]
        sys.stderr.write("\n  ".join([f"watchdog: {title}", *lines]) + "\n")
        sys.stderr.flush()


def describe(comm: Any, call: tuple, begun: float) -> Call:
    """Return a Call for the `call` of a communicator."""
    operation, role, peer, tag, buffer = call
    tag = getattr(tag, "name", tag)
    text = f"{operation}({role}={peer}, tag={tag}, {call_nbytes(call)} bytes)"
    members = comm.members
    if role == "size":
        key = (operation, *comm.lineage)
        return Call(text, members, collective=key, begun=begun)
    if role == "requests" or peer == ANY:
        others = members[: comm.rank] + members[comm.rank + 1 :]
        return Call(text, others, any_peer=True, begun=begun)
    return Call(text, (members[peer],), begun=begun)


def call_nbytes(call: tuple) -> int:
    """Return the size of a call's buffer in bytes."""
    buffer = call[-1]
    return getattr(buffer, "nbytes", len(buffer) if buffer is not None else 0)


def in_blocking_call(frame: Any) -> bool:
    """Return whether a frame is in a communicator, a window or a lock of threads."""
    name = frame.f_code.co_filename if frame else ""
    return name.startswith(COMM) or name in (WINDOW, threading.__file__)


def location(frame: Any) -> str:
    """Return the innermost function outside of dml.wire and of libraries, as text."""
    innermost = frame
    # CPython 3.11: f_back of a frame that ends meanwhile may be another object
    while isinstance(frame, FrameType) and of_library(frame.f_code.co_filename):
        frame = frame.f_back
    frame = frame if isinstance(frame, FrameType) else innermost
    if not frame:
        return "an unknown function"
    code = frame.f_code
    return f"{code.co_name} ({Path(code.co_filename).name}:{frame.f_lineno})"


def of_library(name: str) -> bool:
    return name.startswith((WIRE, STANDARD, "<frozen")) or "site-packages" in name


def state_text(states: Mapping[int, RankState], rank: int, age: float) -> str:
    """Return the state of a rank as text.

    Args:
      states: States of all ranks.
      rank: The rank.
      age: Seconds since the last report of the rank if it is late, else 0.
    """
    state = states[rank]
    if state.ended:
        return "ended"
    if age:
        return f"no report for {age:.0f} s; before, in {state.location}"
    if not state.calls:
        return f"running {state.location}"
    texts = []
    for call in state.calls:
        peers = [peer for peer in call.peers if not has_entered(call, states.get(peer))]
        any_of = "any of " * (call.any_peer and len(peers) > 1)
        texts.append(f"waiting for {any_of}{rank_text(peers)} in {call.text}")
    return f"{' and '.join(texts)}, called by {state.location}"


def rank_text(ranks: Sequence[int]) -> str:
    """Return the ranks as text: "rank 3", "ranks 0-2, 5"."""
    ranges: list[list[int]] = []  # [rank] or [first, last]
    for rank in sorted(ranks):
        if ranges and ranges[-1][-1] == rank - 1:
            ranges[-1][1:] = [rank]
        else:
            ranges.append([rank])
    text = ", ".join("-".join(map(str, bounds)) for bounds in ranges)
    return f"rank{'s' * (len(ranks) != 1)} {text}"
